"""Work that a user states: calls of a library on parts of arrays, and instructions that are not to be counted."""

import loopy as lp
import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import InstructionCounts, annotate, count_features, extract_scop
from support.written_kernels import written

N = 50


class Gemv(lp.ScalarCallable):
    """A matrix times a vector, by a library."""

    def with_types(self, arg_id_to_dtype, clbl_inf_ctx):
        if not {0, 1} <= set(arg_id_to_dtype):
            return self, clbl_inf_ctx
        kind = arg_id_to_dtype[1]
        return self.copy(name_in_target="gemv", arg_id_to_dtype={0: kind, 1: kind, -1: kind}), clbl_inf_ctx

    def with_descrs(self, arg_id_to_descr, clbl_inf_ctx):
        return self.copy(arg_id_to_descr=arg_id_to_descr), clbl_inf_ctx


def data(columns):
    return f"A: float64[n, 8, {columns}]; x: float64[n, {columns}]; y: float64[n, 8]"


def called(columns=8):
    """Return e products of a matrix of 8 rows and a vector, of which loopy sees the call only."""
    domain = f"{{[e, i, j]: 0 <= e < n and 0 <= i < 8 and 0 <= j < {columns}}}"
    text = "[i]: y[e, i] = gemv([i, j]: A[e, i, j], [j]: x[e, j]) {id=call}"
    kernel = written(domain, text, data(columns), target=lp.CTarget())
    return lp.register_callable(kernel, "gemv", Gemv(name="gemv"))


def written_out():
    domain, text = (
        "{[e, i, j]: 0 <= e < n and 0 <= i < 8 and 0 <= j < 12}",
        "y[e, i] = sum(j, A[e, i, j]*x[e, j]) {id=call}",
    )
    return written(domain, text, data(12), target=lp.CTarget())


def counted(kernel):
    return {one.identifier: one.value for one in count_features(extract_scop(kernel), {"n": N})}


def test_a_call_on_sub_arrays_counts_as_stated_and_each_element_once():
    scop = extract_scop(annotate(called(), instructions={"call": InstructionCounts.of({"float64_madd": 64})}))
    found = count_features(scop, {"n": N})
    values = {one.identifier: one.value for one in found}
    assert values["f_op_float64_madd"] == N * 64
    assert values["f_mem_access_global_float64_load"] == N * (64 + 8)
    assert values["f_mem_access_global_float64_store"] == N * 8
    assert [values[f"f_mem_footprint_array:{name}"] for name in ("A", "x", "y")] == [N * 64, N * 8, N * 8]
    assert not any(one.exact for one in found if one.identifier.startswith(("f_op", "f_mem")))


def test_the_callable_may_be_of_a_class_that_cannot_be_kept():
    class Inside(Gemv):
        """A class that no other process can import."""

    kernel = lp.register_callable(called(), "gemv", Inside(name="gemv"), redefining_not_ok=False)
    stated = {"call": InstructionCounts.of({"float64_madd": 64})}
    assert counted(annotate(kernel, instructions=stated))["f_op_float64_madd"] == N * 64


def test_accesses_of_stated_work_may_be_in_loops_over_sub_arrays():
    # What is stated is what the written-out kernel does.
    stated = InstructionCounts.of({}, ["A[e, i, j]", "x[e, j]"], ["y[e, i]"])
    mine, written = (counted(kernel) for kernel in (annotate(called(12), instructions={"call": stated}), written_out()))
    names = ("f_mem_footprint_array:A", "f_mem_footprint_array:x", "f_mem_access_global_float64_store")
    assert {name: mine[name] for name in names} == {name: written[name] for name in names}
    assert mine["f_mem_access_global_float64_load"] == N * (8 * 12 + 12)
    assert "f_op_float64_madd" not in mine
    # The vector again for each row, as the loops of the call allow.
    again = InstructionCounts.of({}, ["A[e, i, j]", *["x[e, j]"] * 8])
    loads = counted(annotate(called(12), instructions={"call": again}))["f_mem_access_global_float64_load"]
    assert loads == written["f_mem_access_global_float64_load"] == N * 2 * 8 * 12


def test_any_instruction_may_be_stated():
    kernel = written("{[i]: 0 <= i < n}", "y[i] = exp(x[i])*x[i] + 1 {id=hard}", "x, y: float32[n]")
    plain = counted(kernel)
    table = counted(annotate(kernel, instructions={"hard": InstructionCounts.of({"float32_madd": 3})}))
    assert {name for name in plain if name.startswith("f_op")} == {"f_op_float32_exp", "f_op_float32_madd"}
    expected = {name: value for name, value in plain.items() if not name.startswith("f_op")}
    # On the one work-item, for each of 50 iterations.
    assert table == expected | {"f_op_float32_madd": 3 * N}
    none = counted(annotate(kernel, instructions={"hard": InstructionCounts.of({}, ["x[i]"])}))
    assert not any(name.startswith("f_op") or "store" in name for name in none)


@pytest.mark.parametrize(("kernel", "stated", "message"), [
    (called(), {}, r"'call' is a call on sub-arrays \(gemv.*annotate\(kernel, instructions=\{'call': Instr"),
    (called(), {"calls": InstructionCounts()}, "'calls' fits no instruction"),
    (written_out(), {"call": InstructionCounts()}, "reduction of instruction 'call' is .* state call_j_update"),
])  # fmt: skip
def test_what_is_not_stated_or_fits_nothing_is_refused(kernel, stated, message):
    with pytest.raises(UnsupportedKernelError, match=message):
        extract_scop(annotate(kernel, instructions=stated))
