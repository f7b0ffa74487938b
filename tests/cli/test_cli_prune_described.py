"""``perflex prune --description``: table, files, JSON, and combinations that make no sense."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from perflex.cli.app import app
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


def run(*words):
    return CliRunner().invoke(app, ["prune", *words])


def test_table_and_files_of_a_described_kernel(space, tmp_path):
    words = ("--space", space, "--description", "convolution", "--samples", "60", "--analytic", "--keep", "5%")
    found = run(*words, "--out", str(tmp_path))
    assert found.exit_code == 0, found.output
    assert "10 of 200 configurations of convolution kept, 60 measured" in found.output
    assert "a configuration within 5 % of the best known is kept" in found.output
    assert "geometric mean error, analytic" in found.output
    assert (tmp_path / "pruning.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "pruning.csv").open() as stream:
        assert sum(row["kept"] == "1" for row in csv.DictReader(stream)) == 10


def test_json_of_a_described_kernel(space):
    pytest.importorskip("sklearn")
    words = ("--space", space, "--description", "convolution", "--samples", "40", "--keep", "3", "--json")
    content = json.loads(run(*words).output)
    assert (content["configurations"], content["batch"], content["kept"]) == (200, 40, 3)
    assert set(content["errors"]) == {"analytic", "with the correction"}
    assert sum(content["weights"].values()) == pytest.approx(1)
    assert {"block_size_x", "predicted_ms", "analytic_ms", "dominates", "share"} <= set(content["table"][0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give a calibration file and SPACE.py:name, or --description and --space"),
        (("c.yaml",), "give a calibration file and SPACE.py:name"),
        (("--space", "x.json"), "--description is missing"),
        (("--description", "gemm"), "--space is missing"),
        (("c.yaml", "--space", "x.json", "--description", "gemm"), "c.yaml is too much"),
        (("--space", "x.json", "--description", "gemm", "--measure", "3"), "--measure goes only with a loopy space"),
        (("c.yaml", "s.py:space", "--samples", "3"), "--samples goes only with --description"),
        (("--space", "missing.json", "--description", "gemm"), "cannot read missing.json"),
        (("--space", "x.json", "--description", "nonesuch"), "there is no description 'nonesuch'"),
    ],
)
def test_combinations_that_make_no_sense(words, message):
    found = run(*words)
    assert found.exit_code != 0
    text = found.output + str(found.exception or "")
    assert message in " ".join(text.split())
