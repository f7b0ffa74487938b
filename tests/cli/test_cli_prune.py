"""``perflex prune``, ``prune-table``, ``rank`` and ``tune`` of spaces: tables, files, measuring."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perflex import Promise, VariantSpace, load_space
from perflex.cli.rank import counting, read_keep
from perflex.cli.terminal import Terminal
from perflex.testing import FakeDevice
from support import small_description
from support.described_data import convolution_space, times_of
from support.html_structure import checked

EXAMPLES = Path(__file__).parents[2] / "examples"
SPACE = f"""
import sys
sys.path.append({str(EXAMPLES)!r})
from matmul_space import matmul
from perflex import VariantSpace

space = VariantSpace(
    matmul,
    {{"wide": (8, 16), "high": (4,), "columns": (1, 2), "rows": (1, 2), "depth": (16,), "unroll": (1,)}},
    ["rows <= columns"],
)

def made():
    return space
"""

AXPY = """
from perflex import VariantSpace
from support.source_kernels import axpy

space = VariantSpace(axpy, {"items": (32, 64)})
"""


@pytest.fixture
def space(tmp_path):
    (tmp_path / "some_space.py").write_text(SPACE, encoding="utf-8")
    return f"{tmp_path / 'some_space.py'}:space"


@pytest.fixture
def source(tmp_path):
    (tmp_path / "tiled.yaml").write_text(small_description.SPACE, encoding="utf-8")
    return str(tmp_path / "tiled.yaml")


def test_table_and_files(calibration, space, tmp_path, shown):
    out = shown("prune", calibration, space, "n=128", "--keep", "2", "--out", tmp_path / "out")
    assert "2 of 6: those predicted fastest" in out
    assert "left out: constraint: rows <= columns (2)" in out
    assert (tmp_path / "out" / "ranking.csv").read_text(encoding="utf-8").count("\n") == 7
    assert (tmp_path / "out" / "ranking.png").read_bytes()[:4] == b"\x89PNG"
    page = checked((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    kept = [line.split()[0] for line in out.splitlines()[2:4]]
    assert [name.split(",")[0] + "," for name in page.table("Kept variants").column("variant")] == kept


def test_json_of_a_function(calibration, space, content):
    found = content("prune", calibration, space.replace(":space", ":made"), "n=128", "--keep", "50%")
    assert found["variants"] == 6
    assert found["kept"] == [row["variant"] for row in found["table"] if row["kept"]]
    assert len(found["kept"]) == 3
    assert [row["rank"] for row in found["table"]] == [1, 2, 3, 4, 5, 6]
    assert all(row["measured_s"] is None for row in found["table"])


def test_a_device_without_measuring_is_refused(calibration, space, refused):
    told = refused("prune", calibration, space, "n=128", "--device", "some GPU")
    assert "--device says where --time or --measure times variants, and nothing is timed without" in told


def test_facts_of_another_machine_are_told(tmp_path, content, shown):
    (tmp_path / "axpy_space.py").write_text(AXPY, encoding="utf-8")
    words = ("prune", "general_gpu_h100_cuda", f"{tmp_path / 'axpy_space.py'}:space", "n=65536", "--machine", "T4")
    mixed = "calibrated on H100-SXM, predicted with facts of T4"
    assert all(mixed in row["doubts"] for row in content(*words)["table"])
    assert f"doubtful: {mixed}" in shown(*words)


def test_measuring(calibration, space, content, shown, tmp_path, default_device):
    words = ("--keep", "promise:0.1,0.5", "--measure", "3", "--device", str(default_device.name))
    found = content("prune", calibration, space, "n=128", *words)
    assert len(found["batch"]) == 3
    # Beside the batch those that were kept and timed afterwards.
    timed = {row["variant"] for row in found["table"] if row["measured_s"] is not None}
    assert timed == {*found["batch"], *found["kept"]}
    assert found["check"]["cases"] == len(timed) == 3 + len(found["kept"]) - 1
    assert found["measured_on"] == str(default_device)
    out = shown("prune", calibration, space, "n=128", *words[2:], "--out", tmp_path)
    assert f"measured on {default_device}" in " ".join(out.split())
    assert f"measured on{default_device}" in checked((tmp_path / "report.html").read_text(encoding="utf-8")).text


def test_how_many_to_keep():
    for word, expected in (
        *(("5%", 0.05), ("12.5%", 0.125), ("20", 20), ("promise", Promise())),
        *(("promise:0.1", Promise(0.1)), ("promise:0.1,0.9", Promise(0.1, 0.9))),
    ):
        assert read_keep(word) == expected
        assert type(read_keep(word)) is type(expected)


def test_spaces_of_sources(source, shown, content):
    assert shown("rank", "--machine", "V100", source).count("TILE=") == 3
    words = ("prune", "--machine", "V100", source, "--keep", "2", "n=512")
    found = content(*words)
    assert len(found["kept"]) == 2
    for row in found["table"]:
        assert row["doubts"][0].startswith("no sample of this device")
    out = shown(*words)
    assert [line.split()[-1] for line in out.splitlines()[2:4]] == ["yes", "yes"]
    assert out.count("doubtful: no sample of this device") == 1


def test_many_variants_of_a_file_are_counted_on_all_cores_where_they_can_be_sent(source, monkeypatch):
    monkeypatch.setattr("perflex.cli.rank._MANY", 3)
    space = load_space(source)
    local = VariantSpace(replace(space.build, source=lambda _: ""), space.values, name="local")
    for variants, sent in ((space, True), (local, False), ({"one": None}, False)):
        with counting(Terminal(quiet=True), "rank:", variants) as run:
            assert (run.executor is not None) == sent
    monkeypatch.setattr("perflex.cli.rank._MANY", 4)
    with counting(Terminal(quiet=True), "rank:", space) as run:
        assert run.executor is None


@pytest.fixture
def fake(monkeypatch):
    device = FakeDevice(lambda label, _sizes: 1e-3 * int(label.removeprefix("TILE=")), name="fake device")
    for place in ("timing.measuring", "devices.listing"):
        monkeypatch.setattr(f"perflex.{place}.find_device", lambda _=None: device)
    return str(device)


def test_tune_says_where_and_what_was_timed_again(fake, source, content, shown, refused):
    words = ("tune", source, "n=64", "--measurements", "3")
    found = content(*words)
    assert (found["device"], found["doubts"]) == (fake, [])
    assert [step["variant"] for step in found["again"]] == ["TILE=4", "TILE=8", "TILE=16"]
    assert found["best"]["measured_s"] == found["again"][0]["measured_s"]
    assert "the kernel has no size m; its sizes are n\n" in refused(*words, "m=3")
    _, heading, row, *_ = shown(*words).splitlines()
    assert heading.split() == ["variant", "measured", "(ms)", "timed", "again", "(ms)", "ratio"]
    assert row.split() == ["TILE=4", "4.00", "4.00", "1.00"]
    doubts = content(*words, "--machine", "V100", "-d", "fake")["doubts"]
    assert doubts[0].startswith("no sample of this device")


def test_a_search_starts_from_times_of_a_file(fake, source, content, run, tmp_path, refused):
    content("tune", source, "n=64", "--measurements", "2", "--budget", "1min", "--out", tmp_path / "t4.json")
    found = content("tune", source, "n=64", "--promise", "none", "--times", tmp_path / "t4.json")
    assert (len(found["history"]), len(found["again"])) == (1, 3)
    assert "cannot read --promise '5%'" in refused("tune", source, "--promise", "5%")


def test_tune_times_on_no_other_device_than_that_of_the_machine(fake, source, refused, monkeypatch):
    monkeypatch.setattr("perflex.calibration.device_match.list_devices", lambda: ())
    error = refused("tune", "--machine", "A100-40GB", source, "n=64")
    assert "no device that works here is a A100-40GB" in error


def test_tune(calibration, source, default_device, content):
    found = content("tune", calibration, source, "n=64", "-d", default_device, "--measurements", "3")
    assert {step["variant"] for step in found["history"]} == {"TILE=4", "TILE=8", "TILE=16"}
    assert found["best"]["measured_s"] > 0


# Tables of described kernels


def test_a_table_of_a_described_kernel(tmp_path, shown, content):
    chosen = convolution_space(200)
    with (tmp_path / "A4000.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*chosen.settings, "time_ms"])
        writer.writerows(np.column_stack([*chosen.settings.values(), times_of(chosen)]).tolist())
    words = ("prune-table", tmp_path / "A4000.csv", "convolution", "--samples", "60", "--keep", "5%")
    out = shown(*words, "--out", tmp_path)
    assert "10 of 200 configurations of convolution kept, 60 measured" in out
    assert "a configuration within 5 % of the best known is kept" in out
    assert "relative error, analytic: geometric mean" in out
    assert "\nfacts of RTX-A4000\n" in out
    assert (tmp_path / "pruning.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "pruning.csv").open() as stream:
        assert sum(row["kept"] == "True" for row in csv.DictReader(stream)) == 10
    found = content(*words)
    assert (found["configurations"], found["batch"], found["kept"]) == (200, 60, 10)
    assert set(found["errors"]) == {"analytic", "with the correction"}
    assert {"block_size_x", "predicted_s", "analytic_s", "dominates", "share"} <= set(found["table"][0])


TABLE = "items,depth,time_ms\n32,1,5\n64,1,3\n64,2,2\n128,1,1\n64,4,4\n128,4,9\n128,2,\n"


# Of what was measured only the fastest is kept; without --samples the description's other configurations are there too.
@pytest.mark.parametrize(
    ("words", "configurations", "batch", "kept"),
    [
        (("--keep", "2"), 8, 5, 2),
        (("--keep", "100%"), 8, 5, 4),
        (("--samples", "1", "--keep", "1"), 5, 1, 1),
        (("--samples", "5", "--keep", "60%"), 5, 5, 1),
    ],
)
def test_what_is_kept_of_a_small_table(words, configurations, batch, kept, tmp_path, content):
    (tmp_path / "small.yaml").write_text(small_description.DESCRIPTION.replace(", dead_when: items == 32", ""))
    (tmp_path / "GPU.csv").write_text(TABLE)
    found = content("prune-table", tmp_path / "GPU.csv", tmp_path / "small.yaml", *words)
    assert (found["configurations"], found["batch"], found["kept"]) == (configurations, batch, kept)
    assert found["facts"].startswith("facts of a usual GPU of NVIDIA: no machine file is of 'GPU'")
    assert found["excluded"] == {"against the constraints": 1, "failed or without a time": 1}
    assert len(found["table"]) == kept


def test_problems_of_several_sizes_are_told_apart(tmp_path, content, shown):
    (tmp_path / "small.yaml").write_text(small_description.DESCRIPTION)
    (tmp_path / "GPU.csv").write_text("items,depth,size,time_ms\n64,1,1024,3,\n64,1,4096,9\n128,1,4096,8\n")
    words = ("prune-table", tmp_path / "GPU.csv", tmp_path / "small.yaml", "--keep", "3")
    assert [row["size"] for row in content(*words)["table"]] == [1024]
    assert "the same in all rows: items 64, depth 1, size 1024" in shown(*words)
