"""Kernels in OpenCL C and CUDA C: conditions, chains, calls, templates, and what cannot be known."""

import pickle
from pathlib import Path

import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import count_features, kernel_feature_values, scop_from_yaml, scop_to_yaml, source_kernel
from perflex.features.families.registry import parse_feature
from perflex.features.from_source import parsing
from perflex.features.from_source.kernel_function import kernels_in
from perflex.features.target import Target

SUMS = """
__kernel void sums(__global float *a, __global float *c, int n) {{
  int i = get_global_id(0);
  for (int k = 0; k < n; k++) {{ {body} }}
}}
"""


@pytest.mark.parametrize(("body", "length"), [
    ("c[i] += a[k];", 1), ("c[i] = a[k] * c[i] + 1.0f;", 1), ("c[i] = (c[i] + a[k]) * a[k + 1];", 2),
    ("float t = c[i] + a[k]; c[i] = t;", 1), ("c[k] += a[i];", 0), ("c[i + 1] = c[i] + a[k];", 0),
    ("c[i] = a[k] + a[k + 1];", 0),
])  # fmt: skip
def test_an_element_that_each_iteration_updates(body, length):
    kernel = source_kernel(SUMS.format(body=body), "sums", local=(32,), global_size=("n",))
    found = {
        kind: parse_feature(f"f_chain_float32_{kind}").value(kernel.scop(), {"n": 64}, Target(sub_group_size=32))
        for kind in ("add", "mul", "madd")
    }
    assert sum(found.values()) == 2 * 64 * length


def test_a_value_loaded_before_the_loop_is_no_update():
    text = SUMS.format(body="c[i] = t + a[k];").replace("for (", "float t = c[i];\n  for (", 1)
    kernel = source_kernel(text, "sums", local=(32,), global_size=("n",))
    found = parse_feature("f_chain_float32_add").value(kernel.scop(), {"n": 64}, Target(sub_group_size=32))
    assert found == 0


KERNEL = """
__global__ void f(float *a, float *m, const int *flag, int n) {{
    int i = blockIdx.x * 64 + threadIdx.x;
    {body}
}}
"""


def stores(body):
    """Stores of 256 work-items for 200 elements, and whether they are exact."""
    kernel = source_kernel(KERNEL.format(body=body), "f", local=[64], groups=[4])
    (found,) = count_features(kernel, {"n": 200}, identifiers=["f_mem_access_global_store"])
    return float(found.value), found.exact


@pytest.mark.parametrize(("call", "operation"), [
    ("a[i] = __shfl_down_sync(~0u, a[i], 1);", "float32_shuffle"),
    ("if (__any_sync(~0u, i > 7)) a[i] = 1;", "uint32_vote"), ("a[i] = __ballot_sync(~0u, i > 7);", "uint32_vote"),
])  # fmt: skip
def test_what_exchanges_values_in_a_sub_group_is_an_operation(call, operation):
    kernel = source_kernel(KERNEL.format(body=call), "f", local=[64], groups=[4])
    assert parse_feature(f"f_op_{operation}").value(kernel.scop(), {"n": 200}, Target(sub_group_size=32)) == 8


WRAPPED = """
__global__ void f(float *a, unsigned n, unsigned m) {{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[{subscript}] = 1;
}}
"""


@pytest.mark.parametrize(("subscript", "sizes", "wraps"), [
    ("i", {"n": 2**30}, False), ("i * 4", {"n": 2**29}, False), ("i * 4", {"n": 2**30 + 1}, True),
    ("i * m", {"n": 2**16, "m": 2**16}, False), ("i * m", {"n": 2**16 + 1, "m": 2**16 + 1}, True),
    ("(size_t)i * m", {"n": 2**17, "m": 2**17}, False), ("(i * 2654435761u) % 64", {"n": 2}, False),
    ("(i * 2654435761u) % 64", {"n": 3}, True),
])  # fmt: skip
def test_an_unsigned_subscript_that_wraps_around_is_not_known(subscript, sizes, wraps):
    launch = {"local": [256], "groups": ["ceil_div(n, 256)"], "stated": {"a": 7}}
    kernel = source_kernel(WRAPPED.format(subscript=subscript), "f", **launch)
    (found,) = count_features(kernel, {"m": 1, **sizes}, identifiers=["f_mem_footprint_array:a"])
    # What data decide may be any of the elements that are stated.
    assert (found.value == 7) is wraps


@pytest.mark.parametrize(("head", "trips"), [
    ("unsigned i = 0; i < 8; i++", 8), ("unsigned i = threadIdx.x; i < 64; i += blockDim.x", 1),
    ("unsigned char i = 0; i < 255; i += 5", 51), ("unsigned i = 0; i < n; i++", 200),
    # Two of each, if nothing wrapped around.
    ("unsigned i = 0; i * 2147483648u < 2147483649u; i++", None),
    ("unsigned i = 0; i <= 4294967294u; i += 4294967294u", None),
])  # fmt: skip
def test_unsigned_counters_stay_below_their_limits_while_they_are_tested(head, trips):
    body = f"for ({head}) a[(size_t)i + threadIdx.x] = 1;"
    kernel = source_kernel(KERNEL.format(body=body), "f", local=[64], groups=[4])
    if trips is None:
        with pytest.raises(UnsupportedKernelError, match=r"trip count .* is not known"):
            kernel.scop({"n": 200})
        return
    (found,) = count_features(kernel, {"n": 200}, identifiers=["f_mem_access_global_store"])
    assert found.value == 4 * 64 * trips


def test_a_counter_that_the_test_halves():
    body = "int s = 8; while (s >>= 1) a[threadIdx.x + s] = 1;"
    kernel = source_kernel(KERNEL.format(body=body), "f", local=[64], groups=[4])
    names = ["f_mem_access_global_store", "f_mem_footprint_array:a"]
    found = [each.value for each in count_features(kernel, {"n": 200}, identifiers=names)]
    # Elements 1 to 67, in iterations of 4, 2 and 1.
    assert found == [4 * 64 * 3, 67]


MACROS = """
#define TWICE(a) ((a) + (a))
#define INDEX(a, b) __umul24(a, b)
#define LENGTH(v) (v.x * v.x)
__global__ void f(float4 *v, float *y) {{
    {body}
}}
"""


def test_constants_of_macros_are_folded():
    body = "#define GAMMA (1.4f)\n y[threadIdx.x] = y[threadIdx.x] * (GAMMA - 1.0f);"
    kernel = source_kernel(MACROS.format(body=body), "f", local=[64], groups=[4])
    assert parse_feature("f_op_float32_add").value(kernel.scop(), {}, Target(sub_group_size=32)) == 0


def test_elements_of_vectors_in_macros():
    body = "int i = INDEX(blockDim.x, blockIdx.x) + threadIdx.x; if (v) y[i] = TWICE(v[i].z) + TWICE(TWICE(v->w));"
    twin = "int i = blockDim.x * blockIdx.x + threadIdx.x; y[i] = (v[i].z + v[i].z) + (v->w + v->w + (v->w + v->w));"
    found, expected = (
        {each.identifier: each.value for each in count_features(kernel, {})}
        for kernel in (source_kernel(MACROS.format(body=each), "f", local=[64], groups=[4]) for each in (body, twin))
    )
    assert found == expected
    # Five each for 256 work-items in sub-groups of 32.
    assert found["f_op_float32_add"] == 5 * 8
    body = "y[threadIdx.x] = LENGTH(v[threadIdx.x]);"
    [count] = count_features(
        source_kernel(MACROS.format(body=body), "f", local=[64], groups=[4]), {}, identifiers=["f_op_float32_mul"]
    )
    assert count.value == 8
    # Of vectors that are no structs clang hides it.
    body = MACROS.format(body=body).replace("__global__", "kernel").replace("float", "global float", 1)
    opencl = body.replace("float *y", "global float *y").replace("threadIdx.x", "get_local_id(0)")
    with pytest.raises(UnsupportedKernelError, match=r"kernel.cl:6: which element of a vector a macro names"):
        source_kernel(opencl, "f", local=[64], groups=[4]).scop()


def test_matrix_units_have_no_time_yet():
    scop = source_kernel(KERNEL.format(body="a[i] = a[i] * 2 + 1;"), "f", local=[64], groups=[4]).scop()
    text = scop_to_yaml(scop).replace("kind: madd", "kind: mma")
    with pytest.raises(UnsupportedKernelError, match="matrix units"):
        kernel_feature_values(["f_peak_fp32"], scop_from_yaml(text), {"n": 200}, machine="V100")


@pytest.mark.parametrize(("body", "most"), [
    ("if (flag[i] && i < n) a[i] = 1;", 200), ("if (i < n && flag[i]) a[i] = 1;", 200),
    ("if (i < n && flag[i] && threadIdx.x < 3) a[i] = 1;", 12), ("if (!(i >= n || flag[i])) a[i] = 1;", 200),
    ("if (i < n || flag[i]) a[i] = 1;", 256), ("if (i < n && flag[i]) {} else a[i] = 1;", 256),
    ("if (i >= n || flag[i]) {} else a[i] = 1;", 200), ("if (i < 0 && flag[i]) a[i] = 1;", 0),
])  # fmt: skip
def test_known_parts_bound_the_others(body, most):
    # By truth tables: the most elements of any flags for which it stores.
    assert stores(body)[0] == most


BYTES = """
kernel void f(global char *rows, ulong stride, ulong start, int n) {
    global float *row = (global float *)(rows + start + get_group_id(0) * stride);
    row[get_local_id(0)] *= 2.0f;
}
"""


@pytest.mark.parametrize(("stride", "start", "element"), [
    (512, 0, "float32"), (512, 8, "float32"), (510, 0, "uint16"), (512, 3, "uint8"),
])  # fmt: skip
def test_rows_that_begin_at_a_byte_have_the_largest_elements_that_fit_these_sizes(stride, start, element):
    kernel = source_kernel(BYTES, "f", local=[64], groups=["n"])
    identifiers = [f"f_mem_access_global_{kind}_load" for kind in ("float32", "uint16", "uint8")]
    found = count_features(kernel, {"stride": stride, "start": start, "n": 5}, identifiers=identifiers)
    counts = {entry.identifier.split("_")[4]: entry.value for entry in found if entry.value}
    assert counts == {element: 64 * 5 * 4 // int(element.removeprefix("float").removeprefix("uint")) * 8}


def test_functions_of_sub_groups_are_stated_as_macros():
    loop = "for (int j = get_sub_group_local_id(); j < n; j += get_max_sub_group_size()) c[j] = a[j];"
    macros = {"get_max_sub_group_size()": 16, "get_sub_group_local_id()": "get_local_id(0)"}
    kernel = source_kernel(SUMS.format(body=loop), "sums", local=[16], groups=[3], defines=macros)
    (found,) = count_features(kernel, {"n": 40}, identifiers=["f_mem_access_global_store"])
    # The outer loop, too, has n iterations.
    assert (found.value, found.exact) == (3 * 40 * 40, True)


@pytest.mark.parametrize("language", ["cl", "cu"])
@pytest.mark.parametrize("value", ["-INFINITY", "INFINITY", "NAN"])
def test_constants_are_no_operations(language, value):
    if language == "cu":
        text = KERNEL.format(body=f"float most = {value}; if (flag[i]) most = m[i]; a[i] = most;")
    else:
        text = SUMS.format(body=f"float most = {value}; c[i] = k > 2 ? a[i] : most;")
    kernel = source_kernel(text, "f" if language == "cu" else "sums", local=[64], groups=[4])
    assert not [one for one in count_features(kernel) if one.identifier.startswith("f_op_")]


@pytest.mark.parametrize(("body", "tests"), [
    ("for (int k = 0; k < flag[i]; k++) a[i + k] = 1;", 8), ("while (i < n && flag[i]) a[i] += 1;", 8),
    ("for (int k = flag[i]; k < flag[i + 1]; k++) a[i] = 1;", 9),
    ("int k = 0; while (flag[i + k]) a[i + k++] = 1;", 8), ("int k = 0; do a[i + k++] = 1; while (k < flag[i]);", 7),
])  # fmt: skip
def test_what_a_stated_loop_tests_is_loaded_once_more_than_its_body_runs(body, tests):
    kernel = source_kernel(KERNEL.format(body=body), "f", local=[64], groups=[4], stated={"4": 7})
    names = ["f_mem_access_array:flag_global_load", "f_mem_access_array:a_global_store"]
    found = [entry.value for entry in count_features(kernel, {"n": 256}, identifiers=names)]
    assert found == [256 * tests, 256 * 7]


@pytest.mark.parametrize(("choice", "body", "loads", "exact"), [
    ("i < n ? m : 0", "if (p) a[i] = p[i];", 256, False), ("n > 4 ? m : 0", "if (p) a[i] = p[i];", 256, True),
    ("n < 4 ? m : 0", "if (p) a[i] = p[i];", 0, True), ("a != m ? m + 4 : 0", "a[i] = p ? p[i] : 1.0f;", 256, False),
    ("a != m ? 0 : m", "if (p != 0) a[i] = p[i + 1];", 256, False), ("m", "if (p) a[i] = p[i];", 256, True),
])  # fmt: skip
def test_a_pointer_that_may_be_null_makes_loads_a_bound(choice, body, loads, exact):
    kernel = source_kernel(KERNEL.format(body=f"float *p = {choice}; {body}"), "f", local=[64], groups=[4])
    (found,) = count_features(kernel, {"n": 200}, identifiers=["f_mem_access_array:m_global_load"])
    assert (found.value, found.exact) == (loads, exact or not loads)


@pytest.mark.parametrize("address", ["(float *)(size_t)n", "flag[i] ? m : (float *)(size_t)n"])
def test_a_pointer_to_an_unknown_array_is_refused(address):
    kernel = source_kernel(KERNEL.format(body=f"float *p = {address}; a[i] = p[i];"), "f", local=[64], groups=[4])
    with pytest.raises(UnsupportedKernelError, match=r"kernel\.cu:4: which array"):
        kernel.scop({"n": 200})


@pytest.mark.parametrize(("body", "count"), [
    ("if (m != nullptr && i < n) a[i] = 1;", 200), ("if (threadIdx.x == 0 && m) a[i] = 1;", 4),
    ("if (m == NULL) a[i] = 1;", 0), ("if (0 != m) a[i] = 1;", 256), ("if (!m) a[i] = 1;", 0),
    ("if ((float *)0 == m || i < 8) a[i] = 1;", 8),
])  # fmt: skip
def test_arguments_are_no_null_pointers(body, count):
    assert stores(body) == (count, True)


def test_the_warp_has_32_work_items():
    assert stores("if (threadIdx.x % warpSize == 0) a[i] = 1;") == (8, True)


@pytest.mark.parametrize(("body", "most", "exact"), [
    ("struct S { int a[2]; }; S s = {{3, 9}}; s.a[1] = 4; if (i < s.a[0]) a[i] = 1;", 3, True),
    ("struct S { int a[2]; }; S s = {{3, 9}}; s.a[flag[i]] = 4; if (i < s.a[0]) a[i] = 1;", 256, False),
    ("int t[2][2] = {{1, 2}, {3, 4}}; int *row = t[1]; if (i < row[0]) a[i] = 1;", 3, True),
    ("int k = 0; int &r = k; for (int j = 0; j < 4; j++) r += 2; if (i < k) a[i] = 1;", 8, True),
    ("int k = 0, *p = &k; for (int j = 0; j < 4; j++) *p += 2; if (i < k) a[i] = 1;", 8, True),
    ("struct P { int c; }; int k = 0; if (i < n) k = ((P *)m)[i].c; if (i < k) a[i] = 1;", 256, False),
])  # fmt: skip
def test_parts_and_references(body, most, exact):
    assert stores(body) == (most, exact)


_TEMPLATE = """
template <typename T, int ROWS, int WIDTH> __global__ void k(const T *x, T *y, int n)
{
  __shared__ T tile[ROWS][WIDTH];
  T sum = 0;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int r = 0; r < ROWS; ++r) tile[r][threadIdx.x] = x[r * n + i];
  __syncthreads();
  for (int r = 0; r < ROWS; ++r) sum += tile[r][31 - threadIdx.x];
  y[i] = sum;
}
"""


@pytest.mark.parametrize("dtype", ["float", "double", "short"])
def test_an_instance_is_its_twin(dtype):
    twin = _written_out(_TEMPLATE.replace("template <typename T, int ROWS, int WIDTH> ", ""), dtype)
    launch = {"local": [32], "groups": ["n / 32"]}
    instance = source_kernel(_TEMPLATE, f"k<{dtype}, 4, 35>", **launch).scop()
    # Texts of accesses are as written.
    assert _written_out(scop_to_yaml(instance), dtype) == scop_to_yaml(source_kernel(twin, "k", **launch).scop())
    assert {array.itemsize for array in instance.arrays} == {{"float": 4, "double": 8, "short": 2}[dtype]}


def _written_out(text, dtype):
    for name, value in {"ROWS": "4", "WIDTH": "35", "T ": f"{dtype} "}.items():
        text = text.replace(name, value)
    return text


CALLS = """
template <int R, bool TWICE> __device__ float sum(const float *x) {{
    float s = 0;
    for (int i = 0; i < (TWICE ? 2 * R : R); i++) s += x[i + threadIdx.x];
    return s;
}}
template <int N> __device__ float total(const float *x) {{ return x[N] + total<N - 1>(x); }}
template <> __device__ float total<-1>(const float *x) {{ return 0; }}
{head} __global__ void k(float *y, const float *x) {{ y[threadIdx.x] = {body}; }}
"""


@pytest.mark.parametrize(("body", "name", "loads"), [
    ("sum<5, true>(x)", "k", 10), ("sum<5, false>(x)", "k", 5), ("sum<R, TWICE>(x)", "k<4, 1>", 8),
    ("sum<3, TWICE>(x) + 1", "k<4, 0>", 3), ("total<19>(x + threadIdx.x)", "k", 20),
    ("total<R>(x + threadIdx.x)", "k<4, 1>", 5),
])  # fmt: skip
def test_templates_that_functions_call(body, name, loads):
    text = CALLS.format(head="template <int R, bool TWICE>" if "<" in name else "", body=body)
    kernel = source_kernel(text, name, local=[32], groups=[1])
    (found,) = count_features(kernel, {}, identifiers=["f_mem_access_global_load"])
    assert (found.value, found.exact) == (32 * loads, True)


@pytest.mark.parametrize(("value", "stores", "guards"), [("i", 65, 0), ("i - 1u", 65, 0), ("i * 100000000u", 256, 1)])
def test_a_switch_on_an_unsigned_integer_that_wraps_around(value, stores, guards):
    """One store in case 0, two in case 3, one elsewhere; where the product wraps around, all are counted everywhere."""
    cases = "case 0: a[i] = 1; break; case 3: b[i] = 1; b[i + 64] = 3; break; default: a[i] = 2;"
    text = (
        f"kernel void k(global int *a, global int *b) {{ uint i = get_global_id(0); switch ({value}) {{ {cases} }} }}\n"
    )
    kernel = source_kernel(text, "k", local=64, groups=1)
    assert [each.matter for each in kernel.unstated()] == ["guard"] * guards
    [count] = count_features(kernel, {}, identifiers=["f_mem_access_global_int32_store"])
    assert count.value == stores


def test_parameters_of_a_template_of_a_source_have_no_words():
    text = "__global__ void add(const {{ real }} * c, int n) { int i = blockIdx.x; if (i < n) c[i] = 1; }\n"
    (kernel,) = kernels_in(Path("add.cu"), text, {})
    assert [] in [part.words for part in kernel.children]
    with pytest.raises(UnsupportedKernelError, match=r"kernel\.cu:1: "):
        source_kernel(text, "add", local=[64], groups=[4]).scop()


SHARED = """
template <class T> struct SharedMemory {{ {member} }};
template <class T> __global__ void f(T *a) {{
    {declared}
    s[threadIdx.x] = a[threadIdx.x];
}}
"""


@pytest.mark.parametrize(("member", "declared"), [
    ("__device__ operator T *() { extern __shared__ int s[]; return (T *)s; }", "T *s = SharedMemory<T>();"),
    ("__device__ T *getPointer() { return 0; }", "SharedMemory<T> shared; T *s = shared.getPointer();"),
])  # fmt: skip
def test_idioms_of_shared_memory_in_templates(member, declared):
    kernel = source_kernel(SHARED.format(member=member, declared=declared), "f<float>", local=[64], groups=[4])
    identifiers = ["f_mem_access_local_float32_store", "f_mem_access_global_float32_load"]
    assert [entry.value for entry in count_features(kernel, {}, identifiers=identifiers)] == [4 * 2, 4 * 64]


@pytest.mark.parametrize("test", ["i < 8", "(256 >> i) > 1", "(N >> i) > 1"])
@pytest.mark.parametrize("counter", ["int", "uint"])
def test_shifts_by_a_loop_counter_are_known(counter, test):
    body = f"for ({counter} i = 0; {test}; i++) if (threadIdx.x >= (1 << i)) x[threadIdx.x - (1 << i)] = 1;"
    text = f"__global__ void k(float *x) {{ {body} }}\n"
    kernel = source_kernel(text, "k", local=256, groups=1, defines={"N": 256})
    assert kernel.unstated() == ()
    [count] = count_features(kernel, {}, identifiers=["f_mem_access_global_float32_store"])
    assert count.value == sum(256 - 2**i for i in range(8))


# A grid of so many work-items is no number at which an int wraps around.
@pytest.mark.parametrize(("groups", "limit"), [(16, "n"), (4096, "n"), (4096, "n * m"), (65536, "n * m")])
def test_loops_over_large_grids_are_known(groups, limit):
    step = "i += blockDim.x * gridDim.x"
    body = f"for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < {limit}; {step}) a[i] = 1;"
    kernel = source_kernel(f"__global__ void k(int *a, int n, int m) {{ {body} }}\n", "k", local=256, groups=groups)
    sizes = {"n": 3_000_000, "m": 10}
    [count] = count_features(kernel, sizes, identifiers=["f_mem_access_global_int32_store"])
    assert (count.value, count.certainty.exact) == (sizes["n"] * (10 if "m" in limit else 1), True)


def test_what_was_walked_through_stays_in_its_process():
    kernel = source_kernel("kernel void k(global int *a, int n) { if (a[0]) a[n] = 1; }\n", "k", local=64, groups=1)
    found = kernel.unstated({"n": 4})
    sent = pickle.loads(pickle.dumps(kernel))
    assert [str(each) for each in sent.unstated({"n": 4})] == [str(each) for each in found] != []


@pytest.mark.parametrize("start", ["-1e308", "1 << 400"])
def test_what_no_integer_holds_is_not_known(start):
    text = f"kernel void k(global float *x, int n) {{ for (int i = {start}; i < n; i++) x[0] += 1; }}\n"
    with pytest.raises(UnsupportedKernelError, match=r"trip count of .* is not known"):
        source_kernel(text, "k", local=1, groups=1).scop({"n": 1})


def test_a_condition_beyond_all_integers_is_a_bound():
    text = "kernel void k(global float *x) { if (get_global_id(0) + 0.5 < 1e308) x[get_global_id(0)] = 1; }\n"
    kernel = source_kernel(text, "k", local=8, groups=2)
    assert [each.matter for each in kernel.unstated()] == ["guard"]
    [count] = count_features(kernel, {}, identifiers=["f_mem_access_global_float32_store"])
    assert count.value == 16


def test_an_instance_of_a_template_is_parsed_with_its_file():
    text = "template <int N> __global__ void k(float *x) { x[threadIdx.x] = N; }\n"
    misses = parsing._unit.cache_info().misses
    kernel = source_kernel(text, "k<5>", local=64, groups=1)
    assert kernel.parsed() is kernel.parsed()
    assert parsing._unit.cache_info().misses == misses + 1
    inside = source_kernel(f"namespace a {{ {text} }}\n", "k<5>", local=64, groups=1)
    assert inside.parsed().function.qualified == "a::k"
