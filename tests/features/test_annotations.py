"""What a kernel's description cannot tell and the user states: against Oclgrind, and against equivalent kernels."""

import loopy as lp
import numpy as np
import pytest

from oracles import oclgrind
from oracles._oclgrind_child import _input_array
from perflex.errors import UnsupportedKernelError
from perflex.features import annotate, count_features, counts_of, extract_scop, kernel_feature_values
from support.written_kernels import written

N = 40


GRID = "i/8: g.0, l.0"
LINE = "{[i]: 0 <= i < n}"


def make(domains, text, data):
    return written(domains, text, data, GRID, assume="n >= 8")


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


def counted(kernel, sizes=None):
    scop = extract_scop(kernel)
    return {entry.identifier: entry for entry in count_features(scop, sizes or {"n": N}, sub_group_size=1)}


def traffic(kernel, array, direction):
    items = [i for i in counts_of(extract_scop(kernel)).accesses if i.array.name == array]
    return sum(i.work_item_count.evaluate({"n": N}) for i in items if i.access.direction == direction)


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
    run = oclgrind.run(kernel, {"n": N})
    assert counted(stated)["f_op_float32_madd"].value == pytest.approx(run.madds(), rel=1e-12)
    loads = sum(traffic(stated, array, "load") for array in ("rowptr", "cols", "vals", "x"))
    assert loads == pytest.approx(run.load("global").count, rel=1e-12)
    assert not counted(stated)["f_op_float32_madd"].exact
    assert traffic(stated, "y", "store") == run.store("global").count == N


def test_a_whole_trip_count_is_the_kernel_with_that_constant():
    stated = annotate(csr("length"), trip_counts={"j": 6}, accesses=ROW_WISE)
    domain, data = "{[i, j]: 0 <= i < n and 0 <= j < 6}", "vals, w: float32[5*n]; y: float32[n]"
    constant = make(domain, "y[i] = sum(j, vals[5*i + j]*w[5*i + j])", data)
    mine = next(i for i in counts_of(extract_scop(stated)).accesses if i.array.name == "vals")
    theirs = next(i for i in counts_of(extract_scop(constant)).accesses if i.array.name == "vals")
    assert (mine.local_strides, mine.group_strides) == (theirs.local_strides, theirs.group_strides)
    assert mine.work_item_count == theirs.work_item_count
    assert mine.footprint == theirs.footprint


def test_a_split_data_dependent_loop_takes_the_count_of_its_outer_part():
    kernel = lp.split_iname(csr("length"), "j", 4)
    stated = annotate(kernel, trip_counts={"j_outer": 2.5}, accesses=ROW_WISE)
    assert counted(stated)["f_op_float32_madd"].value == 10 * N


def test_an_indirect_access_counts_as_its_stand_in():
    entries = counted(annotate(gathered(), accesses={"x[idx[i]]": "4*i"}))
    strided = entries["f_mem_access_global_float32_load_lstrides:{0:4}_gstrides:{0:32}"]
    assert strided.value == N
    assert not strided.exact
    assert entries["f_mem_access_global_int32_load_lstrides:{0:1}_gstrides:{0:8}"].exact


@pytest.mark.parametrize("value", ["lid0 + 8*gid0", "i", "i_inner + 8*i_outer", "8*gid0 + i_inner"])
def test_stand_ins_know_loops_before_and_after_splitting_and_hardware_axes(value):
    items = counts_of(extract_scop(annotate(gathered(), accesses={"x": value}))).accesses
    item = next(i for i in items if i.array.name == "x")
    assert [str(s) for s in (*item.local_strides, *item.group_strides)] == ["1", "8"]
    assert item.access.stated


def test_anywhere_has_no_strides_and_the_whole_array_as_bound():
    items = counts_of(extract_scop(annotate(gathered(), accesses={"x": "anywhere"}))).accesses
    item = next(i for i in items if i.array.name == "x")
    assert item.local_strides == (None,)
    assert not item.is_uniform
    assert item.footprint.evaluate({"n": N}) == N
    assert not item.owner.footprint_among((item,)).exact


REFUSED = {
    "an indirect access": (gathered(), {}, r"access x\[idx\[.*is indirect.*accesses="),
    "a data-dependent loop": (csr("length"), {}, r"loop 'j'.*depends on the data \(len.*trip_counts=\{'j': 8\}"),
    "literal code": (literal(), {}, r"instruction 'lit' is literal code.*by hand as a Scop.*source_kernel"),
    "an offset from data": (csr("length"), {"trip_counts": {"j": 2}}, r"vals\[start \+ j\].*start depends on the data"),
    "a first iteration from data": (csr("start", "j"), {"trip_counts": {"j": 2}}, r"vals\[j\].*j depends on the data"),
    "no such loop": (csr("length"), {"trip_counts": {"j": 2, "k": 2}}, "no loop 'k'"),
    "a loop that needs nothing": (gathered(), {"trip_counts": {"i": 2}}, "none of its loops do"),
    "a count below zero": (csr("length"), {"trip_counts": {"j": -1}}, "above zero"),
    "a count that is no number": (csr("length"), {"trip_counts": {"j": None}}, "a number or an expression"),
    "an access that needs nothing": (gathered(), {"accesses": {"x": "i", "y": "i"}}, "'y' fits no access that needs"),
    "too many subscripts": (gathered(), {"accesses": {"x": "i, i"}}, "2 subscripts; array 'x' has 1"),
    "an unknown name": (gathered(), {"accesses": {"x": "q"}}, "'q', stated for x, is not quasi-affine.*lid0"),
    "no expression": (gathered(), {"accesses": {"x": "i +"}}, "cannot be read as an expression"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_known_or_makes_no_sense_is_refused_with_the_fix(case):
    kernel, stated, message = REFUSED[case]
    with pytest.raises(UnsupportedKernelError, match=message):
        extract_scop(annotate(kernel, **stated) if stated else kernel)


def test_annotations_add_up():
    first = annotate(csr("length"), trip_counts={"j": 2})
    both = annotate(first, accesses=ROW_WISE)
    assert counted(both)["f_op_float32_madd"].value == 2 * N
    again = annotate(both, trip_counts={"j": 4})
    assert counted(again)["f_op_float32_madd"].value == 4 * N
    assert counted(both)["f_op_float32_madd"].value == 2 * N


def blocks_of_rows(inner):
    """Return a kernel whose loop j begins where an array says, with a loop k inside."""
    domains = ["{[i]: 0 <= i < n}", "[a, b] -> {[j]: a <= j < b}", f"[j, n] -> {{[k]: {inner}}}"]
    text = "<int32> a = start[i]\n<int32> b = start[i + 1]\ny[i] = sum(j, sum(k, v[k]*x[j]))"
    return written(domains, text, "start: int32[n + 1]; y, x, v: float32[100*n]")


def test_subscripts_of_loops_that_begin_where_data_say_are_not_known():
    kernel = blocks_of_rows("4*j <= k < 4*j + 4")
    with pytest.raises(UnsupportedKernelError, match=r"v\[k\].*k depends on the data"):
        extract_scop(annotate(kernel, trip_counts={"j": 8}, accesses={"x[j]": "anywhere"}))
    stated = annotate(kernel, trip_counts={"j": 8}, accesses={"x[j]": "anywhere", "v[k]": "anywhere"})
    assert kernel_feature_values(["f_op_float32_madd"], stated, {"n": 64}, 1) == {"f_op_float32_madd": 64 * 8 * 4}


@pytest.mark.parametrize("inner", ["0 <= k < j", "j <= k < n"])
def test_trip_counts_that_depend_on_a_loop_that_begins_where_data_say_are_refused(inner):
    with pytest.raises(UnsupportedKernelError, match="'k' whose trip count depends on the value of loop 'j'"):
        extract_scop(annotate(blocks_of_rows(inner), trip_counts={"j": 8}))
