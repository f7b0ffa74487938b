"""``perflex prune``, ``rank`` and ``tune`` of spaces: tables, files, measuring."""

from dataclasses import replace
from pathlib import Path

import pytest

from perflex import Promise, VariantSpace, load_space
from perflex.cli.rank import counting, read_keep
from perflex.cli.terminal import Terminal
from perflex.testing import FakeDevice
from support.html_structure import checked
from support.small_source_space import SPACE as SOURCE_SPACE

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
    (tmp_path / "tiled.yaml").write_text(SOURCE_SPACE, encoding="utf-8")
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


def test_series_of_sizes_are_ranked_one_after_the_other(calibration, space, content, shown, refused, tmp_path):
    words = ("prune", calibration, space, "n=128,256", "--keep", "2")
    found = content(*words)
    assert [one["sizes"] for one in found] == [{"n": 128}, {"n": 256}]
    alone = [content(*words[:3], f"n={n}", *words[4:]) for n in (128, 256)]
    assert [one["table"] for one in found] == [one["table"] for one in alone]
    lines = shown(*words).splitlines()
    assert [line for line in lines if line.startswith("n=")] == ["n=128", "n=256"]
    rows = content("rank", calibration, "examples/matmul.py:naive", "examples/matmul.py:prefetching", "n=128,256")
    assert [(row["sizes"]["n"], row["rank"]) for row in rows] == [(128, 1), (128, 2), (256, 1), (256, 2)]
    assert "one value each" in refused(*words, "--out", tmp_path)


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
    found = content("tune", calibration, source, "n=64", "-d", default_device, "--measurements", "3", "--check")
    assert {step["variant"] for step in found["history"]} == {"TILE=4", "TILE=8", "TILE=16"}
    assert found["best"]["measured_s"] > 0


def test_times_of_a_file_correct_the_predictions(calibration, space, content, shown, refused, tmp_path):
    wide = tmp_path / "some_space.py"
    wide.write_text(SPACE.replace('"rows": (1, 2), "depth": (16,)', '"rows": (1, 2), "depth": (8, 16, 32)'))
    names = ("wide", "high", "columns", "rows", "depth", "unroll")
    rows = [(w, 4, c, 1, d, 1, 0.01 * w * d / c) for w in (8, 16) for c in (1, 2) for d in (8, 16)]
    lines = [",".join(map(str, row)) for row in [(*names, "time_ms"), *rows]]
    (tmp_path / "times.csv").write_text("\n".join(lines))
    words = ("prune", calibration, space, "n=128", "--keep", "3", "--times", tmp_path / "times.csv")
    found = content(*words)
    assert len(found["batch"]) == found["check"]["cases"] == 8
    assert {row["variant"] for row in found["table"] if row["measured_s"] is not None} == set(found["batch"])
    assert "wide=8, high=4, columns=2, rows=1, depth=8, unroll=1" in found["kept"]
    assert {row["knowledge"] for row in found["table"]} == {"timing of other variants"}
    assert "measured_on" not in found
    out = shown(*words)
    assert "predictions are corrected by the times of measured variants" in out
    assert "8 variants measured, 1 of the kept" in out
    assert "--times gives times of some; give one of them" in refused(*words, "--time")
