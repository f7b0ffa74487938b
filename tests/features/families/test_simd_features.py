"""Work by vectors of work-items along axis 0 and one by one, against counts by hand and by enumeration."""

import loopy as lp
import numpy as np
import pytest
from msgspec.structs import replace

from perflex.features import Target, extract_scop, parse_feature
from sample_kernels import make, matmul

LANES = Target(sub_group_size=16)


def value(scop, name, target=LANES, **sizes):
    return float(parse_feature(f"f_simd_{name}").value(scop, sizes, target))


def made(domain, body, *, width=16, **dtypes):
    """Each of n work-items in groups of `width` goes through a body."""
    kernel = lp.assume(make(domain, body, dtypes), f"n mod {width} = 0 and n >= {width}")
    return extract_scop(lp.split_iname(kernel, "i", width, outer_tag="g.0", inner_tag="l.0"))


def scaled(width, subscript="i"):
    """Each of n work-items in groups of `width` loads, multiplies and stores one element."""
    return made("{[i]: 0<=i<n}", f"out[i] = 2*v[{subscript}]", width=width, v=np.float32)


@pytest.mark.parametrize(("width", "wide", "narrow"), [(16, 12, 0), (64, 12, 0), (24, 8, 64), (8, 0, 192), (1, 0, 192)])
def test_whole_vectors_and_what_is_left(width, wide, narrow):
    scop = scaled(width)
    # 24*gid(0) + lid(0) is no subscript that compilers know to be next to each other.
    accesses = () if width == 24 else ("load_contiguous", "store_contiguous")
    for what in ("arith", *accesses):
        assert value(scop, f"{what}_vector_straight", n=192) == wide
    for what in ("arith", "load", "store"):
        assert value(scop, f"{what}_scalar_straight", n=192) == narrow
    assert value(scop, "item_vector", n=192) == wide
    assert value(scop, "item_scalar", n=192) == narrow


@pytest.mark.parametrize(
    ("subscript", "pattern", "each"),
    [("i", "contiguous", 1), ("0", "broadcast", 1), ("2*i", "gather", 16), ("i//2", "gather", 16)],
)
def test_patterns_along_the_first_axis(subscript, pattern, each):
    scop = scaled(16, subscript=subscript)
    assert value(scop, f"load_{pattern}_vector_straight", n=160) == 10 * each
    for other in {"contiguous", "broadcast", "gather"} - {pattern}:
        assert value(scop, f"load_{other}_vector_straight", n=160) == 0


def test_matrix_product_in_a_loop():
    scop = extract_scop(matmul(prefetch=False))  # groups of 16 by 16
    steps = 64**3 // 16
    for what in ("arith_vector_loop", "load_broadcast_vector_loop", "load_contiguous_vector_loop", "iteration_vector"):
        assert value(scop, what, n=64) == steps
    # The first 32 of 64 overlap with the sum before.
    assert value(scop, "chain_vector", n=64) == steps // 2
    assert value(scop, "chain_vector", n=16) == 0
    assert value(scop, "entry_vector", n=64) == 64**2 // 16
    assert value(scop, "store_contiguous_vector_straight", n=64) == 64**2 // 16
    # On a target with vectors of 32, groups of 16 fill none: the loop over k runs along rows of a and columns of b.
    wider = Target(sub_group_size=32)
    assert value(scop, "arith_vector_loop", wider, n=64) == 0
    assert value(scop, "load_contiguous_scalar_loop", wider, n=64) == 64**3
    assert value(scop, "load_gather_scalar_loop", wider, n=64) == 64**3


def test_what_lies_between_barriers_is_not_in_a_loop():
    scop = extract_scop(matmul(prefetch=True))
    # The loop over a tile has 16 iterations, that over tiles holds barriers.
    assert value(scop, "arith_vector_unrolled", n=64) == 64**3 // 16
    assert value(scop, "load_contiguous_vector_straight", n=64) == 2 * 4 * 16 * 16
    assert value(scop, "arith_vector_loop", n=64) == 0
    assert value(scop, "chain_vector", n=64) == 0
    # Two barriers in each of 4 steps, in 16 groups with 16 rows of one vector.
    assert value(scop, "barrier_vector", n=64) == 2 * 4 * 16 * 16


def test_triangular_loops_run_as_long_as_the_longest_of_a_vector():
    scop = made("{[i,k]: 0<=i<n and 0<=k<=i}", "out[i] = sum(k, v[k])", width=24, v=np.float32)
    items = np.arange(96).reshape(4, 24)
    assert value(scop, "arith_vector_loop", n=96) == sum(row[:16].max() + 1 for row in items)
    assert value(scop, "arith_scalar_loop", n=96) == sum((row[16:] + 1).sum() for row in items)


def loads(scop, pattern, **sizes):
    """Return the loads of one pattern in vectors, whatever loops they are in; gathers as one."""
    found = sum(
        value(scop, f"load_{pattern}_vector_{nesting}", **sizes) for nesting in ("straight", "unrolled", "loop")
    )
    return found / (16 if pattern == "gather" else 1)


def test_a_load_before_a_loop_that_ends_at_the_work_item():
    scop = made("{[i,k]: 0<=i<n and 0<=k<=i}", "out[i] = sum(k, a[i]*b[k])", a=np.float32, b=np.float32)
    vectors = np.arange(64).reshape(4, 16)
    assert loads(scop, "contiguous", n=64) == len(vectors)
    assert loads(scop, "broadcast", n=64) == sum(items.max() + 1 for items in vectors)


def test_a_load_before_a_loop_that_some_vectors_do_not_enter():
    scop = made("{[i,k]: 0<=i<n and 20<=k<i}", "out[i] = sum(k, a[i]*b[k])", a=np.float32, b=np.float32)
    entered = [items for items in np.arange(64).reshape(4, 16) if items.max() > 20]
    assert loads(scop, "contiguous", n=64) == len(entered) == 3


@pytest.mark.parametrize("first", [0, 3])
def test_a_load_counts_once_per_iteration_of_the_loops_it_depends_on(first):
    domain = f"{{[i,j,k,l]: 0<=i<n and 0<=j<40 and {first}<=k<j and k<=l<=j+2}}"
    body = "out[i] = sum([j,k,l], a[j,i]*b[k,i]*c[l,i]*d[i])"
    scop = made(domain, body, a=np.float32, b=np.float32, c=np.float32, d=np.float32)
    every = [(j, k, m) for j in range(40) for k in range(first, j) for m in range(k, j + 3)]
    expected = [len(every), len({(j, k) for j, k, _ in every}), len({j for j, _, _ in every}), 1]
    assert loads(scop, "contiguous", n=48) == 3 * sum(expected)


@pytest.mark.parametrize(("pitch", "gathered"), [(18, True), (17, True), (32, False)])
def test_tiles_with_odd_pitch_are_gathered(pitch, *, gathered):
    kernel = make(
        "{[g,i,j,p,q]: 0<=g<n and 0<=i,j,p,q<16}",
        "tile[p,q] = v[q] {id=fill}\nout[g] = tile[j,i+1] {dep=fill}",
        {"v": np.float32},
        kernel_data=[lp.TemporaryVariable("tile", np.float32, (16, pitch), address_space=lp.AddressSpace.LOCAL), ...],
    )
    kernel = lp.tag_inames(kernel, {"g": "g.0", "i": "l.0", "j": "l.1", "q": "l.0", "p": "l.1"})
    scop = extract_scop(kernel)
    assert value(scop, "load_gather_vector_straight", n=2) == (2 * 256 if gathered else 0)


def test_only_the_longest_of_several_chains_in_a_loop_counts():
    body = """
    <float32> x = 0 {id=x}
    <float32> y = 0 {id=y}
    x = x + v[k] {id=a,dep=x:y}
    y = y * v[k] + v[k] {id=b,dep=a}
    y = y * v[k] + v[k] {id=c,dep=b}
    out[i] = x + y {dep=a:c}
    """
    scop = made("{[i,k]: 0<=i<n and 0<=k<m}", body, v=np.float32)
    assert value(scop, "chain_vector", n=32, m=100) == 2 * (2 * 100 - 32)


def test_simple_operations_of_integers_wait_a_quarter_as_long():
    body = """
    <uint32> x = v[i] {id=x}
    x = x ^ (x << 7) {id=a,dep=x}
    x = x ^ (x >> 9) {id=b,dep=a}
    x = x*1664525 + 1013904223 {id=c,dep=b}
    out[i] = x {dep=c}
    """
    kernel = make("{[i,k]: 0<=i<n and 0<=k<m}", body, {"v": np.uint32, "out": np.uint32})
    for name in "abc":
        kernel = lp.add_inames_to_insn(kernel, "k", f"id:{name}")
    kernel = lp.assume(kernel, "n mod 16 = 0 and n, m >= 1")
    scop = extract_scop(lp.split_iname(kernel, "i", 16, outer_tag="g.0", inner_tag="l.0"))
    # Two shifts and two exclusive ors, one cycle each, and a multiply-add, counted as one of floating-point numbers.
    assert value(scop, "chain_vector", n=32, m=100) == 2 * (100 * (4 / 4 + 1) - 32)


def added_up(*, factor="v[i, k]", overlap=True, into="out[i]"):
    used = {"v": np.float32} if "v" in factor else {}
    scop = made("{[i, k]: 0<=i<n and 0<=k<m}", f"{into} = {into} + {factor}", out=np.float32, **used)
    return replace(scop, arrays=tuple(replace(one, restrict=not overlap) for one in scop.arrays))


@pytest.mark.parametrize(
    ("kernel", "waiting"),
    [
        (added_up(), 2 * 100),
        (added_up(overlap=False), 0),
        # Nothing that the loop loads may be an element of the sum: constants, and elements of another type.
        (added_up(factor="2"), 0),
        # No iteration loads what the one before stored.
        (added_up(into="out[i, k]"), 0),
    ],
)
def test_sums_in_memory_wait_for_their_store_where_arrays_may_overlap(kernel, waiting):
    assert value(kernel, "forward_vector", n=32, m=100) == waiting
    assert value(kernel, "forward_scalar", Target(sub_group_size=32), n=32, m=100) == 16 * waiting


def test_arrays_of_another_type_do_not_overlap():
    scop = added_up()
    arrays = tuple(replace(one, dtype="int32") if one.name == "v" else one for one in scop.arrays)
    assert value(replace(scop, arrays=arrays), "forward_vector", n=32, m=100) == 0


def test_what_a_kernel_has_is_listed():
    scop = scaled(16)
    names = parse_feature("f_simd_arith_vector_straight").inventory(scop)
    assert "f_simd_load_contiguous_vector_straight" in names
    assert "f_simd_exp_vector_straight" not in names
    assert not parse_feature("f_simd_exp_vector_straight").matches(scop, {"n": 16})
