"""``perflex prune-table``: table, files, JSON, and what it cannot do; what `perflex prune` says of such tables."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from perflex.__main__ import main
from perflex.cli.app import application
from support.described_data import convolution_space, times_of


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    chosen = convolution_space(200)
    path = tmp_path_factory.mktemp("space") / "A4000.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*chosen.settings, "time_ms"])
        writer.writerows(np.column_stack([*chosen.settings.values(), times_of(chosen)]).tolist())
    return str(path)


def run(*words, command="prune-table"):
    return CliRunner().invoke(application(), [command, *words])


def test_table_and_files_of_a_described_kernel(space, tmp_path):
    words = (space, "convolution", "--samples", "60", "--keep", "5%")
    found = run(*words, "--out", str(tmp_path))
    assert found.exit_code == 0, found.output
    assert "10 of 200 configurations of convolution kept, 60 measured" in found.output
    assert "a configuration within 5 % of the best known is kept" in found.output
    assert "relative error, analytic: geometric mean" in found.output
    assert (tmp_path / "pruning.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "pruning.csv").open() as stream:
        assert sum(row["kept"] == "1" for row in csv.DictReader(stream)) == 10


def test_json_of_a_described_kernel(space):
    words = (space, "convolution", "--samples", "40", "--keep", "3", "--json")
    content = json.loads(run(*words).output)
    assert (content["configurations"], content["batch"], content["kept"]) == (200, 40, 3)
    assert set(content["errors"]) == {"analytic", "with the correction"}
    assert {"block_size_x", "predicted_s", "analytic_s", "dominates", "share"} <= set(content["table"][0])


def test_tables_have_their_own_command():
    found = run("c.yaml", "x.csv.gz", "n=3", command="prune")
    assert found.exit_code != 0
    assert "perflex prune-table TABLE DESCRIPTION" in str(found.exception)


DESCRIPTION = """
schema: perflex-description/1
name: small
description: a kernel
tunables:
  items: {meaning: work-items, values: [32, 64, 128]}
  depth: {meaning: unrolling, values: [1, 2, 4]}
constants: {size: 1024}
constraints: [items*depth <= 256]
features:
  f_groups: ceil_div(size, items*depth)
  f_work: f_groups*items*depth
model: p_time*(f_work + p_group*f_groups)
parameters:
  p_time: {meaning: time of an item, unit: ms, prior: 0.001, spread: 2}
  p_group: {meaning: a work-group, unit: item, prior: 10, spread: 1}
"""
TABLE = "items,depth,time_ms\n32,1,5\n64,1,3\n64,2,2\n128,1,1\n64,4,4\n128,4,9\n128,2,\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with five measured configurations and the description of their kernel."""
    (tmp_path / "small.yaml").write_text(DESCRIPTION)
    (tmp_path / "GPU.csv").write_text(TABLE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


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
def test_what_is_kept_of_a_small_table(words, configurations, batch, kept, folder, capfd):
    assert main(["prune-table", "GPU.csv", "small.yaml", "--json", *words]) == 0
    content = json.loads(capfd.readouterr().out)
    assert (content["configurations"], content["batch"], content["kept"]) == (configurations, batch, kept)
    assert content["excluded"] == {"against the constraints": 1, "failed or without a time": 1}
    assert len(content["table"]) == kept


KEEP = "write 5%, 20, promise, or promise:0.05,0.95"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("missing.csv", "small.yaml"), "cannot read missing.csv: "),
        (("missing.json.gz", "small.yaml"), "cannot read missing.json.gz: "),
        (("GPU.csv", "convolutoin"), "no description 'convolutoin'; did you mean 'convolution'?"),
        (("GPU.csv", "missing.yaml"), "cannot read missing.yaml: "),
        (("GPU.csv", "gemm"), "GPU.csv has no tunable "),
        (("GPU.csv", "small.yaml", "--machine", "A10O-40GB"), "no machine is called 'A10O-40GB'"),
        (("GPU.csv", "small.yaml", "--out", "GPU.csv"), "cannot write to GPU.csv: "),
        *(
            (("GPU.csv", "small.yaml", "--keep", word), f"cannot read --keep '{word}'")
            for word in (
                "", "nonsense", "5 %", "%", "1.2.3%", "0", "0%", "101%", "nan%", "-5", "1.5", "promises", "promise:x",
                "promise:-1", "promise:nan", "promise:0.05,2", "promise:0.05,0.9,1",
            )
        ),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(words, message, folder, capfd):
    code = main(["prune-table", *words, "--json"])
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("perflex: error: ")
    assert err.count("\n") == 1
    assert message in err
    assert "--keep" not in words or KEEP in err
    assert {path.name for path in folder.iterdir()} == {"small.yaml", "GPU.csv"}
