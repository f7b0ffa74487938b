"""Volumes of launches in loops, at the edge of what kernels do, and of triangles; the work-groups that are resident."""

import re
from dataclasses import replace

import islpy as isl
import loopy as lp
import pytest
from msgspec import structs

from perflex import estimate_ecm, estimate_volumes, load_machine, using_machine
from perflex.errors import MachineError, UnsupportedKernelError
from perflex.features import (
    Access,
    Array,
    QuasiPolynomial,
    Target,
    extract_scop,
    kernel_feature_values,
    parse_feature,
    scop_from_yaml,
    scop_to_yaml,
)
from perflex.features.cpu.read_nests import read_nests
from perflex.features.cpu.stream_groups import blocked_nests
from perflex.features.families.arithmetic import INSTRUCTION_FEATURES
from perflex.features.families.peaks import PEAKS
from perflex.features.families.simd import SIMD
from perflex.features.polynomials.cardinality import TooManyOperationsError
from support.uneven_kernels import Part, UnevenKernel
from support.volume_kernels import one_axis
from support.written_kernels import written

GRID, FITS = "i/128: g.0, l.0; k/128: g.0, l.0", "n mod 128 = 0 and n >= 128"


FIRST, SECOND = "for i\n  y[i] = x[i]*2 {id=a}\nend", "for k\n  z[k] = w[k] + 1 {id=c%s}\nend"
READ = "for k\n  z[k] = z[k] + y[n-1-k] {id=c, dep=bar}\nend"


def steps(number=None):
    """Two launches with an own array each way, `number` times in a loop of the host; None is once, without one."""
    text, domains = f"{FIRST}\n... gbarrier {{id=bar, dep=a}}\n{READ}", ["{[i]: 0<=i<n}", "{[k]: 0<=k<n}"]
    if number is not None:
        domains.append(f"{{[s]: 0<=s<{number}}}")
        text = f"for s\n{text}\n... gbarrier {{id=again, dep=c}}\nend"
    return extract_scop(written(domains, text, "x, y, z: float32[n]", GRID, assume=FITS))


def test_waves_of_several_launches_add_up_and_weigh_what_is_no_volume():
    """A large launch and a small one: beside the two alone, and the feature, which asks no volumes."""
    large, small = "{[i]: 0<=i<n}", "{[k]: 0<=k<256}"
    arrays, given = ("x, y: float32[n]", "z, w: float32[256]"), {"n": 1 << 24}
    text = f"{FIRST}\n... gbarrier {{id=bar, dep=a}}\n{SECOND % ', dep=bar'}"
    both = written([large, small], text, "; ".join(arrays), GRID, assume=FITS)
    grids = GRID.split(";")
    alone = [
        written([large], FIRST, arrays[0], grids[0], assume=FITS),
        written([small], SECOND % "", arrays[1], grids[1], assume="1 = 1"),
    ]
    first, second = (estimate_volumes(one, sizes, "V100") for one, sizes in zip(alone, (given, {}), strict=True))
    found = estimate_volumes(both, given, "V100")
    (feature,) = kernel_feature_values(["f_waves"], both, given, machine="V100").values()
    assert found.waves == first.waves + second.waves == feature
    assert second.waves < 0.01 < 0.99 * first.oversub_l2 < found.oversub_l2 < first.oversub_l2
    assert found.loading_waves == pytest.approx(first.waves + 1)


def test_launches_that_the_host_never_comes_to_move_nothing():
    found = estimate_volumes(steps("m"), {"n": 1024, "m": 0}, "V100")
    assert (found.waves, found.total.l1_load) == (0, 0)


@pytest.mark.parametrize("feature", ["f_waves", "f_vol_dram_load", "f_txn_l1", "f_peak_dram", "f_su_v_l2"])
def test_machines_that_are_no_gpus_are_refused(feature):
    with pytest.raises(MachineError, match="Gold-6248 is a CPU"):
        kernel_feature_values([feature], steps(1), {"n": 1024}, machine="Gold-6248")


def test_loops_that_cannot_be_counted_are_refused(monkeypatch):
    """How often something is launched has to be a formula: the description holds nothing else."""

    def too_many(*_):
        raise TooManyOperationsError

    monkeypatch.setattr("perflex.features.from_loopy.extraction.card", too_many)
    with pytest.raises(UnsupportedKernelError, match="the loops s around a launch are too complex to count; simplify"):
        steps(7)


@pytest.mark.parametrize("number", [2, 5])
def test_as_often_as_the_loop_runs(number):
    one, many = steps(1), steps(number)
    assert all((launch.loops[0].name, launch.loops[0].kind) == ("s", "host") for launch in many.launches)
    assert scop_from_yaml(scop_to_yaml(many)).launches == many.launches
    sizes = {"n": 8192}
    once, often = (estimate_volumes(scop, sizes, load_machine("V100")).features() for scop in (one, many))
    for identifier in ("f_l1_wavefronts", "f_vol_l2_l1_load", "f_vol_dram_load", "f_vol_dram_store"):
        assert often[identifier] == pytest.approx(number * once[identifier])
    target = Target(machine=load_machine("V100"))
    for identifier in ("f_txn_global", "f_txn_l1", "f_txn_l2", "f_inst_ldst_global"):
        feature = parse_feature(identifier)
        assert feature.value(many, sizes, target) == pytest.approx(number * feature.value(one, sizes, target))
    # 64 KiB of a launch do not stay in 32 KiB of L1; all three arrays do in L2.
    once, often = (estimate_ecm(scop, sizes, "clx") for scop in (one, many))
    assert often.iterations == number * once.iterations
    for level in ("L1", "L2"):
        assert often.level(level).launch_load_bytes == pytest.approx(number * once.level(level).launch_load_bytes)
    assert often.level("L3").launch_load_bytes == 0


def test_launches_in_a_loop_do_each_time_what_they_do_without_it():
    chains = ("f_chain_float32_add", "f_chain_float32_add_after:2")
    names = (*INSTRUCTION_FEATURES, *SIMD.examples, *PEAKS.examples, *chains)
    found = [kernel_feature_values(names, one, {"n": 1 << 16}, 32, machine="V100") for one in (steps(), steps(40))]
    each = {name: float(value) for name, value in found[0].items() if name != "f_inst_predication"}
    assert {name: found[1][name] for name in each} == pytest.approx({name: 40 * value for name, value in each.items()})
    # By hand: each sub-group of both launches ends once; a chain ends with its launch.
    assert each["f_inst_control"] == 2 * (1 << 16) / 32
    assert each["f_simd_item_vector"] == 2 * (1 << 16) / 32
    assert each["f_chain_float32_add"] == 0


# Of 64 launches, 0 to 63: which elements each stores, and what part of the sectors one that stands for all may miss.
@pytest.mark.parametrize(("condition", "stored", "within"), [
    ("s == 0", lambda s, n: range(n if s == 0 else 0), 0), ("s == 63", lambda s, n: range(n if s == 63 else 0), 0),
    ("s % 10 == 3", lambda s, n: range(n if s % 10 == 3 else 0), 0),
    ("i > 16*s", lambda s, n: range(16 * s + 1, n), 0.01),
    ("i >= 16*s and i < 32*s + 64", lambda s, n: range(16 * s, min(n, 32 * s + 64)), 0.02),
])  # fmt: skip
def test_launches_that_do_more_and_less_count_together(condition, stored, within):
    text = f"""
    for s, i
        if {condition}
            y[i] = x[i]*2 {{id=a}}
        end
        ... gbarrier {{id=bar, dep=a}}
    end"""
    domains, n = ["{[s]: 0<=s<64}", "{[i]: 0<=i<n}"], 1024
    scop = extract_scop(written(domains, text, "x, y: float32[n]", GRID.partition(";")[0], assume=FITS))
    sectors = sum(len({element // 8 for element in stored(s, n)}) for s in range(64))
    found = estimate_volumes(scop, {"n": n}, "V100")
    assert found.total.l1_load == pytest.approx(32 * sectors, rel=within)
    assert found.total.l2_l1_store == pytest.approx(32 * sectors, rel=within)
    (value,) = kernel_feature_values(["f_txn_global"], scop, {"n": n}, machine="V100").values()
    assert value == pytest.approx(2 * sectors, rel=within)


def test_blocks_are_inside_of_the_loop_around_launches():
    text = """
    for s
        for i, j
            y[j, i] = x[j, i]*2 {id=a}
        end
        ... gbarrier {id=bar, dep=a}
        for k, j
            z[j, k] = z[j, k] + y[j, k] {id=c, dep=bar}
        end
        ... gbarrier {id=again, dep=c}
    end"""
    domains = ["{[s]: 0<=s<4}", "{[i, j]: 0<=i,j<n}", "{[k]: 0<=k<n}"]
    kernel = written(domains, text, "x, y, z: float32[n, n]", GRID, assume=FITS)
    scop = extract_scop(lp.duplicate_inames(kernel, "j", "id:c"))
    nests = read_nests(scop)
    assert [loop.name for loop in nests.nests[0].loops] == ["s", "gid0", "lid0", "j"]
    first = blocked_nests(replace(nests, nests=nests.nests[:1]), ["j"]).nests[0]
    assert [loop.name for loop in first.loops] == ["s", "gid0", "j_blocks", "lid0", "j"]


V100 = load_machine("V100")
FEW_UNITS = replace(V100, compute_units=2)
ITEM = "64*g0 + l0"
SLOW = (pytest.mark.slow,)


def with_table(groups, *conditions, table=8192):
    """y = a table of which each work-group loads all."""
    loads = tuple(("c", "load", (f"l0 + {start}",)) for start in range(0, table, 64))
    part = Part(conditions, (*loads, ("y", "store", (ITEM,))))
    return UnevenKernel("table", (groups,), (64,), {"c": (table,), "y": (64 * groups,)}, (part,))


CONDITIONS = ("g0 < 2000", "g0 >= 18000", "g0 % 10 == 3")


# Each condition and each machine stands in a test that is not slow.
@pytest.mark.parametrize(("machine", "condition"), [
    *(pytest.param(V100, one, id=f"V100-{one}", marks=() if one in CONDITIONS[:2] else SLOW) for one in CONDITIONS),
    *(pytest.param(FEW_UNITS, one, id=f"two units-{one}", marks=() if "%" in one else SLOW) for one in CONDITIONS),
])  # fmt: skip
def test_work_groups_in_which_nothing_runs_take_no_room_in_l1(machine, condition):
    runs = [estimate_volumes(with_table(20_000, condition).scop(), {}, machine)]
    runs.append(estimate_volumes(with_table(2000).scop(), {}, machine))
    assert runs[0].waves == pytest.approx(runs[1].waves)
    some, alone = (run.total for run in runs)
    assert alone.l2_l1_load < 0.5 * alone.l2_l1_compulsory
    assert some.l2_l1_compulsory == pytest.approx(alone.l2_l1_compulsory)
    assert some.l2_l1_load == pytest.approx(alone.l2_l1_load, rel=0.02)


def test_what_a_launch_loads_crosses_into_l1_once_at_least():
    total = estimate_volumes(with_table(100_000, table=64).scop(), {}, FEW_UNITS).total
    assert 64 * 8 <= total.l2_l1_load < 0.01 * total.l2_l1_compulsory


def test_a_value_that_a_long_loop_loads_and_stores_crosses_once_at_least():
    part = Part((), (("a", "load", ("k", ITEM)), ("b", "load", (ITEM,)), ("b", "store", (ITEM,))), (("k", 20_000),))
    kernel = UnevenKernel("sum", (100,), (64,), {"a": (20_000, 6400), "b": (6400,)}, (part,))
    for machine in (V100, FEW_UNITS):
        assert estimate_volumes(kernel.scop(), {}, machine).arrays["b"].l2_l1_load >= 6400 * 8


def test_no_volume_is_negative():
    offsets = [(j, i) for j in range(9) for i in range(9)]
    loads = tuple(("x", "load", (f"16*g1 + l1 + {j}", f"16*g0 + l0 + {i}")) for j, i in offsets)
    part = Part((), (*loads, ("y", "store", ("16*g1 + l1", "16*g0 + l0"))))
    kernel = UnevenKernel("box", (40, 40), (16, 16), {"x": (700, 700), "y": (640, 640)}, (part,))
    for machine in (V100, FEW_UNITS, load_machine("MI210")):
        total = estimate_volumes(kernel.scop(), {}, machine).total
        assert min(vars(total).values()) >= 0


def test_elements_of_a_diagonal_lie_far_apart():
    groups, row = 1 << 18, 1 << 26
    part = Part((), (("x", "load", (ITEM, ITEM)), ("y", "store", (ITEM,))))
    kernel = UnevenKernel("diagonal", (groups,), (64,), {"x": (row, row), "y": (row,)}, (part,))
    found = estimate_volumes(kernel.scop(), {}, V100, caches="cold")
    # No two of them share a sector.
    assert found.arrays["x"].l2_l1_load == pytest.approx(groups * 64 * 32)


def test_grids_of_any_size_without_guards_take_no_memory():
    part = Part((), (("x", "load", (ITEM,)), ("y", "store", (ITEM,))))
    kernel = UnevenKernel("copy", (1 << 40,), (64,), {"x": (1 << 46,), "y": (1 << 46,)}, (part,))
    total = estimate_volumes(kernel.scop(), {}, V100, caches="cold").total
    assert total.l2_l1_load == pytest.approx(2.0**49)
    assert total.dram_load == pytest.approx(2.0**49)


def matrix_times_vector(columns):
    domain, data = f"{{[i, j]: 0 <= i < n and {columns}}}", "L: float64[n, n]; x, y: float64[n]"
    return written(domain, "y[i] = sum(j, L[i, j]*x[j])", data, "i/128: g.0, l.0")


@pytest.mark.parametrize(("columns", "n"), [("0 <= j <= i", 2048), ("i <= j < n", 2048), ("0 <= j <= i", 16384)])
def test_a_triangle_that_is_too_large_says_what_is_not(columns, n):
    kernel = matrix_times_vector(columns)
    with pytest.raises(UnsupportedKernelError, match=r"couple \d+ x 128 x \d+ = \d+ instances, as those of a tri") as e:
        estimate_volumes(kernel, {"n": n}, "V100")
    times = int(re.findall(r"sizes that are (\d+) times smaller", str(e.value))[0])
    small = n // times
    volumes = estimate_volumes(kernel, {"n": small}, "V100")
    # By enumeration: a work-group has rows of its own, of whose elements it loads whole sectors of 32 B.
    rows = [(0, i) if columns.startswith("0") else (i, small - 1) for i in range(small)]
    sectors = sum((i * small + last) // 4 - (i * small + first) // 4 + 1 for i, (first, last) in enumerate(rows))
    assert volumes.arrays["L"].l2_l1_compulsory == pytest.approx(32 * sectors, rel=0.01)
    whole = estimate_volumes(matrix_times_vector("0 <= j < n"), {"n": small}, "V100").total.l2_l1_compulsory
    assert whole > volumes.total.l2_l1_compulsory
    assert estimate_volumes(matrix_times_vector("0 <= j < n"), {"n": n}, "V100").total.l2_l1_compulsory > whole


def kernel(items, local_kib):
    """Four work-groups, each with a local array that it writes once."""
    scop = one_axis(4 * items, (items,), 1, 4)
    if not local_kib:
        return scop
    extents = (QuasiPolynomial.constant(256 * local_kib),)
    array = Array("tile", "local", "float32", extents, (QuasiPolynomial.constant(1),))
    where = f"{{ [g0, l0] : 0 <= g0 < 4 and 0 <= l0 < {items} }}"
    tile = Access("tile", "store", isl.Map("{ [g0, l0] -> [l0] }"), text="tile[l0]")
    fill = structs.replace(scop.statements[0], name="fill", domain=isl.Set(where), accesses=(tile,))
    return structs.replace(scop, arrays=(*scop.arrays, array), statements=(*scop.statements, fill))


@pytest.mark.parametrize("name", ["K20", "V100", "H100-SXM", "MI250X", "W7800"])
@pytest.mark.parametrize(("items", "kib", "registers"), [(64, 0, None), (96, 8, 40), (256, 32, 24), (512, 1, 64)])
def test_waves_and_volumes_have_the_same_resident_work_groups(name, items, kib, registers):
    scop, machine = kernel(items, kib), replace(load_machine(name), l1_rules="nvidia")
    with using_machine(machine, registers=registers):
        waves = kernel_feature_values(["f_waves"], scop, {})["f_waves"]
    assert waves == estimate_volumes(scop, {}, machine, registers=registers).waves < 1


def test_a_work_group_that_does_not_fit_is_refused_by_both_as_a_kernel_and_by_its_machine():
    for refused in (UnsupportedKernelError, MachineError):
        with pytest.raises(refused, match="65536 bytes of local memory"):
            kernel_feature_values(["f_waves"], kernel(64, 64), {}, machine="K20")
        with pytest.raises(refused, match="65536 bytes of local memory"):
            estimate_volumes(kernel(64, 64), {}, "K20")
