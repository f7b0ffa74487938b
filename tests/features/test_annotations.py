"""What a kernel's description cannot tell and the user states: against Oclgrind, and against equivalent kernels."""

import math

import loopy as lp
import numpy as np
import pytest

from oracles import oclgrind
from oracles._oclgrind_child import _input_array
from perflex.errors import UnsupportedKernelError
from perflex.features import annotate, count_features, counts_of, extract_scop
from support.written_kernels import written

N = 40
LINE = "{[i]: 0 <= i < n}"
MADDS = "f_op_float32_madd"


def make(domains, text, data):
    return written(domains, text, data, "i/8: g.0, l.0", assume="n >= 8")


def csr(bounds="start", loop="start + j"):
    """Sparse matrix-vector product; the loop runs from 0, or from where the row starts."""
    domain = "[len] -> {[j]: 0 <= j < len}" if bounds == "length" else "[start, end] -> {[j]: start <= j < end}"
    text = f"""
    for i
        <> start = rowptr[i] {{id=first}}
        <> end = rowptr[i + 1] {{id=last}}
        <> len = end - start {{id=length, dep=first:last}}
        y[i] = sum(j, vals[{loop}]*x[cols[{loop}]]) {{dep=length:first:last}}
    end
    """
    return make([LINE, domain], text, "rowptr: int32[n+1]; cols: int32[5*n]; vals: float32[5*n]; x, y: float32[n]")


def gathered():
    return make(LINE, "y[i] = x[idx[i]]", "x, y: float32[n]; idx: int32[n]")


def literal():
    insn = lp.CInstruction("i", "y[i] = sin(x[i]);", assignees=("y[i]",), id="lit", within_inames=frozenset("i"))
    return make(LINE, [insn], "x, y: float32[n]")


def blocks_of_rows(inner):
    """Return a kernel whose loop j begins where an array says, with a loop k inside."""
    domains = [LINE, "[a, b] -> {[j]: a <= j < b}", f"[j, n] -> {{[k]: {inner}}}"]
    text = "<int32> a = start[i]\n<int32> b = start[i + 1]\ny[i] = sum(j, sum(k, v[k]*x[j]))"
    return written(domains, text, "start: int32[n + 1]; y, x, v: float32[100*n]")


def counted(kernel):
    return {entry.identifier: entry for entry in count_features(extract_scop(kernel), {"n": N}, sub_group_size=1)}


def of_array(kernel, array, direction="load"):
    items = counts_of(extract_scop(kernel)).accesses
    return next(item for item in items if (item.array.name, item.access.direction) == (array, direction))


ROWS = _input_array("rowptr", (N + 1,), np.dtype(np.int32))
TRIPS = float(np.maximum(np.diff(ROWS), 0).mean())
ROW_WISE = {"vals[start + j]": "5*i + j", "cols[start + j]": "5*i + j", "x": "anywhere"}


@pytest.mark.slow
@oclgrind.needs_oclgrind
@pytest.mark.parametrize("bounds", ["length", "start"])
def test_average_trip_counts_give_what_oclgrind_executes(bounds):
    assert 1 < TRIPS < 2  # the data make the loop short and uneven
    kernel = csr(bounds, "start + j" if bounds == "length" else "j")
    accesses = ROW_WISE if bounds == "length" else {"vals": "5*i + j", "cols": "5*i + j", "x": "anywhere"}
    stated = annotate(kernel, trip_counts={"j": TRIPS}, accesses=accesses)
    run, found = oclgrind.run(kernel, {"n": N}), counted(stated)
    assert found[MADDS].value == pytest.approx(run.madds(), rel=1e-12)
    assert not found[MADDS].exact
    traffic = dict.fromkeys(("load", "store"), 0)
    for item in counts_of(extract_scop(stated)).accesses:
        traffic[item.access.direction] += item.work_item_count.evaluate({"n": N})
    assert traffic["load"] == pytest.approx(run.load("global").count, rel=1e-12)
    assert traffic["store"] == run.store("global").count == N


def test_a_whole_trip_count_is_the_kernel_with_that_constant():
    stated = annotate(csr("length"), trip_counts={"j": 6}, accesses=ROW_WISE)
    domain, data = "{[i, j]: 0 <= i < n and 0 <= j < 6}", "vals, w: float32[5*n]; y: float32[n]"
    constant = make(domain, "y[i] = sum(j, vals[5*i + j]*w[5*i + j])", data)
    mine, theirs = (of_array(kernel, "vals") for kernel in (stated, constant))
    assert (mine.local_strides, mine.group_strides) == (theirs.local_strides, theirs.group_strides)
    assert (mine.work_item_count, mine.footprint) == (theirs.work_item_count, theirs.footprint)


def test_a_split_data_dependent_loop_takes_the_count_of_its_outer_part():
    kernel = lp.split_iname(csr("length"), "j", 4)
    stated = annotate(kernel, trip_counts={"j_outer": 2.5}, accesses=ROW_WISE)
    assert counted(stated)[MADDS].value == 10 * N


def test_an_indirect_access_counts_as_its_stand_in():
    entries = counted(annotate(gathered(), accesses={"x[idx[i]]": "4*i"}))
    strided = entries["f_mem_access_global_float32_load_lstrides:{0:4}_gstrides:{0:32}"]
    assert (strided.value, strided.exact) == (N, False)
    assert entries["f_mem_access_global_int32_load_lstrides:{0:1}_gstrides:{0:8}"].exact


@pytest.mark.parametrize("subscript", ["n - 1 - idx[i]", "idx[i] if i > 3 else 0", "idx[i]//2 + idx[2*(n-i) - 1] % 3"])
def test_keys_are_accesses_as_written_or_as_messages_print_them(subscript):
    kernel = make(LINE, f"y[i] = x[{subscript}]", "x, y: float32[n]; idx: int32[2*n]")
    with pytest.raises(UnsupportedKernelError, match="is indirect") as caught:
        extract_scop(kernel)
    for key in (caught.value.context["access"], f"x[{subscript}]"):
        assert of_array(annotate(kernel, accesses={key: "anywhere"}), "x").access.assumed


@pytest.mark.parametrize("value", ["lid0 + 8*gid0", "i", "i_inner + 8*i_outer", "8*gid0 + i_inner"])
def test_stand_ins_know_loops_before_and_after_splitting_and_hardware_axes(value):
    item = of_array(annotate(gathered(), accesses={"x": value}), "x")
    assert [str(stride) for stride in (*item.local_strides, *item.group_strides)] == ["1", "8"]
    assert item.access.assumed


def test_anywhere_has_no_strides_and_the_whole_array_as_bound():
    item = of_array(annotate(gathered(), accesses={"x": "anywhere"}), "x")
    assert (item.local_strides, item.is_uniform) == ((None,), False)
    assert item.footprint.evaluate({"n": N}) == N
    assert not item.owner.footprint_among((item,)).exact


BLOCKS = blocks_of_rows("4*j <= k < 4*j + 4")
DEPENDS = "'k' whose trip count depends on the value of loop 'j'"


@pytest.mark.parametrize(("kernel", "stated", "message"), [
    (gathered(), {}, r"access x\[idx\[.*is indirect.*accesses=.* --state 'x\[idx\[i_inner.*=anywhere'"),
    (csr("length"), {}, r"loop 'j'.*depends on the data \(len.*trip_counts=\{'j': 8\}.* --state j=8"),
    (literal(), {}, r"instruction 'lit' is literal code.*by hand as a Scop.*source_kernel"),
    (csr("length"), {"trip_counts": {"j": 2}}, r"vals\[start \+ j\].*start depends on the data"),
    (csr("start", "j"), {"trip_counts": {"j": 2}}, r"vals\[j\].*j depends on the data"),
    (csr("length"), {"trip_counts": {"j": 2, "k": 2}}, "no loop 'k'"),
    (gathered(), {"trip_counts": {"i": 2}}, "none of its loops do"),
    (csr("length"), {"trip_counts": {"j": -1}}, "above zero"),
    (csr("length"), {"trip_counts": {"j": None}}, "a number or an expression"),
    (csr("length"), {"trip_counts": {"j": "n/"}}, "cannot have 'n/' for the trips of loop 'j'; state a number"),
    (gathered(), {"accesses": {"x": "i", "y": "i"}}, "'y' fits no access that needs"),
    (gathered(), {"accesses": {"x": "i, i"}}, "2 subscripts; array 'x' has 1"),
    (gathered(), {"accesses": {"x": "q"}}, "'q', stated for x, is not quasi-affine.*lid0"),
    (gathered(), {"accesses": {"x": "i +"}}, "cannot be read as an expression"),
    # Loops inside one that begins where data say.
    (BLOCKS, {"trip_counts": {"j": 8}, "accesses": {"x[j]": "anywhere"}}, r"v\[k\].*k depends on the data"),
    *((blocks_of_rows(inner), {"trip_counts": {"j": 8}}, DEPENDS) for inner in ("0 <= k < j", "j <= k < n")),
])  # fmt: skip
def test_what_is_not_known_or_makes_no_sense_is_refused_with_the_fix(kernel, stated, message):
    with pytest.raises(UnsupportedKernelError, match=message):
        extract_scop(annotate(kernel, **stated) if stated else kernel)


def test_loops_inside_one_that_begins_where_data_say_count_where_their_subscripts_are_stated():
    stated = annotate(BLOCKS, trip_counts={"j": 8}, accesses={"x[j]": "anywhere", "v[k]": "anywhere"})
    assert counted(stated)[MADDS].value == N * 8 * 4


@pytest.mark.parametrize("trips", [7.5, "m", "m + 1"])
@pytest.mark.parametrize("stated", ["8*i + j", "nnz - 1 - 8*i - j", "anywhere"])
def test_arrays_may_be_as_long_as_a_size_that_no_loop_has(trips, stated):
    domains = [LINE, "[start, end] -> {[j]: start <= j < end}"]
    text = "<int32> start = rowptr[i]\n<int32> end = rowptr[i + 1]\ny[i] = sum(j, vals[j]*x[cols[j]])"
    data = "rowptr: int32[n+1]; cols: int32[nnz]; vals: float32[nnz]; x, y: float32[n]; m, nnz: int32"
    kernel = make(domains, text, data)
    kernel = annotate(kernel, trip_counts={"j": trips}, accesses={"vals": stated, "cols": stated, "x": "anywhere"})
    sizes = {"n": N, "nnz": 8 * N, "m": 7}
    arrays = [f"f_mem_access_array:{name}" for name in ("vals", "cols", "x")]
    number = {"m": 7, "m + 1": 8}.get(trips, trips)
    assert [entry.value for entry in count_features(kernel, sizes, identifiers=arrays)] == [N * number] * 3
    # An average of 7.5 has 8 iterations, some of which count half.
    footprint = count_features(kernel, sizes, identifiers=["f_mem_footprint_array:vals"])[0].value
    assert footprint == N * (8 if stated == "anywhere" else math.ceil(number))


def test_annotations_add_up():
    first = annotate(csr("length"), trip_counts={"j": 2})
    both = annotate(first, accesses=ROW_WISE)
    again = annotate(both, trip_counts={"j": 4})
    assert [counted(each)[MADDS].value for each in (both, again, both)] == [2 * N, 4 * N, 2 * N]
