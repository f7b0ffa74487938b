"""Descriptions written by hand: what they mean, what is refused, and the page that tells of them."""

import json
import re
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from perflex.__main__ import main
from perflex.errors import FileFormatError, UnsupportedKernelError
from perflex.features import (
    Target,
    content_hash,
    count_features,
    counts_of,
    extract_scop,
    parse_feature,
    scop_from_yaml,
    scop_to_yaml,
)
from perflex.features.scop import scop as scops
from sample_kernels import matmul
from support.every_feature import everything
from support.pages import TOP, blocks
from support.written_kernels import written


def scop_of(page):
    """Return the Scop that a page shows."""
    (found,) = [block.code for block in blocks(TOP / "docs" / page) if block.language == "yaml"]
    return found


TRANSPOSE = scop_of("reference/scop.md")


@pytest.mark.parametrize("prefetch", [True, False])
def test_round_trip(prefetch):
    scop = extract_scop(matmul(prefetch=prefetch))
    text = scop_to_yaml(scop)
    copy = scop_from_yaml(text)
    assert copy == scop
    assert hash(copy) == hash(scop)
    assert scop_to_yaml(copy) == text
    assert content_hash(copy) == content_hash(scop)


def test_content_hash_changes_with_every_part():
    hashes = {content_hash(scop_from_yaml(TRANSPOSE))}
    edits = [
        ("name: transpose", "name: other"), ("items: [16, 16]", "items: [16, 8]"), ("float32", "float64"),
        ("strides: [17, 1]", "strides: [16, 1]"), ("aLD", "other"), ("16g1 + l1, 16g0 + l0]", "16g1 + l1, l0]"),
        ("order: [2]", "order: [2]\n  operations: [{kind: mul, dtype: float32}]"),
        ("order: [2]", "order: [2]\n  guarded: true"), (TRANSPOSE[TRANSPOSE.index("barriers") :], ""),
        ("n mod 16 = 0", "n mod 32 = 0"),
    ]  # fmt: skip
    for found, instead in edits:
        assert found in TRANSPOSE
        hashes.add(content_hash(scop_from_yaml(TRANSPOSE.replace(found, instead, 1))))
    assert len(hashes) == len(edits) + 1


@pytest.mark.parametrize(("text", "message"), [
    ("{ unclosed", r"the Scop description, line [12]"), ("just text", "no mapping with a field 'schema'"),
    ("!!python/object/apply:os.system ['true']", r"line 1: the tag .* is refused"),
])  # fmt: skip
def test_not_yaml_and_hostile_yaml(text, message):
    with pytest.raises(FileFormatError, match=message):
        scop_from_yaml(text)


@pytest.mark.parametrize(("subscript", "stride", "group_stride"), [
    ("i", "1", "32"), ("n - 1 - i", "-1", "-32"), ("3*i + 2", "3", "96"), ("i % 4", None, "0"),
    ("i // 2", None, "16"), ("i // 32", "0", "1"), ("i % 32", "1", "0"), ("(i % 32) * 2 + i // 32", "2", "1"),
    ("0", "0", "0"),
])  # fmt: skip
def test_strides_of_quasi_affine_subscripts(subscript, stride, group_stride):
    data, grid = "x: float32[4*n]; out: float32[n]", "i/32: g.0, l.0"
    kernel = written("{[i]: 0<=i<n}", f"out[i] = x[{subscript}]", data, grid, assume="n mod 32 = 0 and n >= 64")
    load = counts_of(extract_scop(kernel)).accesses[0]
    assert load.access.direction == "load"
    assert [None if s is None else str(s) for s in load.local_strides] == [stride]
    assert [None if s is None else str(s) for s in load.group_strides] == [group_stride]
    # Against brute force: the distinct elements that the subscript reaches.
    n = 96
    i = np.arange(n)
    reached = len(set(np.asarray(eval(subscript, {"i": i, "n": n}) + 0 * i).tolist()))
    assert load.footprint.evaluate({"n": n}) == reached
    assert load.is_uniform == (stride == "0")


GRID = "0 <= g < n and 0 <= l < 32"


@dataclass(frozen=True)
class File:
    """A Scop file of a statement in two of three loops, and of what is added."""

    place: str = "[0, 1] [0, 0, 0]"
    loops: str = "{name: i}, {name: j, parent: 0}, {name: k}"
    kind: str = "add"
    statement: str = ""
    more: str = ""

    @property
    def text(self):
        launch = f"- {{groups: [n], items: [32], loops: [{self.loops}]}}\n"
        head = f"schema: perflex-scop/2\nname: sums\nparameters: [n]\nlaunches:\n{launch}arrays: []\nstatements:\n"
        operations = f'  operations: [{{kind: "{self.kind}", dtype: float32}}]\n'
        return head + entry("name: add", self.place, "i, j") + operations + self.statement + self.more


def entry(head, place, names=""):
    """Return a statement or barrier with the lists of its loops and order, in loops of some names."""
    dims, limits = (f", {names}", f" and 0 <= {names} < n") if names else ("", "")
    loops, order = place.split("] ")
    domain = f"[n] -> {{ [g, l{dims}] : {GRID}{limits} }}"
    return f'- {head}\n  domain: "{domain}"\n  loops: {loops}]\n  order: {order}\n'


@pytest.mark.parametrize("kind", ["madd", "sqrt", "atomic", "call:my_function"])
def test_known_operations_and_calls_are_read(kind):
    assert scop_from_yaml(File(kind=kind).text).statements[0].operations[0].kind == kind


REFUSED = {
    "a misspelt operation": (File(kind="mad"),
        r"statement 'add' of kernel 'sums': 'mad' is an unknown .* did you mean m"),
    "an unknown operation": (File(kind="plus"), "'plus' is an unknown operation; known are add, mul, madd, div"),
    "a call of nothing": (File(kind="call:"), "'call:' is an unknown operation; .* or call:NAME for a function of"),
    "no name": (File(loops="{name: 2j}"), r"field launches\[0\].loops\[0\].name"),
    "no kind": (File(loops="{name: i, kind: vector}"), "it must be one of 'host', 'interleaved', 'loop', 'unrolled'"),
    "no average": (File(loops="{name: i, average: 0}"), "a positive number such as 5/6 must stand here, not 0"),
    "in a later loop": (File(loops="{name: i, parent: 1}, {name: j}"), "launch 0 .* loop 0, 'i', has parent 1; list"),
    "around the host's": (File(loops="{name: i}, {name: j, parent: 0, kind: host}"), r"'j' \(host\), cannot be in 'i'"),
    "in copies": (File(loops="{name: i, kind: interleaved}, {name: j, parent: 0}"), r"cannot be in 'i' \(interl"),
    "not the host's": (File(loops="{name: i}, {name: j, parent: 0}, {name: k, kind: host}"),
        r"statement 'add' .* its loops \[0, 1\] do not begin with the host's, \[2\]"),
    "no such loop": (File("[0, 3] [0, 0, 0]"), "it is in loop 3, but its launch has 3"),
    "a part of its loops": (File("[1] [0, 0]"), r"its loops \[1\] are not those around loop 1; give all of them"),
    "other order": (File("[1, 0] [0, 0, 0]"), r"its loops \[1, 0\] are not those around loop 0"),
    "short order": (File("[0, 1] [0, 0]"), r"its order \[0, 0\] needs 3 numbers, a place in the launch and one"),
    "no loop": (File("[0] [0, 0]"), "needs a dimension for each of the 2 axes and 1 loops, which is 3, not 4"),
    "a loop's place": (File(more=entry("name: b", "[] [0]")), r"'b' .* order \[0\] has the place of loop 0 \('i'\); "),
    "two loops": (File(more=entry("name: b", "[2] [0, 1]", "k")), r"order \[0, 1\] has the place of loop 0 \('i'\)"),
    "two places": (File(more=entry("name: b", "[0] [1, 1]", "i")), r"has loop 0 \('i'\) at 1, others have it at 0"),
    "a barrier's place": (File(more="barriers:\n" + entry("kind: local", "[0, 1] [0, 0, 0]", "i, j")),
        r"barrier 0 .* has the place of a statement; number"),
    "lanes": (File(statement="  lanes: 4\n"), "a dimension for each of the 2 axes and 2 loops, and lanes"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_orders_and_loops_that_make_no_sense_are_refused(case):
    file, message = REFUSED[case]
    with pytest.raises((FileFormatError, UnsupportedKernelError), match=message) as caught:
        scop_from_yaml(file.text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file", [
    File(more=entry("name: behind", "[] [1]")), File(more=entry("name: in another loop", "[2] [1, 0]", "k")),
    File(more=entry("name: in the same loop", "[0, 1] [0, 0, 1]", "i, j")), File(more=entry("name: no order", "[] []")),
    File(more=entry("name: at one place", "[0, 1] [0, 0, 0]", "i, j")), File(more=entry("name: loops", "[2] []", "k")),
    File(loops="{name: i, kind: host}, {name: j, parent: 0, kind: unrolled, average: 5/6}"),
    File(loops="{name: i}, {name: i, parent: 0, kind: interleaved}, {name: lid0}"),
    File(loops="{name: i}, {name: j, parent: 0, kind: interleaved}, {name: j, parent: 0, kind: interleaved}",
        more=entry("name: other copies", "[0, 2] [0, 0, 0]", "i, j")),
])  # fmt: skip
def test_what_makes_sense_is_read(file):
    assert scop_from_yaml(file.text).statements[0].name == "add"


SCHEMAS = {
    "File": scops.Scop, "Launches": scops.Launch, "Arrays": scops.Array, "Statements": scops.Statement,
    "Accesses": scops.Access, "Operations": scops.Operation, "Barriers": scops.Barrier,
    "Loops": scops.Loop,
}  # fmt: skip


@pytest.mark.parametrize("section", SCHEMAS)
def test_the_page_of_scops_has_each_field_and_whether_it_must_be_there(section):
    text = (TOP / "docs" / "reference" / "scop.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|.*\| (.*?) ?\|$", text.split(f"## {section}\n")[1].split("\n## ")[0], re.MULTILINE)
    named = {name: not default for names, default in rows for name in re.findall(r"`(\w+)`", names)}
    expected = {field.name: field.required for field in msgspec.structs.fields(SCHEMAS[section])}
    if section == "File":
        expected |= {"schema": True, "assumptions": False}
    if section == "Barriers":
        # What is as of a statement stands in one row.
        named, expected = dict.fromkeys(named), dict.fromkeys(expected)
    assert named == expected


def test_a_scop(tmp_path, capfd):
    path = tmp_path / "transpose.yaml"
    path.write_text(TRANSPOSE, encoding="utf-8")
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


def test_textures_are_counted_like_global_memory():
    texture = TRANSPOSE.replace("name: a, space: global", "name: a, space: texture")
    one, other = (dict(everything(scop_from_yaml(text), {"n": 64})) for text in (TRANSPOSE, texture))
    assert other == {name.replace("_global_float32_load", "_texture_float32_load"): one[name] for name in one} != one
    counts = {"access_global_load": 0, "access_texture": 64 * 64, "access_texture_float32_load": 64 * 64}
    for name, count in {**counts, "footprint_global_load": 0, "footprint_texture": 64 * 64}.items():
        assert parse_feature(f"f_mem_{name}").value(scop_from_yaml(texture), {"n": 64}, Target()) == count


def test_barriers_of_sub_groups():
    both = TRANSPOSE + TRANSPOSE[TRANSPOSE.index("- kind: local") :].replace("local", "sub_group").replace("[1]", "[3]")
    found = dict(everything(scop_from_yaml(both), {"n": 64}))
    assert [found[f"32 f_sync_barrier_{kind}"] for kind in ("local", "sub_group")] == [1, 1]


def test_the_scop_of_an_opencl_kernel_is_that_of_the_loopy_kernel():
    data = "a: float32[n, n]; sums: float32[n]"
    kernel = written("{[i, k]: 0 <= i, k < n}", "sums[i] = sum(k, a[i, k])", data, "i/64: g.0, l.0")
    by_hand = scop_from_yaml(scop_of("howto/without_loopy.md"))
    for sizes in ({"n": 1000}, {"n": 64}, {"n": 1}):
        ours, loopy = (
            {counted.identifier: (counted.value, str(counted.certainty)) for counted in count_features(scop, sizes)}
            for scop in (by_hand, extract_scop(kernel))
        )
        assert ours == loopy


@pytest.mark.parametrize(("found", "instead", "message"), [
    ("schema: perflex-scop/2\n", "", "there is no field 'schema'"),
    ("scop/2", "scop/1", "version '1' of perflex-scop is not version 2"),
    ("launches:", "launched:", "field launched: there is no such field"),
    (TRANSPOSE[TRANSPOSE.index("barriers") :], "barriers: 3\n", "field barriers: a list must stand here, not 3"),
    ('"floor(n/16)"', '"n +"', "field launches[0].groups[0]: it is not isl notation"),
    ("direction: load", "direction: read", "direction: it must be one of 'load', 'store', not 'read'"),
    ("order: [0]", "schedule: [0]", "line 15, field statements[0].schedule: there is no such field"),
    ("space: local, ", "", "line 11, field arrays[2].space: it is missing"),
    ("- name: put", "- name: put\n  name: get", "the field 'name' stands here twice"),
    ("order: [0]", "order: &a [0]", "anchors and aliases are refused"),
    ("shape: [n, n], strides", "shape: ['[m] -> { m }', n], strides", "'m' is none of the parameters"),
    ("n mod 16 = 0", "n mod = 0", "field assumptions: it is not isl notation"),
    ("16g1 + l1, 16g0 + l0", "1234567890123456g1 + l1, 16g0 + l0", "a number has more than 15 digits"),
    ("array: tile, direction: store", "array: pile, direction: store", "accesses 'pile', which is not declared"),
    ("space: local", "space: shared", "has address space 'shared'; use one of"),
    ("dtype: float32, shape: [16, 17]", "dtype: real, shape: [16, 17]", "a numpy type such as float32"),
    ("order: [0]", "order: [0, 1]", "its order [0, 1] needs 1 numbers"),
    ("[16g1 + l1, 16g0 + l0]", "[16g1 + l1]", "kernel 'transpose': the access to 'a' has 1 subscripts, not 2"),
    ("{ [g0, g1, l0, l1] -> [l1, l0] }", "{ [g0, g1, l0] -> [0, l0] }", "the access to 'tile' has 3 variables, not 4"),
    ("{ [g0, g1, l0, l1] -> [l1, l0] }", "{ S[g0, g1, l0, l1] -> [l1, l0] }", "tuples must have no names"),
    ("order: [0]", "launch: 1", "belongs to launch 1, but there are 1"),
])  # fmt: skip
def test_what_the_page_says_is_refused(found, instead, message, tmp_path, capfd):
    path = tmp_path / "transpose.yaml"
    assert found in TRANSPOSE
    path.write_text(TRANSPOSE.replace(found, instead, 1), encoding="utf-8")
    assert main(["features", str(path), "n=64"]) == 2
    told = capfd.readouterr().err
    assert told.startswith(f"perflex: error: {path}")
    assert message in told
