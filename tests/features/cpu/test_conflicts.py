"""Conflict misses against a set-associative cache simulated access by access, and what is said of them."""

import random
from dataclasses import replace

import pytest

from oracles.lru import steady_crossings
from oracles.traces import scop_trace
from perflex import Machine, estimate_ecm, load_machine
from perflex.errors import MissingSizeError
from perflex.features import extract_scop
from perflex.features.cpu.ecm_estimate import conflict_doubts
from perflex.machines.machine import CacheLevel
from sample_kernels import matmul
from support.ecm_kernels import loopy_kernel, terms

# Small caches keep the traces short: 16 sets of 4 lines, 64 sets of 8.
CACHES = ((4096, 4), (32768, 8))


def machine(*, hashed=False):
    levels = tuple(
        CacheLevel(f"L{number}", size, 1, 64, ways, True, False, None, None, True, "sum", hashed=hashed)
        for number, (size, ways) in enumerate(CACHES, start=1)
    )
    return Machine(name="sets", kind="cpu", levels=levels)


def transposition():
    domain = "{[i,j]: 0<=i<m and 0<=j<n and N>=16}"
    return extract_scop(loopy_kernel(domain, "b[i,j] = a[j,i]", {"a": "(n,N)", "b": "(m,N)"}, "i,j"))


def simulated(scop, sizes, rows, warm, cache):
    """Bytes per iteration that cross below a cache after the first rows, of a kernel with so many."""
    lines, stores = scop_trace(scop, sizes)
    found = steady_crossings(lines, stores, len(lines) * warm // rows, *cache)
    iterations = estimate_ecm(scop, sizes, machine()).iterations * (rows - warm) / rows
    return 64 * (found.loads + found.evicts) / iterations


@pytest.mark.parametrize("pitch", [120, 126, 128, 136, 256, 264, 500, 512, 520, 1024])
def test_transpositions_at_powers_of_two_and_beside_them(pitch):
    found = estimate_ecm(transposition(), {"m": pitch, "n": 48, "N": pitch}, machine())
    for number, cache in enumerate(CACHES):
        wanted = simulated(transposition(), {"m": 64, "n": 48, "N": pitch}, 64, 16, cache)
        assert 1 / 1.3 < found.levels[number + 1].bytes / wanted < 1.3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_stencils_with_pitches_near_powers_of_two(seed):
    rng = random.Random(seed)  # noqa: S311 - no secret
    pitch = rng.choice([256, 512, 1024]) + rng.choice([0, 0, 8, -8, 24])
    offsets = sorted({(rng.randint(-4, 4), rng.randint(-2, 2)) for _ in range(rng.randint(4, 9))})
    domain = "{[j,i]: 4<=j<n-4 and 2<=i<130 and N>=16}"
    code = f"b[j,i] = {terms('a', 'ji', offsets)}"
    scop = extract_scop(loopy_kernel(domain, code, {"a": "(n,N)", "b": "(n,N)"}, "j,i"))
    found = estimate_ecm(scop, {"n": 4096, "N": pitch}, machine())
    for number, cache in enumerate(CACHES):
        wanted = simulated(scop, {"n": 64, "N": pitch}, 56, 16, cache)
        assert 1 / 1.3 < found.levels[number + 1].bytes / wanted < 1.3


def test_all_data_in_a_large_cache_conflict_as_well():
    columns = {"m": 16, "n": 48, "N": 512}
    code = "s[i] = s[i] + a[j,i] {id=u, dep=}"
    kernel = loopy_kernel("{[i,j]: 0<=i<m and 0<=j<n and N>=16}", code, {"a": "(n,N)", "s": "(m)"}, "i,j")
    found = estimate_ecm(extract_scop(kernel), columns, machine())
    # 48 lines, at 4096 B all in one set: no cache is too small, but none keeps them.
    assert found.level("L2").bytes == pytest.approx(64, rel=0.05)
    assert found.level("memory").bytes == pytest.approx(64, rel=0.05)
    padded = estimate_ecm(extract_scop(kernel), {**columns, "N": 520}, machine())
    assert padded.level("L2").bytes < 9
    assert padded.level("memory").bytes == 0


def test_a_warning_names_array_stride_cache_and_padding_that_helps():
    sizes = {"m": 500, "n": 48, "N": 512}
    (first,) = [one for one in estimate_ecm(transposition(), sizes, machine()).conflicts if one.level == "L1"]
    assert (first.array, first.stride_bytes, first.lines, first.sets, first.ways) == ("a", 4096, 48, 1, 4)
    assert first.lost == 1.0
    assert first.more == pytest.approx(80 / 24, rel=0.02)
    assert "48 lines of array 'a', 4096 B apart" in str(first)
    assert "pad the pitch by 8 element(s), to 4160 B" in str(first)
    padded = {**sizes, "N": first.padded_bytes // 8}
    assert estimate_ecm(transposition(), padded, machine()).conflicts == ()


def small_stencil(pitch, blocks):
    """Five points in blocks of 8 rows and `blocks` columns, as work-groups go through a grid."""
    domain = f"{{[J,I,i,j]: 0<=J<4 and 0<=I<m and 0<=i<{blocks} and 0<=j<8 and N>=16}}"
    code = "v[8*J+j+1,B*I+i+1] = u[8*J+j+1,B*I+i] + u[8*J+j+1,B*I+i+2] + u[8*J+j,B*I+i+1] + u[8*J+j+2,B*I+i+1]"
    arrays = {"u": f"(40,{pitch})", "v": f"(40,{pitch})"}
    return extract_scop(loopy_kernel(domain, code.replace("B", str(blocks)), arrays, "J,I,i,j"))


@pytest.mark.parametrize("pitch", [513, 514, 1026, 2049])
def test_the_distance_is_that_of_the_rows_that_meet_and_padding_it_helps(pitch):
    sizes = {"m": 32, "N": 16}
    conflicts = estimate_ecm(small_stencil(pitch, 16), sizes, machine()).conflicts
    # Rows a few bytes more than a way apart: any number of them could reach all sets, ten or eight are in few.
    assert {one.level for one in conflicts} == {"L1", "L2"}
    for one in conflicts:
        assert one.stride_bytes == 8 * pitch
        assert one.padded_bytes % 128 == 64
        padded = estimate_ecm(small_stencil(one.padded_bytes // 8, 16), sizes, machine())
        assert padded.level(one.level).bytes
        assert all(other.lost < one.lost for other in padded.conflicts if other.level == one.level)


@pytest.mark.parametrize("neighbours", [2, 3])
def test_rows_of_a_flattened_array_are_as_far_apart_as_they_begin(neighbours):
    def rows(pitch):
        loads = " + ".join(f"u[{pitch}*j+i+{number}]" for number in range(neighbours))
        arrays = {"u": "(600*n)", "s": "(m)"}
        return extract_scop(
            loopy_kernel("{[i,j]: 0<=i<m and 0<=j<n}", f"s[i] = s[i] + {loads} {{id=a, dep=}}", arrays, "i,j")
        )

    def conflicts(pitch):
        return estimate_ecm(rows(pitch), {"m": 16, "n": 48}, machine()).conflicts

    (first,) = [one for one in conflicts(512) if one.level == "L1"]
    assert (first.array, first.stride_bytes, first.padded_bytes) == ("u", 512 * 8, 520 * 8)
    assert conflicts(520) == ()
    size, ways = CACHES[0]
    plain, padded, associative = (
        simulated(rows(pitch), {"m": 64, "n": 48}, 64, 16, (size, among))
        for pitch, among in ((512, ways), (520, ways), (520, size // 64))
    )
    assert padded < plain / 2
    # What three neighbours still lose where they cross a line, a cache without sets loses, too.
    assert padded == pytest.approx(associative, rel=0.05)


@pytest.mark.parametrize("changes", [{"hashed": True}, {"ways": None}])
def test_hashed_caches_and_those_of_unknown_ways_have_no_conflicts(changes):
    plain = machine()
    levels = tuple(replace(level, **changes) for level in plain.levels)
    found = estimate_ecm(transposition(), {"m": 500, "n": 48, "N": 512}, replace(plain, levels=levels))
    assert found.conflicts == ()
    assert found.level("L2").bytes == pytest.approx(24, rel=0.02)


def test_doubts_of_products_at_powers_of_two():
    scop = extract_scop(matmul(prefetch=False))
    (doubt,) = conflict_doubts(scop, {"n": 1024})
    assert "L2: 1024 lines of array 'b'" in doubt
    assert "size and ways are assumed" in doubt
    assert "assumed" not in conflict_doubts(scop, {"n": 1024}, load_machine("clx"))[0]
    assert conflict_doubts(scop, {"n": 1040}) == ()
    assert conflict_doubts(scop, {"n": 1024}, load_machine("V100")) == ()
    with pytest.raises(MissingSizeError):
        conflict_doubts(scop, {})
