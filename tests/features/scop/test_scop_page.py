"""The pages on Scop files: all fields stand there, and the examples are counted as they should be."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import loopy as lp
import msgspec
import numpy as np
import pytest

from perflex.__main__ import main
from perflex.features import count_features, extract_scop, scop_from_yaml
from perflex.features.scop import yaml as scop_yaml
from support.pages import TOP, blocks

if TYPE_CHECKING:
    from pathlib import Path


def scop_of(page: str) -> str:
    """Return the Scop that a page shows."""
    (found,) = [block.code for block in blocks(TOP / "docs" / page) if block.language == "yaml"]
    return found


SCHEMAS = {
    "File": scop_yaml._ScopFile,
    "Launches": scop_yaml._Launch,
    "Arrays": scop_yaml._Array,
    "Statements": scop_yaml._Statement,
    "Accesses": scop_yaml._Access,
    "Operations": scop_yaml._Operation,
    "Barriers": scop_yaml._Barrier,
}


@pytest.mark.parametrize("section", SCHEMAS)
def test_the_page_of_scops_has_each_field_and_whether_it_must_be_there(section: str) -> None:
    text = (TOP / "docs" / "reference" / "scop.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|.*\| (.*?) ?\|$", text.split(f"## {section}\n")[1].split("\n## ")[0], re.MULTILINE)
    named = {name: not default for names, default in rows for name in re.findall(r"`(\w+)`", names)}
    expected = {field.name: field.required for field in msgspec.structs.fields(SCHEMAS[section])}
    if section == "File":
        expected["schema"] = True
    if section == "Barriers":
        # What is as of a statement stands in one row.
        named, expected = dict.fromkeys(named), dict.fromkeys(expected)
    assert named == expected


def test_a_scop(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "transpose.yaml"
    path.write_text(scop_of("reference/scop.md"), encoding="utf-8")
    assert main(["features", str(path), "n=64", "--json"]) == 0
    found = {name: row["value"] for name, row in json.loads(capfd.readouterr().out).items()}
    assert found["f_mem_access_tag:aLD_global_float32_load_lstrides:{0:1;1:n}_gstrides:{0:16;1:16*n}"] == 64 * 64
    assert found["f_mem_access_global_float32_store_lstrides:{0:1;1:n}_gstrides:{0:16*n;1:16}"] == 64 * 64
    assert found["f_mem_access_local_float32_load_lstrides:{0:17;1:1}"] == 64 * 64 / 32
    assert (found["f_sync_barrier_local"], found["f_thread_groups"]) == (1, 16)
    assert main(["volumes", str(path), "n=4096", "--machine", "V100", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    # Each element of both arrays once.
    assert [found[f"f_vol_l2_l1_{way}"] for way in ("load", "store")] == pytest.approx([4 * 4096**2] * 2)


def test_the_scop_of_an_opencl_kernel_is_that_of_the_loopy_kernel() -> None:
    kernel = lp.make_kernel(
        "{[i, k]: 0 <= i, k < n}", "sums[i] = sum(k, a[i, k])", assumptions="n >= 1", lang_version=(2018, 2)
    )
    kernel = lp.split_iname(lp.add_dtypes(kernel, {"a": np.float32}), "i", 64, outer_tag="g.0", inner_tag="l.0")
    by_hand = scop_from_yaml(scop_of("howto/without_loopy.md"))
    for sizes in ({"n": 1000}, {"n": 64}, {"n": 1}):
        ours, loopy = (
            {counted.identifier: (counted.value, str(counted.certainty)) for counted in count_features(scop, sizes)}
            for scop in (by_hand, extract_scop(kernel))
        )
        assert ours == loopy


@pytest.mark.parametrize(
    ("found", "instead", "message"),
    [
        ("schedule: [0]", "order: [0]", "line 15, field statements[0].order: there is no such field"),
        ("space: local, ", "", "line 11, field arrays[2].space: it is missing"),
        ("- name: put", "- name: put\n  name: get", "the field 'name' stands here twice"),
        ("schedule: [0]", "schedule: &a [0]", "anchors and aliases are refused"),
        (
            "shape: [n, n], strides: [n, 1]",
            "shape: ['[m] -> { m }', n], strides: [n, 1]",
            "'m' is none of the parameters",
        ),
        ("n mod 16 = 0", "n mod = 0", "field assumptions: it is not isl notation"),
        ("16g1 + l1, 16g0 + l0", "1234567890123456g1 + l1, 16g0 + l0", "a number has more than 15 digits"),
        ("array: tile, direction: store", "array: pile, direction: store", "accesses 'pile', which is not declared"),
        ("space: local", "space: shared", "has address space 'shared'; use one of"),
        ("dtype: float32, shape: [16, 17]", "dtype: real, shape: [16, 17]", "a numpy type such as float32"),
        ("schedule: [0]", "schedule: [0, k, 1]", "needs a dimension for each of the 4 axes and 1 loops"),
        ("[16g1 + l1, 16g0 + l0]", "[16g1 + l1]", "'a' in 'fetch' has 1 subscripts, not 2"),
        ("{ [g0, g1, l0, l1] -> [l1, l0] }", "{ [g0, g1, l0] -> [0, l0] }", "'tile' in 'fetch' has 3 variables, not 4"),
        ("schedule: [0]", "launch: 1", "belongs to launch 1, but there are 1"),
    ],
)
def test_what_the_page_says_is_refused(
    found: str, instead: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text, path = scop_of("reference/scop.md"), tmp_path / "transpose.yaml"
    assert found in text
    path.write_text(text.replace(found, instead, 1), encoding="utf-8")
    assert main(["features", str(path), "n=64"]) == 2
    told = capfd.readouterr().err
    assert told.startswith(f"perflex: error: {path}")
    assert message in told
