"""What kernels call: methods, operators, functors, lambdas, templates of own types; and what is not there."""

import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import count_features, source_kernel

ITEMS = 64

TYPES = """
typedef double real;
struct Sum { __device__ float operator()(float a, float b) const { return a + b; } };
template <typename T> struct Scale {
    T factor;
    int times = 2;
    __device__ Scale(T f, T g = 3) : factor(f * g) { times += 1; }
    __device__ T operator()(T a) const { return factor * a; }
    __device__ static T twice(T a) { return a + a; }
    template <int N> __device__ T many(const T *x) const { T s = 0; for (int j = 0; j < N; ++j) s += x[j]; return s; }
};
struct Pair { float x, y; __device__ float total() const { return x + this->y; }
              __device__ Pair &operator+=(const Pair &o) { x += o.x; y += o.y; return *this; }
              __device__ float &operator[](int i) { return i ? y : x; } };
__device__ Pair operator*(Pair a, float s) { Pair r; r.x = a.x * s; r.y = a.y * s; return r; }
struct View { const float *data; int n; __device__ float operator()(int i) const { return data[i * n]; }
              __device__ const float &at(int i) const { return data[i]; } };
template <class F> __device__ float apply(F f, float a, float b) { return f(a, b); }
template <float (*F)(float)> __device__ float through(float a) { return F(a); }
__device__ float half_of(float a) { return a * 0.5f; }
template <int N> struct Table { float rows[N][N]; int set[2] = {1, 2};
                                __device__ float &operator()(int i, int j) { return rows[i][j]; } };
template <typename T> __device__ T only(T a) { return a; }
template <> __device__ double only<double>(double a) { return a * a; }
template <typename... T> __device__ float first(float a, T...) { return a; }
"""


def counts(body, head="", name="k", **sizes):
    """Loads of x, stores to y, additions, products: of one work-item, and whether they are exact."""
    text = TYPES + head + "__global__ void k(const float *__restrict__ x, float *__restrict__ y, int n) "
    text += "{ int i = blockIdx.x * blockDim.x + threadIdx.x; " + body + " }\n"
    kernel = source_kernel(text, name, local=ITEMS, groups=1)
    names = ["f_mem_access_array:x_load", "f_mem_access_array:y_store", "f_op_float32_add", "f_op_float32_mul"]
    found = count_features(kernel, {"n": 4, **sizes}, identifiers=names)
    assert all(each.exact for each in found)
    loads, stores, *operations = (each.value for each in found)
    return [loads / ITEMS, stores / ITEMS, *(each * 32 / ITEMS for each in operations)]


@pytest.mark.parametrize(("body", "right"), [
    ("y[i] = Sum()(x[i], x[i + 1]);", [2, 1, 1, 0]),
    ("y[i] = apply(Sum(), x[i], x[i + 1]);", [2, 1, 1, 0]),
    ("y[i] = apply([](float a, float b) { return a * b; }, x[i], 2.f);", [1, 1, 0, 1]),
    # The constructor's product is of constants; it sets `times` to three.
    ("Scale<float> s(x[i]); for (int j = 0; j < s.times; ++j) y[i + 64 * j] = s(x[i + j]);", [4, 3, 0, 4]),
    ("y[i] = Scale<float>::twice(x[i]);", [1, 1, 1, 0]),
    ("Scale<float> s(1.f); y[i] = s.many<5>(x + i);", [5, 1, 5, 0]),
    ("Pair p{x[i], x[i + 1]}; Pair q = p * 2.f; q += p; q[1] = 3.f; y[i] = q.total();", [2, 1, 3, 2]),
    ("Pair p = {1.f, 2.f}; Pair q = p; q.x = x[i]; y[i] = p.x + q.x;", [1, 1, 1, 0]),
    ("View v{x, n}; y[i] = v(i) + v.at(i + 1);", [2, 1, 1, 0]),
    ("y[i] = through<half_of>(x[i]); float (*f)(float) = half_of; y[i + 64] = f(x[i]);", [2, 2, 0, 2]),
    ("int m = 3; auto f = [=](int k) { return x[i + k * m]; }; m = 100; y[i] = f(1) + f(2);", [2, 1, 1, 0]),
    ("int m = 2; auto f = [&](int k) { m += k; return x[i]; }; f(3); while (m--) y[i + m] = 1;", [1, 5, 0, 0]),
    ("int m = 2, k; auto f = [=, &k] { return m + k; }; m = 0; k = 5, k = f(); while (k--) y[i+k] = 1;", [0, 7, 0, 0]),
    ("Table<2> t; t(1, n - 3) = x[i]; t(0, 0) = t.rows[1][1] * x[i + 1]; y[i] = t(0, 0);", [2, 1, 0, 1]),
    ("Table<3> t; for (int j = 0; j < 9; ++j) t(j / 3, j % 3) = x[i + j]; y[i] = t(1, 1) + t(n, n);", [9, 1, 1, 0]),
    ("y[i] = only(x[i]) + (float)only((double)i);", [1, 1, 1, 0]),
    ("y[i] = first(x[i], 3, 4.f);", [1, 1, 0, 0]),
    ("dim3 d(2, n); for (int j = 0; j < d.x * d.y * d.z; ++j) y[i + j] = 1;", [0, 8, 0, 0]),
])  # fmt: skip
def test_functions_of_the_source(body, right):
    assert counts(body) == right


@pytest.mark.parametrize(("arguments", "size"), [
    ("float", 4), ("real", 8), ("unsigned", 4), ("const short", 2), ("Own", 16), ("Own::part", 1), ("N", None),
])  # fmt: skip
def test_template_arguments_are_types_of_the_file(arguments, size):
    text = "typedef double real; constexpr int N = 3; struct Own { using part = unsigned char; float4 v; };\n"
    text += "template <typename T> __global__ void k(const T *x) { T t = x[threadIdx.x]; }\n"
    kernel = source_kernel(text, f"k<{arguments}>", local=ITEMS, groups=1)
    if size is None:
        with pytest.raises(UnsupportedKernelError, match=r"its arguments <N> do not fit .*; write k<T> with types"):
            kernel.scop()
        return
    scop = kernel.scop()
    (found,) = count_features(kernel, {}, identifiers=["f_mem_footprint_array:x"])
    assert found.value * scop.array("x").itemsize == ITEMS * size


@pytest.mark.parametrize(("arguments", "trips"), [("16", 16), ("WIDE", 24), ("SEVEN", 7), ("NINE", 9), ("", 5),
 ("sizeof(long)", 8)])  # fmt: skip
def test_numbers_as_template_arguments(arguments, trips):
    text = "#define WIDE (3 * 8)\nenum { SEVEN = 7 };\nnamespace deep { enum { NINE = 9 }; namespace {\n"
    text += (
        "template <int N = 5> __global__ void k(float *y) { for (int j = 0; j < N; ++j) y[threadIdx.x + j] = 1; } } }"
    )
    kernel = source_kernel(text, f"k<{arguments}>" if arguments else "k", local=32, groups=1)
    (found,) = count_features(kernel, {}, identifiers=["f_mem_access_array:y_store"])
    assert found.value == 32 * trips


@pytest.mark.parametrize(("arguments", "trips"), [("1, 2", 3), ("own::Mode::LONG, 4", 5), ("(own::Mode)0, 5", 5)])
def test_enumerators_as_template_arguments_have_names_or_numbers(arguments, trips):
    text = """namespace own { enum class Mode { SHORT, LONG }; }
template <own::Mode M, int N> __global__ void k(float *y) {
    for (int j = 0; j < N + (M == own::Mode::LONG); ++j) y[threadIdx.x + j] = 1; }"""
    kernel = source_kernel(text, f"k<{arguments}>", local=32, groups=1)
    (found,) = count_features(kernel, {}, identifiers=["f_mem_access_array:y_store"])
    assert found.value == 32 * trips


BASES = """
struct B { int k; float f; __device__ B() : k(3), f(1.f) {} __device__ B(int a) : k(a) { f = 2.f; } };
struct D : B {
    int m;
    __device__ D(int a) : B(a + 1), m(2) {} __device__ D() : m(7) {} __device__ D(float q) : D(4) {}
};
template <typename T> struct G : T { int z; __device__ G(int a) : T(a), z(a) {} };
struct E : B { int m = 2; };
struct P { B b; int w = 5; };
struct Q { P p[3]; int q; __device__ Q() : q(2) {} };
"""


@pytest.mark.parametrize(("body", "trips"), [
    ("D d(2)", 3 * 2), ("D d", 3 * 7), ("D d(1.f)", 5 * 2), ("E d", 3 * 2),
    ("G<D> g(4); struct { int k, m; } d = {g.k * g.m, g.z}", 10 * 4),
    ("Q q; struct { int k, m; } d = {q.p[2].b.k * q.q + q.p[0].w, 1}", 3 * 2 + 5),
    ("D all[4]; D d = all[2]", 3 * 7),
])  # fmt: skip
def test_constructors_of_bases_and_fields(body, trips):
    text = BASES + "__global__ void k(float *y) { " + body + "; for (int j = 0; j < d.k * d.m; ++j) y[j + 64] = 1; }"
    kernel = source_kernel(text, "k", local=1, groups=1)
    (found,) = count_features(kernel, {}, identifiers=["f_mem_access_global_float32_store"])
    assert (found.value, found.exact) == (trips, True)


def test_classes_of_the_host_lend_their_types():
    text = """#include <vector>
struct Rows { typedef double Scalar; std::vector<Scalar> all; std::string name; int n() { return all.size(); } };
template <typename R> __global__ void k(const typename R::Scalar *x) { auto t = x[threadIdx.x]; }
__global__ void m(Rows r, float *y) { y[0] = r.n(); }"""
    (found,) = count_features(
        source_kernel(text, "k<Rows>", local=32, groups=1), {}, identifiers=["f_mem_access_global_float64_load"]
    )
    assert found.value == 32
    with pytest.raises(UnsupportedKernelError, match="what 'n' names is not known"):
        source_kernel(text, "m", local=32, groups=1).scop()


def test_why_template_arguments_do_not_fit_is_told(tmp_path):
    (tmp_path / "deep.h").write_text('template <typename T> __device__ T end(T a) {\n\n  asm(""); return a; }\n')
    text = '#include "deep.h"\ntemplate <typename T> __global__ void k(typename T::lane *y) { y[0] = end(y[1]); }\n'
    (tmp_path / "k.cu").write_text(text + "struct V { using lane = float; };\n")
    for argument, cause in (("float", "declaration is not valid with them"), ("V", "^deep.h:3: assembly")):
        with pytest.raises(UnsupportedKernelError, match=cause):
            source_kernel(tmp_path / "k.cu", f"k<{argument}>", local=32, groups=1).scop()


@pytest.mark.parametrize(("head", "body", "cause"), [
    ("__device__ float far(float);", "y[i] = far(x[i]);", "'far' is declared, but its body is not in this file"),
    ("struct B { __device__ virtual float get() = 0; };", "B *b = (B *)x; y[i] = b->get();", "'get' is declared"),
    ("struct B { __device__ float get() const; };", "B *b = (B *)x; y[i] = b->get();", "'get' is declared"),
    ("struct B { __device__ virtual float f() { return 1; } };", "B b; y[i] = b.f();", "it is virtual"),
    ("", "int m = 1; auto f = [m]() mutable { return ++m; }; y[i] = f();", "a lambda that changes"),
    ("__device__ float g(const float *x) { return x[LIMIT]; }", "y[i] = g(x);", "undeclared identifier 'LIMIT'"),
    ("typedef missing_t word;", "word w = 3; y[i] = w;", "unknown type name 'missing_t'"),
    ("struct S { lost m; float f; };", "S s; s.f = x[i]; y[i] = s.f;", "unknown type name 'lost'"),
    ("const int many = FAR;", "for (int j = 0; j < many; ++j) y[i] = x[i];", "undeclared identifier 'FAR'"),
    ("template <class T> struct V { T a; __device__ T get() { return a + NONE; } };", "V<float> v; y[i] = v.get();",
     "undeclared identifier 'NONE'"),
    ("__device__ int r(int n) { return n > 0 ? n + r(n - 1) : 0; }", "y[i] = r(3);", "'r' calls itself"),
    ("struct D { float *p; __device__ ~D() { *p = 1; } };", "D d{y}; y[i] = x[i];", "what 'D' does at its end"),
    ("struct D { float *p; __device__ D(float *q) : p(q) {} __device__ ~D() { *p = 1; } };", "D d(y); y[i] = x[i];",
     "what 'D' does at its end"),
    ("__device__ float h(float a, ...) { return a; }", "y[i] = h(1.f, 2, 3);", "any number of arguments"),
])  # fmt: skip
def test_what_is_not_understood_is_refused(head, body, cause):
    with pytest.raises(UnsupportedKernelError, match=cause):
        counts(body, head=head + "\n")


def test_errors_that_the_kernel_does_not_meet_are_none():
    head = "void host() { std::vector<int> v; unknown(v); }\nstruct H { std::string s; };\n"
    head += "struct M { float a; void host() { nowhere(); } };\n"
    assert counts("M m; m.a = x[i]; y[i] = m.a;", head=head) == [1, 1, 0, 0]


@pytest.mark.parametrize("name", ["sync", "prefetch", "size", "atomicAdd_f", "make_pair", "dot", "barrier", "min"])
def test_own_functions_are_not_those_of_the_library(name):
    head = f"__device__ float {name}(const float *a, int j) {{ return a[j] + a[j + 1]; }}\n"
    assert counts(f"y[i] = {name}(x, i);", head=head) == [2, 1, 1, 0]


def test_kernels_of_one_name():
    kernel = "__global__ void k(float *y) { y[threadIdx.x] = 1; }\n"
    others = "void k(float *y, int n) { for (int i = 0; i < n; ++i) y[i] = 1; }\n__device__ void k(int) {}\n"
    found = source_kernel(kernel + others, "k", local=32, groups=1)
    assert count_features(found, {}, identifiers=["f_mem_access_array:y_store"])[0].value == 32
    twice = source_kernel(kernel + kernel.replace("float", "int"), "k", local=32, groups=1)
    with pytest.raises(UnsupportedKernelError, match="has 2 kernels 'k', in lines 1, 2; rename all but one"):
        twice.scop()
    with pytest.raises(UnsupportedKernelError, match="'k' in line 1 is a function of host or device"):
        source_kernel(others, "k", local=32, groups=1).scop()


@pytest.mark.parametrize(("body", "places"), [
    ("y[i] = x[i].k;", ["2"]), ("y[i] = x[i].z;", ["3"]), ("y[i] = x[i].b + x[i].plain();", ["1", "2"]),
    ("const Other *u = x + i; y[i] = u->k;", ["2"]), ("X v = x[i]; y[i] = v.z;", ["0", "1", "2", "3"]),
])  # fmt: skip
def test_fields_of_what_a_struct_is_derived_from(body, places):
    text = "struct First { float a, b; }; struct Other { int k; __device__ int plain() const { return k; } };\n"
    text += "struct X : First, Other { float z; };\n__global__ void k(const X *__restrict__ x, float *__restrict__ y) "
    scop = source_kernel(text + f"{{ int i = threadIdx.x; {body} }}\n", "k", local=64, groups=1).scop()
    found = [str(each.relation) for one in scop.statements for each in one.accesses if each.array == "x"]
    assert found == [f"{{ [g0 = 0, l0] -> [{f'{at} + ' if at != '0' else ''}4l0] : 0 <= l0 <= 63 }}" for at in places]
