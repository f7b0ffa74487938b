"""Vectors, atomics, users' functions, flattened subscripts and arithmetic in subscripts."""

from __future__ import annotations

import loopy as lp
import numpy as np
import pytest

from oracles import oclgrind
from perflex.features import count_features, counts_of, extract_scop

N = 24


class MyOwn(lp.ScalarCallable):
    def with_types(self, arg_id_to_dtype, callables_table):  # noqa: ARG002 - loopy's
        from loopy.types import NumpyType

        types = {0: NumpyType(np.float32), -1: NumpyType(np.float32)}
        return self.copy(name_in_target="my_own", arg_id_to_dtype=types), callables_table

    def with_descrs(self, arg_id_to_descr, callables_table):  # noqa: ARG002 - loopy's
        from loopy.kernel.function_interface import ValueArgDescriptor

        return self.copy(arg_id_to_descr={0: ValueArgDescriptor(), -1: ValueArgDescriptor()}), callables_table


def parallel(kernel, iname="i", width=8):
    return lp.split_iname(kernel, iname, width, outer_tag="g.0", inner_tag="l.0")


def make(text, args, domains="{[i]: 0 <= i < n}"):
    args = [*args, lp.ValueArg("n", np.int32)]
    return lp.make_kernel(domains, text, args, assumptions="n >= 8", lang_version=(2018, 2))


def vector(name):
    cltypes = pytest.importorskip("pyopencl.cltypes", reason="vector types come with pyopencl")
    return getattr(cltypes, name)


def moved(scop, direction):
    """Bytes over all global accesses of a direction."""
    items = [i for i in counts_of(scop).accesses if i.access.direction == direction and i.array.space == "global"]
    return sum(i.work_item_count.evaluate({"n": N}) * i.array.itemsize for i in items)


def value(scop, identifier):
    return next(e.value for e in count_features(scop, {"n": N}, identifiers=[identifier], sub_group_size=1))


@pytest.mark.slow
@oclgrind.needs_oclgrind
@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_vector_types_count_by_element(lanes):
    arrays = [lp.GlobalArg("x,y", vector(f"float{lanes}"), shape=("n",))]
    kernel = parallel(make("y[i] = x[i]*x[i] + y[i]", arrays))
    scop, run = extract_scop(kernel), oclgrind.run(kernel, {"n": N})
    assert moved(scop, "load") == run.load("global").bytes == 3 * lanes * 4 * N
    assert moved(scop, "store") == run.store("global").bytes
    assert value(scop, "f_op_float32_madd") == lanes * N
    assert sum(count for name, count in run.calls.items() if "fmuladd" in name) * lanes == lanes * N
    strides = {str(i.local_strides[0]) for i in counts_of(scop).accesses}
    assert strides == {str(lanes)}


def test_vectors_of_three_are_stored_as_four():
    kernel = parallel(make("y[i] = x[i] + y[i]", [lp.GlobalArg("x,y", vector("float3"), shape=("n",))]))
    scop = extract_scop(kernel)
    assert value(scop, "f_op_float32_add") == 3 * N
    item = counts_of(scop).accesses[0]
    assert str(item.local_strides[0]) == "4"
    assert item.footprint.evaluate({"n": N}) == 3 * N


def test_components_of_vectors_are_scalars():
    args = [lp.GlobalArg("x", vector("float4"), shape=("n",)), lp.GlobalArg("y", np.float32, shape=("n",))]
    scop = extract_scop(parallel(make("y[i] = x[i].s0*x[i].s3", args)))
    assert value(scop, "f_op_float32_mul") == N
    assert moved(scop, "load") == 2 * 4 * N
    loads = [item for item in counts_of(scop).accesses if item.array.name == "x"]
    assert counts_of(scop).footprint_among(tuple(loads)).elements.evaluate({"n": N}) == 2 * N


@oclgrind.needs_oclgrind
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_atomic_updates_are_load_operation_store_and_atomic(dtype):
    # Each work-item updates an element of its own, so that none has to try again.
    args = [lp.GlobalArg("x", dtype, shape=("n",)), lp.GlobalArg("y", dtype, shape=("n",), for_atomic=True)]
    kernel = parallel(make("y[n - 1 - i] = y[n - 1 - i] + x[i] {atomic}", args))
    scop, run = extract_scop(kernel), oclgrind.run(kernel, {"n": N})
    name = np.dtype(dtype).name
    assert value(scop, f"f_op_{name}_atomic") == run.called("atomic_cmpxchg") == N
    assert value(scop, f"f_op_{name}_add") == N
    assert value(scop, f"f_mem_access_global_{name}_load") == run.load("global").count
    assert value(scop, f"f_mem_access_global_{name}_store") == N
    assert not any(item.exact for item in counts_of(scop).accesses)


def test_users_functions_count_under_their_names():
    kernel = parallel(make("y[i] = my_own(x[i])*2 + 1", [lp.GlobalArg("x,y", np.float32, shape=("n",))]))
    kernel = lp.register_callable(kernel, "my_own", MyOwn("my_own"))
    scop = extract_scop(kernel)
    assert value(scop, "f_op_float32_call:my_own") == N
    assert "f_op_float32_call:my_own" in {entry.identifier for entry in count_features(scop)}
    from perflex import Model

    assert Model("f_cl_wall_time_x", "p_c * f_op_float32_call:my_own").input_features() == ["f_op_float32_call:my_own"]


def flat(subscript, shape, dims="{[i, j]: 0 <= i, j < n}", **more):
    args = [lp.GlobalArg("x", np.float32, shape=shape, **more), lp.GlobalArg("y", np.float32, shape=("n", "n"))]
    return parallel(make(f"y[i, j] = x[{subscript}]", args, dims), "j")


@pytest.mark.parametrize(
    ("flattened", "plain"),
    [
        ("n*i + j", "i, j"),
        ("j*n + i", "j, i"),
        ("n*(i + 1) - j - 1", "i, n - 1 - j"),
        ("n*n - 1 - n*i - j", "n - 1 - i, n - 1 - j"),
        ("(i*n + j)", "i, j"),
    ],
)
def test_flattened_subscripts_are_the_axes_they_stand_for(flattened, plain):
    one = next(i for i in counts_of(extract_scop(flat(flattened, ("n*n",)))).accesses if i.array.name == "x")
    two = next(i for i in counts_of(extract_scop(flat(plain, ("n", "n")))).accesses if i.array.name == "x")
    assert (one.local_strides, one.group_strides) == (two.local_strides, two.group_strides)
    assert one.work_item_count == two.work_item_count
    assert one.footprint.evaluate({"n": N}) == two.footprint.evaluate({"n": N}) == N * N
    assert one.footprint_exact


def test_flattened_rows_that_overlap_have_a_bound_for_a_footprint():
    args = [lp.GlobalArg("x", np.float32, shape=("2*n*n",)), lp.GlobalArg("y", np.float32, shape=("n", "2*n"))]
    kernel = parallel(make("y[i, j] = x[n*i + j]", args, "{[i, j]: 0 <= i < n and 0 <= j < 2*n}"), "j")
    item = next(i for i in counts_of(extract_scop(kernel)).accesses if i.array.name == "x")
    assert item.footprint.evaluate({"n": N}) == 2 * N * N
    assert not item.footprint_exact  # row i's second half is row i + 1's first


def test_subscript_arithmetic_is_not_counted():
    kernel = flat("i, j", ("n", "n"))
    assert not [e for e in count_features(extract_scop(kernel)) if "int32_" in e.identifier and "op" in e.identifier]
