from __future__ import annotations

import numpy as np
import pytest
import yaml

from perflex.errors import FileFormatError, UnsupportedKernelError
from perflex.features import Target, content_hash, counts_of, extract_scop, parse_feature, scop_from_yaml, scop_to_yaml
from sample_kernels import matmul

TRANSPOSE = """
schema: perflex-scop/1
name: transpose
parameters: [n]
assumptions: "[n] -> { : n >= 1 and n mod 16 = 0 }"
launches:
- groups: ["floor(n/16)", "1/16*n"]
  items: [16, 16]
arrays:
- {name: a, space: global, dtype: float64, shape: [n, n], strides: [n, 1]}
- {name: b, space: global, dtype: float64, shape: [n, n], strides: [n, 1]}
- {name: tile, space: local, dtype: float64, shape: [16, 17], strides: [17, 1]}
statements:
- name: fetch
  domain: "[n] -> { [gid0, gid1, lid0, lid1] : 0 <= 16gid0 < n and 0 <= 16gid1 < n and 0 <= lid0, lid1 < 16 }"
  accesses:
  - {array: a, direction: load, relation: "{ [g0, g1, l0, l1] -> [16g1 + l1, 16g0 + l0] }", tag: aLD}
  - {array: tile, direction: store, relation: "{ [g0, g1, l0, l1] -> [l1, l0] }"}
- name: put
  domain: "[n] -> { [gid0, gid1, lid0, lid1] : 0 <= 16gid0 < n and 0 <= 16gid1 < n and 0 <= lid0, lid1 < 16 }"
  accesses:
  - {array: tile, direction: load, relation: "{ [g0, g1, l0, l1] -> [l0, l1] }"}
  - {array: b, direction: store, relation: "{ [g0, g1, l0, l1] -> [16g0 + l1, 16g1 + l0] }"}
  operations:
  - {kind: mul, dtype: float64, count: 2}
barriers:
- kind: local
  domain: "[n] -> { [gid0, gid1, lid0, lid1] : 0 <= 16gid0 < n and 0 <= 16gid1 < n and 0 <= lid0, lid1 < 16 }"
"""


def test_hand_written_description() -> None:
    scop = scop_from_yaml(TRANSPOSE)
    values = {
        "f_mem_access_tag:aLD": 64 * 64,
        "f_mem_access_global_float64_store_lstrides:{0:1;1:n}_gstrides:{0:16*n;1:16}": 64 * 64,
        "f_mem_access_local_float64_load_lstrides:{0:17}": 64 * 64 / 32,
        "f_op_float64_mul": 2 * 64 * 64 / 32,
        "f_sync_barrier_local": 1,
        "f_thread_groups": 16,
    }
    for identifier, value in values.items():
        assert parse_feature(identifier).value(scop, {"n": 64}, Target()) == value, identifier


@pytest.mark.parametrize("prefetch", [True, False])
def test_round_trip(prefetch: bool) -> None:
    scop = extract_scop(matmul(prefetch=prefetch))
    text = scop_to_yaml(scop)
    copy = scop_from_yaml(text)
    assert copy == scop
    assert hash(copy) == hash(scop)
    assert scop_to_yaml(copy) == text
    assert content_hash(copy) == content_hash(scop)


def test_content_hash_changes_with_every_part() -> None:
    base = yaml.safe_load(TRANSPOSE)
    hashes = {content_hash(scop_from_yaml(TRANSPOSE))}
    edits = [
        lambda d: d.update(name="other"),
        lambda d: d["launches"][0].update(items=[16, 8]),
        lambda d: d["arrays"][0].update(dtype="float32"),
        lambda d: d["arrays"][2].update(strides=[16, 1]),
        lambda d: d["statements"][0]["accesses"][0].update(tag="other"),
        lambda d: d["statements"][0]["accesses"][0].update(relation="{ [g0, g1, l0, l1] -> [16g1 + l1, l0] }"),
        lambda d: d["statements"][1]["operations"][0].update(count=3),
        lambda d: d["statements"][1].update(guarded=True),
        lambda d: d.update(barriers=[]),
        lambda d: d.update(assumptions="[n] -> { : n >= 1 and n mod 32 = 0 }"),
    ]
    for edit in edits:
        document = yaml.safe_load(yaml.safe_dump(base))
        edit(document)
        hashes.add(content_hash(scop_from_yaml(yaml.safe_dump(document))))
    assert len(hashes) == len(edits) + 1


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d.pop("schema"), "there is no field 'schema'"),
        (lambda d: d.update(schema="perflex-scop/9"), "version '9' of perflex-scop is not version 1"),
        (lambda d: d.pop("launches"), "field launches: it is missing"),
        (lambda d: d.update(arrays=3), "field arrays: a list must stand here, not 3"),
        (lambda d: d["arrays"][0].pop("dtype"), r"field arrays\[0\].dtype: it is missing"),
        (
            lambda d: d["statements"][0].update(domain="{ [i : }"),
            r"field statements\[0\].domain: it is not isl notation",
        ),
        (lambda d: d["launches"][0].update(groups=["n +"]), r"field launches\[0\].groups\[0\]: it is not isl notation"),
        (lambda d: d["statements"][0]["accesses"][0].update(array="zz"), "accesses 'zz', which is not declared"),
        (
            lambda d: d["statements"][0]["accesses"][0].update(direction="read"),
            r"direction: it must be one of 'load', 'store', not 'read'",
        ),
        (lambda d: d["arrays"][0].update(space="shared"), "address space 'shared'; use one of global"),
        (lambda d: d["statements"][0].update(launch=4), "belongs to launch 4, but there are 1"),
        (
            lambda d: d["statements"][0].update(domain="[n] -> { [i] : 0 <= i < n }"),
            "needs a dimension for each of the 4",
        ),
    ],
)
def test_faulty_descriptions_name_the_field(edit: object, message: str) -> None:
    document = yaml.safe_load(TRANSPOSE)
    edit(document)
    with pytest.raises((FileFormatError, UnsupportedKernelError), match=message):
        scop_from_yaml(yaml.safe_dump(document))


def test_not_yaml_and_hostile_yaml() -> None:
    with pytest.raises(FileFormatError, match=r"the Scop description, line [12]"):
        scop_from_yaml("{ unclosed")
    with pytest.raises(FileFormatError, match=r"line 1: the tag .* is refused"):
        scop_from_yaml("!!python/object/apply:os.system ['true']")
    with pytest.raises(FileFormatError, match="no mapping with a field 'schema'"):
        scop_from_yaml("just text")


@pytest.mark.parametrize(
    ("subscript", "stride", "group_stride"),
    [
        ("i", "1", "32"),
        ("n - 1 - i", "-1", "-32"),
        ("3*i + 2", "3", "96"),
        ("i % 4", None, "0"),
        ("i // 2", None, "16"),
        ("i // 32", "0", "1"),
        ("i % 32", "1", "0"),
        ("(i % 32) * 2 + i // 32", "2", "1"),
        ("0", "0", "0"),
    ],
)
def test_strides_of_quasi_affine_subscripts(subscript: str, stride: str | None, group_stride: str) -> None:
    import loopy as lp

    kernel = lp.make_kernel(
        "{[i]: 0<=i<n}",
        f"out[i] = x[{subscript}]",
        [lp.GlobalArg("x", np.float32, shape=("4*n",)), lp.GlobalArg("out", np.float32, shape=("n",)), ...],
        target=lp.PyOpenCLTarget(),
        lang_version=(2018, 2),
    )
    kernel = lp.assume(kernel, "n mod 32 = 0 and n >= 64")
    kernel = lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")
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
