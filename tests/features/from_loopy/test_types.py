"""Types of operations: vectors, atomics, users' functions, half precision."""

import loopy as lp
import numpy as np
import pytest
from loopy.kernel.function_interface import ValueArgDescriptor
from loopy.types import NumpyType

from oracles import oclgrind
from perflex import Model, annotate
from perflex.errors import UnsupportedKernelError
from perflex.features import count_features, counts_of, extract_scop
from support.written_kernels import written

N = 24


class MyOwn(lp.ScalarCallable):
    def with_types(self, _types, callables_table):
        types = dict.fromkeys((0, -1), NumpyType(np.float32))
        return self.copy(name_in_target="my_own", arg_id_to_dtype=types), callables_table

    def with_descrs(self, _descrs, callables_table):
        return self.copy(arg_id_to_descr=dict.fromkeys((0, -1), ValueArgDescriptor())), callables_table


def make(text, args=(), data="", domains="{[i]: 0 <= i < n}", loop="i"):
    return written(domains, text, data, f"{loop}/8: g.0, l.0", more=args, assume="n >= 8")


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
    kernel = make("y[i] = x[i]*x[i] + y[i]", arrays)
    scop, run = extract_scop(kernel), oclgrind.run(kernel, {"n": N})
    assert moved(scop, "load") == run.load("global").bytes == 3 * lanes * 4 * N
    assert moved(scop, "store") == run.store("global").bytes
    assert value(scop, "f_op_float32_madd") == lanes * N
    assert sum(count for name, count in run.calls.items() if "fmuladd" in name) * lanes == lanes * N
    strides = {str(i.local_strides[0]) for i in counts_of(scop).accesses}
    assert strides == {str(lanes)}


def test_vectors_of_three_are_stored_as_four():
    scop = extract_scop(make("y[i] = x[i] + y[i]", [lp.GlobalArg("x,y", vector("float3"), shape=("n",))]))
    item = counts_of(scop).accesses[0]
    assert value(scop, "f_op_float32_add") == item.footprint.evaluate({"n": N}) == 3 * N
    assert str(item.local_strides[0]) == "4"


def test_components_of_vectors_are_scalars():
    args = [lp.GlobalArg("x", vector("float4"), shape=("n",))]
    scop = extract_scop(make("y[i] = x[i].s0*x[i].s3", args, "y: float32[n]"))
    assert (value(scop, "f_op_float32_mul"), value(scop, "f_mem_footprint_array:x")) == (N, 2 * N)
    assert moved(scop, "load") == 2 * 4 * N


# What is written, whether the code has vectors, and for each work-item: multiply-adds, additions and multiplications,
# loads and stores of the elements.
@pytest.mark.parametrize(("text", "in_vectors", "operations", "accesses"), [
    ("y[i,v] = 2*x[i,v] + z[i]", True, (4, 0, 0), 4 + 1 + 4),
    ("y[i,v] = x[i,v] + z[i]*w[i]", True, (0, 4, 1), 4 + 2 + 4),
    ("z[i] = w[i]*w[i]", True, (0, 0, 1), 2 + 1),
    ("y[i,v] = x[i,v]*w[idx[i]]", True, (0, 0, 4), 4 + 2 + 4),
    ("y[i,v] = sqrt(x[i,v]) + z[i]", True, (0, 4, 0), 4 + 4 + 4),  # loopy writes calls out
    ("y[i,v] = 2*x[i,v] + z[i]", False, (4, 0, 0), 4 + 4 + 4),
])  # fmt: skip
def test_scalars_beside_vectors_count_once(text, in_vectors, operations, accesses):
    data = "x, y: float32[n, 4]; z, w: float32[n]; idx: int32[n]"
    kernel = written("{[i,v]: 0 <= i < n and 0 <= v < 4}", text, data, "i/8: g.0, l.0")
    kernel = lp.tag_array_axes(kernel, "x,y", "C,vec") if in_vectors else kernel
    kernel = lp.tag_inames(kernel, {"v": "vec"})
    annotated = annotate(kernel, accesses={"w[idx[i_inner + i_outer*8]]": "i"}) if "idx" in text else kernel
    scop = extract_scop(annotated)
    kinds = [value(scop, f"f_op_float32_{kind}") for kind in ("madd", "add", "mul")]
    assert kinds == [each * N for each in operations]
    assert moved(scop, "load") + moved(scop, "store") == 4 * N * accesses


@oclgrind.needs_oclgrind
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_atomic_updates_are_load_operation_store_and_atomic(dtype):
    # Each work-item updates an element of its own, so that none has to try again.
    args = [lp.GlobalArg("x", dtype, shape=("n",)), lp.GlobalArg("y", dtype, shape=("n",), for_atomic=True)]
    kernel = make("y[n - 1 - i] = y[n - 1 - i] + x[i] {atomic}", args)
    scop, run = extract_scop(kernel), oclgrind.run(kernel, {"n": N})
    name = np.dtype(dtype).name
    assert value(scop, f"f_op_{name}_atomic") == run.called("atomic_cmpxchg") == N
    assert value(scop, f"f_mem_access_global_{name}_load") == run.load("global").count
    assert value(scop, f"f_op_{name}_add") == value(scop, f"f_mem_access_global_{name}_store") == N
    assert not any(item.exact for item in counts_of(scop).accesses)


def test_users_functions_count_under_their_names():
    kernel = make("y[i] = my_own(x[i])*2 + 1", data="x, y: float32[n]")
    kernel = lp.register_callable(kernel, "my_own", MyOwn("my_own"))
    scop = extract_scop(kernel)
    assert value(scop, "f_op_float32_call:my_own") == N
    assert "f_op_float32_call:my_own" in {entry.identifier for entry in count_features(scop)}
    assert Model("f_cl_wall_time_x", "p_c * f_op_float32_call:my_own").input_features() == ["f_op_float32_call:my_own"]


def flat(subscript, shape, most="n"):
    """The access to x in a kernel."""
    domain, data = f"{{[i, j]: 0 <= i < n and 0 <= j < {most}}}", f"x: float32[{shape}]; y: float32[n, {most}]"
    scop = extract_scop(make(f"y[i, j] = x[{subscript}]", (), data, domain, "j"))
    # Arithmetic of subscripts is not counted.
    assert not [e for e in count_features(scop) if "int32_" in e.identifier and "op" in e.identifier]
    return next(item for item in counts_of(scop).accesses if item.array.name == "x")


@pytest.mark.parametrize(("flattened", "plain"), [
    ("n*i + j", "i, j"), ("j*n + i", "j, i"), ("n*(i + 1) - j - 1", "i, n - 1 - j"),
    ("n*n - 1 - n*i - j", "n - 1 - i, n - 1 - j"), ("(i*n + j)", "i, j"),
])  # fmt: skip
def test_flattened_subscripts_are_the_axes_they_stand_for(flattened, plain):
    one, two = flat(flattened, "n*n"), flat(plain, "n, n")
    assert (one.local_strides, one.group_strides) == (two.local_strides, two.group_strides)
    assert one.work_item_count == two.work_item_count
    assert one.footprint.evaluate({"n": N}) == two.footprint.evaluate({"n": N}) == N * N
    assert one.owner.footprint_among((one,)).exact


def test_flattened_rows_that_overlap_have_a_bound_for_a_footprint():
    item = flat("n*i + j", "2*n*n", "2*n")
    assert item.footprint.evaluate({"n": N}) == 2 * N * N
    assert not item.owner.footprint_among((item,)).exact  # row i's second half is row i + 1's first


SIZE = 8


def counted(body, *, result="float16", right="float16", tags="i:l.1; j:l.0"):
    """Return the operations of a kernel on two arrays of 8 by 8, over all work-items."""
    data = f"a: float16[8,8]; b: {right}[8,8]; c: {result}[8,8]; e, g: int8[8,8]"
    loops = [loop for loop in "ijkl" if loop in body.replace("float", "").replace("if", "")]
    kernel = written(f"{{[{', '.join(loops)}]: 0 <= {', '.join(loops)} < 8}}", body, data, tags, assume="")
    found = count_features(extract_scop(kernel), {}, sub_group_size=1)
    return {one.identifier.removeprefix("f_op_"): one.value for one in found if one.identifier.startswith("f_op_")}


@pytest.mark.parametrize(("body", "operations"), [
    # By hand: 8 by 8 results, of 8 steps each.
    ("c[i, j] = sum(k, a[i, k]*b[k, j])", {"float16_madd": SIZE**3}),
    ("c[i, j] = product(k, a[i, k])", {"float16_mul": SIZE**3}),
    ("c[i, j] = a[i, j] + sum(k, a[i, k]*b[k, j])", {"float16_madd": SIZE**3, "float16_add": SIZE**2}),
    ("c[i, j] = sum(k, a[i, k]*sum(l, b[k, l]))", {"float16_add": SIZE**4, "float16_madd": SIZE**3}),
    ("c[i, j] = a[i, j]*0.5 + 0.25", {"float16_madd": SIZE**2}),
    ("c[i, j] = a[i, j]*0.5 if a[i, j] > b[i, j] else 1.5", {"float16_cmp": SIZE**2, "float16_mul": SIZE**2}),
    ("c[i, j] = i/(j + 1)*a[i, j]", {"float16_add": SIZE**2, "float16_div": SIZE**2, "float16_mul": SIZE**2}),
])  # fmt: skip
def test_half_precision_is_counted_as_such(body, operations):
    assert counted(body) == operations


@pytest.mark.parametrize(("options", "dtype"), [
    ({"result": "float32"}, "float16"), ({"result": "float32", "right": "float32"}, "float32"),
])  # fmt: skip
def test_the_terms_decide_the_type_of_a_reduction_not_the_result(options, dtype):
    assert counted("c[i, j] = sum(k, a[i, k]*b[k, j])", **options) == {f"{dtype}_madd": SIZE**3}


def test_a_reduction_in_local_memory():
    # By hand: each of 8 work-items has one term to begin with; then the tree of 8 has 4 + 2 + 1 additions.
    assert counted("c[i, 0] = sum(k, a[i, k])", tags="k:l.0; i:g.0") == {"float16_add": SIZE * (SIZE + 7)}


@pytest.mark.parametrize(("body", "message", "written", "operations"), [
    ("c[i, j] = max(k, a[i, k])",
        r"no number of type float16 to begin a max reduction.*<float16> m = x\[0\].*m = fmax\(m, x\[k\]\)",
        "<float16> m = a[i, 0] {id=m0}|m = fmax(m, a[i, k]) {id=m1,dep=m0}|c[i, j] = m {dep=m1}",
        {"float16_max": SIZE**3}),
    ("g[i, j] = min(k, e[i, k])",
        r"no number of type int8 to begin a min reduction.*<int8> m = x\[0\].*m = x\[k\] if x\[k\] < m else m ",
        "<int8> m = e[i, 0] {id=m0}|m = e[i, k] if e[i, k] < m else m {id=m1,dep=m0}|g[i, j] = m {dep=m1}",
        {"int32_cmp": SIZE**3}),
])  # fmt: skip
def test_a_maximum_that_loopy_cannot_begin_says_how_to_write_it(body, message, written, operations):
    with pytest.raises(UnsupportedKernelError, match=message):
        counted(body)
    before, step, after = written.split("|")
    assert counted(f"for i, j\n{before}\nfor k\n{step}\nend\n{after}\nend") == operations
