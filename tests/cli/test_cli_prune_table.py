"""``perflex prune-table``: table, files, JSON, and what it cannot do; what `perflex prune` says of such tables."""

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


def run(*words, command="prune-table"):
    return CliRunner().invoke(app, [command, *words])


def test_table_and_files_of_a_described_kernel(space, tmp_path):
    words = (space, "convolution", "--samples", "60", "--analytic", "--keep", "5%")
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
    words = (space, "convolution", "--samples", "40", "--keep", "3", "--json")
    content = json.loads(run(*words).output)
    assert (content["configurations"], content["batch"], content["kept"]) == (200, 40, 3)
    assert set(content["errors"]) == {"analytic", "with the correction"}
    assert sum(content["weights"].values()) == pytest.approx(1)
    assert {"block_size_x", "predicted_ms", "analytic_ms", "dominates", "share"} <= set(content["table"][0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("missing.json", "gemm"), "cannot read missing.json"),
        (("x.json", "nonesuch"), "there is no description 'nonesuch'"),
        (("x.json",), "Missing argument 'description'"),
        (("x.json", "gemm", "--measure", "3"), "No such option: --measure"),
    ],
)
def test_what_cannot_be_read(words, message):
    found = run(*words)
    assert found.exit_code != 0
    assert message in " ".join((found.output + str(found.exception or "")).split())


@pytest.mark.parametrize(
    "words",
    [
        ("--space", "x.json", "--description", "gemm"),
        ("c.yaml", "--description", "gemm"),
        ("c.yaml", "x.json"),
        ("c.yaml", "x.csv.gz", "n=3"),
    ],
)
def test_tables_have_their_own_command(words):
    found = run(*words, command="prune")
    assert found.exit_code != 0
    assert "perflex prune-table TABLE DESCRIPTION" in str(found.exception)


@pytest.mark.parametrize("command", ["prune", "prune-table"])
def test_help_has_an_example(command):
    text = " ".join(run("--help", command=command).output.split())
    assert f"Example: perflex {command} " in text
    assert "--description" not in text
