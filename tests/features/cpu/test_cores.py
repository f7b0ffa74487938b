"""Cache volumes of several cores that have a part of a kernel each: against simulated caches, and by hand."""

from dataclasses import replace

import numpy as np
import pytest

from oracles.traces import core_traces, scop_trace
from perflex import estimate_ecm, load_machine
from perflex.features import Target, extract_scop, parse_feature
from support.dealt_kernels import AROUND, CACHES, LEAST, cpu, crossings, off_by, random_dealt_kernel
from support.ecm_kernels import jacobi2d, jacobi3d, loopy_kernel, on_grid

LEVELS = ("l2", "l3", "mem")


def traffic(scop, sizes, lanes, machine):
    target = Target(sub_group_size=lanes, machine=machine)
    return [float(parse_feature(f"f_traffic_bytes_{level}").value(scop, sizes, target)) for level in LEVELS]


def furthest_off(scop, sizes, cores, lanes, found):
    """Return the largest factor by which volumes are off those of caches that are a little smaller or larger."""
    simulated = [
        crossings(scop, sizes, cores, lanes, [(int(size * factor) // 64 * 64, users) for size, users in CACHES])
        for factor in AROUND
    ]
    slack = LEAST * len(scop_trace(scop, sizes)[0])
    return max(off_by(one, *sorted(around), slack) for one, *around in zip(found, *simulated, strict=True))


@pytest.mark.parametrize(("seed", "cores"), [(7, 4), (24, 6), (49, 4), (55, 16), (69, 4), (138, 6)])
def test_traffic_of_random_kernels_is_that_of_each_core_s_part(seed, cores):
    kernel, sizes, lanes = random_dealt_kernel(seed)
    scop = extract_scop(kernel)
    found = traffic(scop, sizes, lanes, cpu(cores))
    assert furthest_off(scop, sizes, cores, lanes, found) < 1.12


@pytest.mark.slow
@pytest.mark.parametrize("cores", [2, 4, 6, 16])
def test_traffic_of_20_random_kernels(cores):
    off = []
    for seed in range(1000, 1020):
        kernel, sizes, lanes = random_dealt_kernel(seed)
        scop = extract_scop(kernel)
        off.append(furthest_off(scop, sizes, cores, lanes, traffic(scop, sizes, lanes, cpu(cores))))
    assert np.sum(np.array(off) > 1.12) <= 3
    assert max(off) < 1.6


def product(n):
    kernel = loopy_kernel(
        "{[i,j,k]: 0<=i,j,k<n}", "c[i,j] = sum(k, a[i,k]*b[k,j])", dict.fromkeys("abc", "(n,n)"), dtype=np.float32
    )
    return extract_scop(on_grid(kernel, j=(0, 16), i=(1, 16)))


@pytest.mark.parametrize("cores", [1, 2, 4, 6])
def test_each_core_reads_all_of_a_matrix_that_it_needs_whole(cores):
    # One core's rows of a and c would fit 32 KiB, but not with all 36 KiB of b.
    machine = replace(cpu(cores), levels=tuple(replace(level, size_bytes=32768) for level in cpu(cores).levels))
    (wanted,) = crossings(product(96), {"n": 96}, cores, 16, [(32768, 1)])
    assert traffic(product(96), {"n": 96}, 16, machine)[0] == pytest.approx(wanted, rel=0.13)
    assert wanted > 290_000


def test_cores_that_share_a_cache_read_what_they_all_need_once():
    sizes, cores = {"n": 64}, 4
    machine = replace(cpu(cores), levels=tuple(replace(level, size_bytes=8192) for level in cpu(cores).levels))
    own, shared = crossings(product(64), sizes, cores, 16, [(8192, 1), (8192, 4)])
    found = traffic(product(64), sizes, 16, machine)
    assert found[0] == pytest.approx(own, rel=0.02)
    assert found[2] == pytest.approx(shared, rel=0.02)
    assert shared < 0.75 * own


def test_data_that_fit_a_shared_cache_stay_there_on_all_cores():
    # 8 MB in 28 MiB for twenty cores, as for one; each of them has a part.
    for cores in (1, 10, 20):
        found = estimate_ecm(jacobi3d(), {"M": 80, "N": 80}, "Gold-6248-SNC-off", cores=cores)
        assert found.level("memory").bytes == 0
        assert {one.loop: one.met for one in found.conditions if one.level == "L3"}["all"]
    twice = estimate_ecm(jacobi3d(), {"M": 80, "N": 80}, "Gold-6248-SNC-off", cores=10, convention="reference")
    assert twice.level("memory").bytes == 24


@pytest.mark.parametrize("cores", [1, 3, 4, 8])
@pytest.mark.parametrize("sizes", [{"M": 40, "N": 60}, {"M": 66, "N": 150}])
def test_iterations_of_an_outermost_loop_are_dealt(cores, sizes):
    found = estimate_ecm(jacobi2d(), sizes, cpu(8), cores=cores)
    beyond = [level.launch_bytes for level in found.levels[1:]]
    assert furthest_off(jacobi2d(), sizes, cores, 1, beyond) < 1.12


def test_conditions_of_several_cores_have_the_values_that_decide():
    sizes = {"M": 200, "N": 150}
    for cores in (4, 20):
        found = estimate_ecm(jacobi3d(), sizes, "Gold-6248", cores=cores).conditions
        planes = [one for one in found if (one.level, one.loop) == ("L3", "k")]
        users = min(cores, 10)
        # Each core has two planes of a and one of b on the way.
        assert planes[0].needed_bytes == pytest.approx(users * 8 * (2 * 150**2 - 150 + 150 * 148), rel=0.35)
        assert all(one.met == (one.needed_bytes <= one.cache_bytes) for one in found if one.loop != "all")


def test_more_cores_than_parts_change_nothing():
    groups = load_machine("Gold-6248")
    scop = product(64)
    assert traffic(scop, {"n": 64}, 16, replace(groups, cores=16)) == traffic(scop, {"n": 64}, 16, groups)


def test_traces_of_cores_are_parts_of_the_whole_one():
    whole, parts = scop_trace(product(48), {"n": 48}), core_traces(product(48), {"n": 48}, 4)
    assert [len(lines) for lines, _ in parts] == [3 * len(whole[0]) // 9, *[2 * len(whole[0]) // 9] * 3]
    assert np.array_equal(np.concatenate([lines for lines, _ in parts]), whole[0])


def test_pages_and_their_number_are_the_machine_s():
    scop, machine = product(96), load_machine("Gold-6248")
    large = replace(machine, cores=1, page_bytes=65536, tlb_entries=1)
    target = {one: Target(sub_group_size=16, machine=one) for one in (machine, large)}
    pages, bytes_tlb = (parse_feature(f"f_traffic_{name}") for name in ("pages", "bytes_tlb"))
    # 110 KB fit 2,048 pages of 4 KiB, but not one of 64 KiB.
    assert pages.value(scop, {"n": 96}, target[machine]) == bytes_tlb.value(scop, {"n": 96}, target[machine]) == 0
    assert pages.value(scop, {"n": 96}, target[large]) > 0
    assert bytes_tlb.value(scop, {"n": 96}, target[large]) > 0
