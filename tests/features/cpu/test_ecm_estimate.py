"""The estimator of cache volumes: options, arrays of sizes, cycles, and what it refuses."""

from dataclasses import replace
from math import isqrt
from pathlib import Path

import loopy as lp
import numpy as np
import pytest

from perflex import estimate_ecm, load_machine, source_kernel
from perflex.errors import FeatureError, MachineError, MissingSizeError, UnsupportedKernelError
from perflex.features import extract_scop
from support.ecm_kernels import jacobi2d, jacobi3d, loopy_kernel, on_grid, small_machine, wave3d

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_arrays_of_sizes_and_blocks_are_single_estimates_side_by_side():
    sizes = np.array([20, 60, 150, 400, 800])
    blocks = {"j": np.array([5, 50, 7, 40, 800]), "i": np.array([20, 10, 150, 64, 33])}
    together = estimate_ecm(jacobi3d(), {"M": 200, "N": sizes}, "rome", cores=4, blocks=blocks)
    assert together.conditions == ()
    for place, size in enumerate(sizes):
        chosen = {name: int(block[place]) for name, block in blocks.items()}
        alone = estimate_ecm(jacobi3d(), {"M": 200, "N": int(size)}, "rome", cores=4, blocks=chosen)
        assert together.iterations[place] == alone.iterations
        assert together.memory_stream[place] == alone.memory_stream
        for level, single in zip(together.levels, alone.levels, strict=True):
            assert level.load_bytes[place] == pytest.approx(single.load_bytes)
            assert level.store_bytes[place] == pytest.approx(single.store_bytes)
            assert level.launch_cycles[place] == pytest.approx(single.launch_cycles)


@pytest.mark.parametrize("sizes", [{"M": 90, "N": 40}, {"M": 500, "N": 300}, {"M": 30, "N": 5000}])
def test_the_polynomials_of_conditions_have_the_values_that_decide(sizes):
    found = estimate_ecm(jacobi3d(), sizes, "clx")
    for condition in found.conditions:
        assert condition.met == (
            condition.needed_bytes < condition.cache_bytes
            if condition.loop == "all"
            else condition.needed_bytes <= condition.cache_bytes
        )
        if condition.largest is not None and condition.loop != "all":
            assert condition.met == (sizes[condition.symbol] <= condition.largest)


def test_each_condition_stands_once():
    found = estimate_ecm(jacobi3d(), {"M": 1000, "N": 600}, "clx", blocks={"j": 100, "i": 300})
    rows = [(condition.level, condition.loop, condition.inequality) for condition in found.conditions]
    assert len(rows) == len(set(rows)) > 12


def test_cycles_follow_duplex_and_the_stream_that_fits():
    machine = small_machine(1024, 8192)
    sizes = {"M": 10**5, "N": 10**4}
    # The rows are too long for either cache: 32 B of a, 8 B allocated for b, 8 B evicted.
    both = estimate_ecm(jacobi2d(), sizes, machine)
    assert both.level("L2").cycles == 32 / 32
    halves = replace(machine, levels=tuple(replace(level, duplex=False) for level in machine.levels))
    assert estimate_ecm(jacobi2d(), sizes, halves).level("L2").cycles == 32 / 32 + 8 / 16
    assert both.memory_stream == "copy"
    assert both.level("memory").cycles == pytest.approx(40 * 2e9 / 20e9)
    loading = estimate_ecm(jacobi3d(), sizes, machine)
    assert loading.memory_stream == "load"
    assert loading.level("memory").cycles == pytest.approx(56 * 2e9 / 25e9)
    slow = tuple(replace(level, load_bytes_per_cycle=None) for level in machine.levels)
    bare = replace(machine, memory_streams=(), levels=slow)
    assert {level.cycles for level in estimate_ecm(jacobi2d(), sizes, bare).levels} == {None}
    bare = replace(bare, dram_bandwidth=10e9)
    assert estimate_ecm(jacobi2d(), sizes, bare).level("mem").cycles == pytest.approx(8.0)
    # Two domains have half of it each; if they reach 80 % together, one alone has 6.25 GB/s.
    for efficiency, cycles in ((None, 16.0), (0.8, 12.8)):
        parts = replace(bare, domains=2, domain_efficiency=efficiency)
        assert estimate_ecm(jacobi2d(), sizes, parts).level("mem").cycles == pytest.approx(cycles)


def test_blocks_restore_reuse_that_the_whole_loop_loses():
    scop, sizes = wave3d(4), {"M": 1000, "n": 800}
    machine = load_machine("clx-snc-off")
    plain = estimate_ecm(scop, sizes, machine, cores=20)
    # Nine planes of the star, one each of the two other grids that are read and of the one written.
    limit = isqrt(machine.levels[2].bytes_per_core(20) // (8 * (9 + 3)))
    blocked = estimate_ecm(scop, sizes, machine, cores=20, blocks={"y": limit - 20, "z": limit - 20})
    assert plain.level("memory").bytes == 104.0
    # Halo lines of blocks come again.
    assert 40.0 < blocked.level("memory").bytes < 55.0
    larger = estimate_ecm(scop, sizes, machine, cores=20, blocks={"y": limit + 20, "z": limit + 20})
    assert larger.level("memory").bytes > 100.0


def test_launches_and_repeats_add_up():
    arrays = {"a": "(n,n)", "b": "(n,n)"}
    one = loopy_kernel("{[i,j]: 0<=i,j<n}", "b[i,j] = 2*a[i,j]", arrays, "i,j")
    code = "b[i,j] = 2*a[i,j] {id=p}\n... gbarrier {id=g, dep=p}\nc[x,y] = b[y,x] {dep=g}"
    two = loopy_kernel("{[i,j,x,y]: 0<=i,j,x,y<n}", code, {**arrays, "c": "(n,n)"})
    two = on_grid(two, i=(1, 1), j=(0, 16), x=(1, 1), y=(0, 16))
    alone = estimate_ecm(extract_scop(one), {"n": 4096}, "clx").level("memory").launch_bytes
    both = estimate_ecm(extract_scop(two), {"n": 4096}, "clx").level("memory").launch_bytes
    assert both == pytest.approx(2 * alone, rel=0.02)


def test_what_a_nest_has_touched_in_the_same_iteration_comes_from_the_cache():
    code = """
    for i
        for j
            b[i,j] = 2*a[i,j] {id=first}
        end
        for k
            c[i,k] = b[i,k] + a[i,k] {dep=first}
        end
    end
    """
    kernel = loopy_kernel("{[i,j,k]: 0<=i,j,k<n}", code, dict.fromkeys("abc", "(n,n)"))
    found = estimate_ecm(extract_scop(kernel), {"n": 1000}, "clx")
    # Loads a, allocates b and c, evicts b and c: 40 B for one execution of each nest.
    assert found.level("L2").bytes == pytest.approx(40.0)
    long = estimate_ecm(extract_scop(kernel), {"n": 4000}, small_machine(8192))
    assert long.level("memory").bytes > 50.0


@pytest.mark.parametrize(("domain", "code", "arrays", "words"), [
    ("{[i]: 0<=i<n and 0<=m}", "b[i] = a[(i+m)//3]", {"a": "(n+m)", "b": "(n)"}, "// or %"),
    ("{[i]: 0<=i<n}", "b[i] = a[i,i]", {"a": "(n,n)", "b": "(n)"}, "loop in two subscripts"),
])  # fmt: skip
def test_accesses_that_are_followed_approximately_are_said(domain, code, arrays, words):
    scop = extract_scop(loopy_kernel(domain, code, arrays))
    (note,) = estimate_ecm(scop, dict.fromkeys(scop.parameters, 100), "clx").approximated
    assert words in note
    assert note.startswith("access a[")


NOTHING = extract_scop(lp.make_kernel("{:}", "<float32> t = 1", [], name="nothing", lang_version=(2018, 2)))


@pytest.mark.parametrize(("error", "words", "changed"), [
    (MachineError, "V100 has no cache levels", {"machine": "V100"}), (MissingSizeError, "N", {"sizes": {"M": 100}}),
    (FeatureError, "dealt or reference or paper", {"convention": "other"}), (FeatureError, "0 lanes", {"lanes": 0}),
    (MachineError, "has 20 cores, not 21", {"cores": 21}), (FeatureError, "0 working cores", {"cores": 0}),
    (UnsupportedKernelError, r"no loop 'x'.* i, j, k", {"blocks": {"x": 5}}),
    (FeatureError, "block of loop 'i'", {"blocks": {"i": 0}}),
    (FeatureError, r"block of loop 'i' .* whole number", {"blocks": {"i": 2.5}}),
    (UnsupportedKernelError, r"no loop 'x'.* to fold .* it has k, j, i", {"fold": {"x": 2}}),
    (UnsupportedKernelError, "fold of 0 along loop 'i'", {"fold": {"i": 0}}),
    (UnsupportedKernelError, "accesses no global or local memory", {"kernel": NOTHING, "sizes": {}}),
])  # fmt: skip
def test_wrong_arguments_are_named(error, words, changed):
    with pytest.raises(error, match=words):
        estimate_ecm(**{"kernel": jacobi3d(), "sizes": {"M": 100, "N": 100}, "machine": "clx", **changed})


def test_a_level_that_is_not_there_is_named():
    with pytest.raises(MachineError, match="has no level 'L4'; it has L1, L2, L3, memory"):
        estimate_ecm(jacobi3d(), {"M": 100, "N": 100}, "clx").level("L4")


def test_rows_of_a_pointer_are_those_of_a_matrix():
    """A kernel in OpenCL C has one subscript, `row * n + k`, where loopy's has two."""
    loopy = lp.make_kernel(
        "{[i, j, k]: 0 <= i, j, k < n}",
        "c[i, j] = sum(k, a[i, k]*b[k, j])",
        assumptions="n >= 16 and n mod 16 = 0",
        lang_version=(2018, 2),
    )
    loopy = lp.add_dtypes(loopy, {"a": np.float32, "b": np.float32})
    loopy = lp.split_iname(loopy, "i", 16, outer_tag="g.1", inner_tag="l.1")
    loopy = lp.split_iname(loopy, "j", 16, outer_tag="g.0", inner_tag="l.0")
    source = source_kernel(EXAMPLES / "matmul.cl", "naive", local=[16, 16], groups=["n/16", "n/16"])
    for n in (64, 480, 1024):
        ours, theirs = (estimate_ecm(kernel, {"n": n}, "Gold-6248") for kernel in (source, loopy))
        assert [level.bytes for level in ours.levels] == pytest.approx([level.bytes for level in theirs.levels])
