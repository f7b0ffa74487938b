"""Su's closed forms: Table 2 row by row, chunks along z, and what is no stencil of theirs."""

import re
from dataclasses import replace

import pytest

from perflex import load_machine
from perflex.errors import UnsupportedKernelError
from perflex.features import extract_scop, scop_from_yaml
from perflex.features.gpu.su_stencils import recognise_stencil, su_volumes
from uipick import ALL_GENERATORS, KernelCollection

K20 = load_machine("K20")
GRID = {"nx": 256, "ny": 256, "nz": 256}

# Su et al. (2015), Table 2: row, our name, and the value that the formulas give at full precision. Printed are 1.83 for
# row 17 (over delta), 0.512 for row 24 (over epsilon), 1.25 GB, 844 MB (cut, not rounded) and 534 MB.
TABLE_2 = [
    (6, "items_per_group", 128), (7, "items", 16777216), (8, "groups", 131072), (12, "aligned_loads", 5),
    (13, "misaligned_loads", 2), (14, "item_loads", 9), (15, "item_stores", 1), (16, "group_loads_net", 704),
    (17, "smx_miss_ratio", 1.8333333333333333 * 0.01), (18, "group_loads", 716.9066666666667),
    (19, "group_stores", 128), (20, "waves", 631), (21, "width_y", 106), (22, "height_z", 3),
    (23, "wave_loads_net", 83952), (24, "l2_miss_ratio", 0.51240234375 * 0.01), (25, "wave_loads", 84382.17201562501),
    (26, "wave_stores", 26624), (27, "v_smx", 1.25 * 2**30), (28, "v_l2", 844.9066666666668 * 2**20),
    (29, "v_gm", 534.4001353596449 * 2**20),
]  # fmt: skip


def scop_of(points=7, variant="plain", chunk=1, lsize=(32, 4, 1), dtype="float64", sizes=GRID):
    tags = [
        "stencil3d", f"points:{points}", f"variant:{variant}", f"dtype:{dtype}", f"chunk:{chunk}", "groups_fit:True",
        *(f"lsize_{axis}:{extent}" for axis, extent in enumerate(lsize)),
        *(f"{name}:{value}" for name, value in sizes.items()),
    ]  # fmt: skip
    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
    return extract_scop(kernel.kernel)


@pytest.fixture(scope="module")
def baseline():
    return su_volumes(recognise_stencil(scop_of(), GRID), K20)


@pytest.mark.parametrize(("row", "name", "value"), TABLE_2)
def test_table_2_row_by_row(baseline, row, name, value):
    assert getattr(baseline, name) == pytest.approx(value, rel=1e-12), f"row {row}"


def test_table_2_occupancy_rows(baseline):
    held = baseline.residency
    assert (held.occupancy, held.groups_per_unit, held.wave_groups) == (1.0, 16, 208)


@pytest.mark.parametrize(
    ("line", "net", "volume"), [(32, 480, 614.0), (128, 576, 712.64), (256, 704, 844.9066666666667)]
)
def test_row_16_depends_on_the_line_size_that_no_table_states(line, net, volume):
    found = su_volumes(recognise_stencil(scop_of(), GRID), replace(K20, su_line_bytes=line))
    assert found.group_loads_net == net
    assert found.v_l2 == pytest.approx(volume * 2**20, rel=1e-9)


# Section 3.5: loads 7c+2, stores c, values per work-group 448c+256 (lines of 256 B) or 320c+256 (128 B).
@pytest.mark.slow
@pytest.mark.parametrize("variant", ["plain", "column"])
@pytest.mark.parametrize("chunk", [2, 4, 16])
def test_chunks_along_z(chunk, variant):
    stencil = recognise_stencil(scop_of(variant=variant, chunk=chunk), GRID)
    assert (stencil.chunk, stencil.grid, stencil.group) == (chunk, (256, 256, 256), (32, 4, 1))
    found = su_volumes(stencil, K20)
    assert (found.aligned_loads, found.misaligned_loads) == (3 * chunk + 2, 2 * chunk)
    assert (found.item_loads, found.item_stores) == (7 * chunk + 2, chunk)
    assert found.group_loads_net == 448 * chunk + 256
    assert su_volumes(stencil, replace(K20, su_line_bytes=128)).group_loads_net == 320 * chunk + 256
    assert found.v_smx == pytest.approx((1 + 1 / (4 * chunk)) * 2**30)
    first = found.residency.groups_per_unit * found.group_loads_net * 8 / 49152 * 0.01
    assert found.smx_miss_ratio == pytest.approx(first * 3 / (chunk + 2))


def test_chunks_whose_values_fit_the_storage_follow_equation_8():
    large = replace(K20, l1_bytes=2**24)
    found = su_volumes(recognise_stencil(scop_of(chunk=4), GRID), large)
    assert found.smx_miss_ratio == pytest.approx(16 * 2048 * 8 / 2**24 * 0.01)


# Two arrays: u with its six neighbours and itself, g at the point only (Su's 7PT-2 reads the like).
SECOND = """
schema: perflex-scop/2
name: two
parameters: [n]
assumptions: "[n] -> { : n >= 32 and n mod 32 = 0 }"
launches:
- groups: ["[n] -> { 1/32*n }", "[n] -> { 1/4*n }", "n"]
  items: [32, 4]
arrays:
- {name: u, space: global, dtype: float64, shape: [n + 2, n + 2, n + 2], strides: ["(n+2)*(n+2)", n + 2, 1]}
- {name: g, space: global, dtype: float64, shape: [n, n, n], strides: [n*n, n, 1]}
- {name: v, space: global, dtype: float64, shape: [n, n, n], strides: [n*n, n, 1]}
statements:
- name: s
  domain: "[n] -> { [g0, g1, g2, l0, l1] : 0 <= 32g0 < n and 0 <= 4g1 < n and 0 <= g2 < n and 0 <= l0 < 32 and
    0 <= l1 < 4 }"
  accesses:
  - {array: u, direction: load, relation: "{ [a, b, c, d, e] -> [c + 1, 4b + e + 1, 32a + d] }"}
  - {array: u, direction: load, relation: "{ [a, b, c, d, e] -> [c + 1, 4b + e + 1, 32a + d + 2] }"}
  - {array: u, direction: load, relation: "{ [a, b, c, d, e] -> [c + 1, 4b + e, 32a + d + 1] }"}
  - {array: u, direction: load, relation: "{ [a, b, c, d, e] -> [c + 1, 4b + e + 2, 32a + d + 1] }"}
  - {array: u, direction: load, relation: "{ [a, b, c, d, e] -> [c, 4b + e + 1, 32a + d + 1] }"}
  - {array: u, direction: load, relation: "{ [a, b, c, d, e] -> [c + 2, 4b + e + 1, 32a + d + 1] }"}
  - {array: g, direction: load, relation: "{ [a, b, c, d, e] -> [c, 4b + e, 32a + d] }"}
  - {array: v, direction: store, relation: "{ [a, b, c, d, e] -> [c, 4b + e, 32a + d] }"}
"""


@pytest.mark.parametrize(("old", "new", "reason"), [
    ("[c, 4b + e, 32a + d] }", "[c, 4b + e, 32a + 31 - d] }", "moves through its array otherwise"),
    ("[c + 2, 4b + e + 1, 32a + d + 1]", "[c + 1, 4b + e + 1, 32a + d + 1]", "unevenly about its own along z"),
    ("0 <= l0 < 32", "1 <= l0 < 32", "do not divide the grid evenly"),
    ("{name: g, space: global, dtype: float64", "{name: g, space: global, dtype: float32", "different sizes"),
    ("strides: [n*n, n, 1]}\n- {name: v", "strides: [n*n, n, 2]}\n- {name: v", "array with three axes"),
    ("direction: store", "direction: load", "both load and store"),
    ('d] }"}\n  - {array: v', 'floor(d/2)] }"}\n  - {array: v', "not affine"),
])  # fmt: skip
def test_what_is_no_such_stencil_is_refused_with_the_reason(old, new, reason):
    assert old in SECOND
    scop = scop_from_yaml(SECOND.replace(old, new, 1))
    with pytest.raises(UnsupportedKernelError, match=re.escape(reason)):
        recognise_stencil(scop, {"n": 64})
