// OpenCL C's types, words and functions for NVIDIA's run-time compiler (C++17): kernels are compiled so, never launched.
// Parts of vectors such as .xy are members, which CL_PARTS_2 to CL_PARTS_16 declare as far as a source uses them.
#define CL_IN static __device__ __forceinline__
#define CL_OWN __device__ __forceinline__
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef uint cl_mem_fence_flags;

// Vectors, parts of them, and numbers: the type of one element, how many there are, and the type as a value.
template <class T, int N> struct cl_vec;
template <class T, int N, int... I> struct cl_part;
template <class A> struct cl_of { typedef A element, value; static constexpr int lanes = 1; };
template <class T, int N> struct cl_of<cl_vec<T, N>> { typedef T element; typedef cl_vec<T, N> value; static constexpr int lanes = N; };
template <class T, int N, int... I> struct cl_of<cl_part<T, N, I...>> : cl_of<cl_vec<T, sizeof...(I)>> {};
template <class A> constexpr int cl_lanes = cl_of<A>::lanes;
template <class A> using cl_element = typename cl_of<A>::element;
template <bool B, class T> struct cl_if {};
template <class T> struct cl_if<true, T> { typedef T type; };
template <int... I> struct cl_list {};
template <int N, int... I> struct cl_up : cl_up<N - 1, N - 1, I...> {};
template <int... I> struct cl_up<0, I...> { typedef cl_list<I...> type; };
template <int N> using cl_upto = typename cl_up<N>::type;
template <int I, class T> CL_IN T cl_at(const T &x) { return x; }
template <int I, class T, int N> CL_IN T cl_at(const cl_vec<T, N> &v) { return v.at[I]; }
template <int I, class T, int N, int... J> CL_IN T cl_at(const cl_part<T, N, J...> &v) { constexpr int place[] = {J...}; return v.at[place[I]]; }

template <class T, int N, int... I> struct cl_part {
  T at[N];
  typedef cl_vec<T, sizeof...(I)> value;
  CL_OWN operator value() const { return value(at[I]...); }
  CL_OWN cl_part &operator=(const value &v) { int k = 0; ((at[I] = v.at[k++]), ...); return *this; }
  CL_OWN cl_part &operator=(const cl_part &v) { return *this = (value)v; }
};
#define CL_VECTOR(N, SIZE, PARTS, ...) \
  template <class T> struct alignas(SIZE * sizeof(T)) cl_vec<T, N> { \
    union { T at[SIZE]; __VA_ARGS__ PARTS }; \
    cl_vec() = default; \
    CL_OWN cl_vec(const cl_vec &v) { copy(v, cl_upto<N>()); } \
    CL_OWN cl_vec &operator=(const cl_vec &v) { copy(v, cl_upto<N>()); return *this; } \
    template <class S, class = typename cl_if<cl_lanes<S> == 1, S>::type> CL_OWN cl_vec(S x) { fill((T)x, cl_upto<N>()); } \
    template <class A, class B, class... C> CL_OWN cl_vec(const A &a, const B &b, const C &...c) { \
      static_assert((cl_lanes<A> + cl_lanes<B> + ... + cl_lanes<C>) == N, "as many elements as the vector has"); \
      int k = 0; \
      put(k, a, cl_upto<cl_lanes<A>>()), put(k, b, cl_upto<cl_lanes<B>>()), (put(k, c, cl_upto<cl_lanes<C>>()), ...); \
    } \
    template <int... I> CL_OWN void copy(const cl_vec &v, cl_list<I...>) { ((at[I] = v.at[I]), ...); } \
    template <int... I> CL_OWN void fill(T x, cl_list<I...>) { ((at[I] = x), ...); } \
    template <class A, int... I> CL_OWN void put(int &k, const A &a, cl_list<I...>) { ((at[k++] = (T)cl_at<I>(a)), ...); } \
    CL_OWN T &operator[](size_t i) { return at[i]; } \
    CL_OWN const T &operator[](size_t i) const { return at[i]; } \
  };
CL_VECTOR(2, 2, CL_PARTS_2, struct { T x, y; }; struct { T s0, s1; };)
CL_VECTOR(3, 4, CL_PARTS_3, struct { T x, y, z; }; struct { T s0, s1, s2; };)
CL_VECTOR(4, 4, CL_PARTS_4, struct { T x, y, z, w; }; struct { T s0, s1, s2, s3; };)
CL_VECTOR(8, 8, CL_PARTS_8, struct { T x, y, z, w; }; struct { T s0, s1, s2, s3, s4, s5, s6, s7; };)
CL_VECTOR(16, 16, CL_PARTS_16, struct { T x, y, z, w; };
  struct { T s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, sa, sb, sc, sd, se, sf; };
  struct { T before[10], sA, sB, sC, sD, sE, sF; };)
// What (type)(a, b, ...) makes.
template <class V, class... A> CL_IN V cl_make(const A &...a) { return V(a...); }

// Of operands, of which some may be numbers, the vector that comes out; nothing where none is a vector.
template <bool B, class S, class T> struct cl_choice { typedef S type; };
template <class S, class T> struct cl_choice<false, S, T> { typedef T type; };
template <class A, class... B> struct cl_widest { typedef A type; };
template <class A, class B, class... C> struct cl_widest<A, B, C...>
  : cl_widest<typename cl_choice<(cl_lanes<A> >= cl_lanes<B>), A, B>::type, C...> {};
template <class... A> using cl_result = typename cl_if<((cl_lanes<A> > 1) || ...), typename cl_of<typename cl_widest<A...>::type>::value>::type;
template <int I, class F, class... A> CL_IN auto cl_call(F f, const A &...a) { return f(cl_at<I>(a)...); }
template <class R, class F, int... I, class... A> CL_IN R cl_every(F f, cl_list<I...>, const A &...a) {
  R r;
  ((r.at[I] = cl_call<I>(f, a...)), ...);
  return r;
}
template <class R, class F, class... A> CL_IN R cl_map(F f, const A &...a) { return cl_every<R>(f, cl_upto<cl_lanes<R>>(), a...); }
#define CL_OPERATOR(O) \
  template <class A, class B, class V = cl_result<A, B>, class T = cl_element<V>> CL_IN V operator O(const A &a, const B &b) \
  { return cl_map<V>([](T x, T y) { return (T)(x O y); }, a, b); } \
  template <class A, class B, class V = cl_result<A>> CL_IN A &operator O##=(A &a, const B &b) { return a = a O b; }
CL_OPERATOR(+) CL_OPERATOR(-) CL_OPERATOR(*) CL_OPERATOR(/) CL_OPERATOR(%)
CL_OPERATOR(&) CL_OPERATOR(|) CL_OPERATOR(^) CL_OPERATOR(<<) CL_OPERATOR(>>)
#define CL_SIGN(O) template <class A, class V = cl_result<A>, class T = cl_element<V>> CL_IN V operator O(const A &a) \
  { return cl_map<V>([](T x) { return (T)(O x); }, a); }
CL_SIGN(-) CL_SIGN(+) CL_SIGN(~)
// Vectors of truth values have elements as wide as what is compared: -1 is true.
template <int> struct cl_truth { typedef int type; };
template <> struct cl_truth<1> { typedef char type; };
template <> struct cl_truth<2> { typedef short type; };
template <> struct cl_truth<8> { typedef long type; };
template <class V> using cl_test = cl_vec<typename cl_truth<sizeof(cl_element<V>)>::type, cl_lanes<V>>;
#define CL_RELATION(O) \
  template <class A, class B, class V = cl_result<A, B>, class T = cl_element<V>> CL_IN cl_test<V> operator O(const A &a, const B &b) \
  { return cl_map<cl_test<V>>([](T x, T y) { return x O y ? -1 : 0; }, a, b); }
CL_RELATION(<) CL_RELATION(>) CL_RELATION(<=) CL_RELATION(>=) CL_RELATION(==) CL_RELATION(!=)
template <class A, class V = cl_result<A>> CL_IN cl_test<V> operator!(const A &a) { return a == (cl_element<V>)0; }

// Functions: those that CUDA has of numbers are applied to each element; the others come first.
template <class T> struct cl_plain { typedef T type; };
template <class T> using cl_same = typename cl_plain<T>::type;
template <class T> using cl_scalar = typename cl_if<cl_lanes<T> == 1, T>::type;
#define CL_NUMBERS(F, ...) template <class T, class = cl_scalar<T>> CL_IN T F(T a, cl_same<T> b, cl_same<T> c) { return __VA_ARGS__; }
CL_NUMBERS(mad, a * b + c) CL_NUMBERS(mix, a + (b - a) * c) CL_NUMBERS(bitselect, (a & ~c) | (b & c))
template <class T, class = cl_scalar<T>> CL_IN T clamp(T a, cl_same<T> b, cl_same<T> c) { return min(max(a, b), c); }
template <class T, class S, class = cl_scalar<T>> CL_IN T select(T a, T b, S c) { return c ? b : a; }
CL_IN int mul24(int a, int b) { return __mul24(a, b); }
CL_IN uint mul24(uint a, uint b) { return __umul24(a, b); }
CL_IN int mad24(int a, int b, int c) { return __mul24(a, b) + c; }
CL_IN uint mad24(uint a, uint b, uint c) { return __umul24(a, b) + c; }
CL_IN int mul_hi(int a, int b) { return __mulhi(a, b); }
CL_IN uint mul_hi(uint a, uint b) { return __umulhi(a, b); }
CL_IN int clz(int x) { return __clz(x); }
CL_IN uint clz(uint x) { return __clz(x); }
CL_IN int popcount(int x) { return __popc(x); }
CL_IN uint popcount(uint x) { return __popc(x); }
CL_IN uint rotate(uint x, uint n) { return __funnelshift_l(x, x, n); }
CL_IN int rotate(int x, int n) { return __funnelshift_l(x, x, n); }
#define CL_NATIVE(F, ...) CL_IN float native_##F(float x) { return __VA_ARGS__; } CL_IN float half_##F(float x) { return __VA_ARGS__; }
CL_NATIVE(cos, __cosf(x)) CL_NATIVE(sin, __sinf(x)) CL_NATIVE(tan, __tanf(x)) CL_NATIVE(exp, __expf(x))
CL_NATIVE(exp2, exp2f(x)) CL_NATIVE(exp10, __exp10f(x)) CL_NATIVE(log, __logf(x)) CL_NATIVE(log2, __log2f(x))
CL_NATIVE(log10, __log10f(x)) CL_NATIVE(sqrt, sqrtf(x)) CL_NATIVE(rsqrt, rsqrtf(x)) CL_NATIVE(recip, __fdividef(1, x))
#define CL_NATIVE2(F, ...) CL_IN float native_##F(float x, float y) { return __VA_ARGS__; } CL_IN float half_##F(float x, float y) { return __VA_ARGS__; }
CL_NATIVE2(powr, __powf(x, y)) CL_NATIVE2(divide, __fdividef(x, y))
#define CL_REALS(F, A, ...) CL_IN float F(float a A(float)) { typedef float T; return __VA_ARGS__; } CL_IN double F(double a A(double)) { typedef double T; return __VA_ARGS__; }
#define CL_1(T)
#define CL_2(T) , T b
#define CL_3(T) , T b, T c
CL_REALS(degrees, CL_1, a * (T)57.295779513082323) CL_REALS(radians, CL_1, a * (T)0.017453292519943295)
CL_REALS(sign, CL_1, a > 0 ? (T)1 : a < 0 ? (T)-1 : a) CL_REALS(step, CL_2, b < a ? (T)0 : (T)1) CL_REALS(maxmag, CL_2, fabs(a) > fabs(b) ? a : fabs(b) > fabs(a) ? b : fmax(a, b))
CL_REALS(minmag, CL_2, fabs(a) < fabs(b) ? a : fabs(b) < fabs(a) ? b : fmin(a, b)) CL_REALS(powr, CL_2, pow(a, b))
CL_IN float smoothstep(float a, float b, float x) { float t = clamp((x - a) / (b - a), 0.0f, 1.0f); return t * t * (3 - 2 * t); }
CL_IN double smoothstep(double a, double b, double x) { double t = clamp((x - a) / (b - a), 0.0, 1.0); return t * t * (3 - 2 * t); }
CL_IN float pown(float x, int n) { return pow(x, n); }
CL_IN double pown(double x, int n) { return pow(x, n); }
#define CL_1_OF(F) template <class A, class V = cl_result<A>, class T = cl_element<V>> CL_IN V F(const A &a) { return cl_map<V>([](T x) { return (T)F(x); }, a); }
#define CL_2_OF(F) template <class A, class B, class V = cl_result<A, B>, class T = cl_element<V>> CL_IN V F(const A &a, const B &b) \
  { return cl_map<V>([](T x, T y) { return (T)F(x, y); }, a, b); }
#define CL_3_OF(F) template <class A, class B, class C, class V = cl_result<A, B, C>, class T = cl_element<V>> CL_IN V F(const A &a, const B &b, const C &c) \
  { return cl_map<V>([](T x, T y, T z) { return (T)F(x, y, z); }, a, b, c); }
CL_1_OF(acos) CL_1_OF(asin) CL_1_OF(atan) CL_1_OF(cos) CL_1_OF(cosh) CL_1_OF(sin) CL_1_OF(sinh) CL_1_OF(tan) CL_1_OF(tanh)
CL_1_OF(exp) CL_1_OF(exp2) CL_1_OF(exp10) CL_1_OF(expm1) CL_1_OF(log) CL_1_OF(log2) CL_1_OF(log10) CL_1_OF(log1p)
CL_1_OF(sqrt) CL_1_OF(rsqrt) CL_1_OF(cbrt) CL_1_OF(fabs) CL_1_OF(abs) CL_1_OF(ceil) CL_1_OF(floor) CL_1_OF(rint)
CL_1_OF(round) CL_1_OF(trunc) CL_1_OF(erf) CL_1_OF(erfc) CL_1_OF(tgamma) CL_1_OF(lgamma) CL_1_OF(degrees) CL_1_OF(radians)
CL_1_OF(sign) CL_1_OF(popcount) CL_1_OF(clz) CL_1_OF(native_cos) CL_1_OF(native_sin) CL_1_OF(native_tan)
CL_1_OF(native_exp) CL_1_OF(native_exp2) CL_1_OF(native_exp10) CL_1_OF(native_log) CL_1_OF(native_log2)
CL_1_OF(native_log10) CL_1_OF(native_sqrt) CL_1_OF(native_rsqrt) CL_1_OF(native_recip)
CL_1_OF(half_cos) CL_1_OF(half_sin) CL_1_OF(half_tan) CL_1_OF(half_exp) CL_1_OF(half_exp2) CL_1_OF(half_exp10)
CL_1_OF(half_log) CL_1_OF(half_log2) CL_1_OF(half_log10) CL_1_OF(half_sqrt) CL_1_OF(half_rsqrt) CL_1_OF(half_recip)
CL_2_OF(min) CL_2_OF(max) CL_2_OF(fmin) CL_2_OF(fmax) CL_2_OF(fmod) CL_2_OF(pow) CL_2_OF(powr) CL_2_OF(atan2) CL_2_OF(hypot)
CL_2_OF(copysign) CL_2_OF(fdim) CL_2_OF(remainder) CL_2_OF(step) CL_2_OF(maxmag) CL_2_OF(minmag) CL_2_OF(native_divide)
CL_2_OF(native_powr) CL_2_OF(half_divide) CL_2_OF(half_powr) CL_2_OF(mul24) CL_2_OF(mul_hi) CL_2_OF(rotate)
CL_3_OF(fma) CL_3_OF(mad) CL_3_OF(mix) CL_3_OF(clamp) CL_3_OF(mad24) CL_3_OF(smoothstep) CL_3_OF(bitselect)
template <class A, class C, class V = cl_result<A>, class T = cl_element<V>> CL_IN V select(const A &a, const A &b, const C &c)
{ return cl_map<V>([](T x, T y, cl_element<C> z) { return z < 0 ? y : x; }, a, b, c); }
template <class V, int... I> CL_IN auto cl_sum(const V &v, cl_list<I...>) { return (v.at[I] + ...); }
template <class V, int... I> CL_IN int cl_any(const V &v, cl_list<I...>) { return ((v.at[I] < 0) || ...); }
template <class V, int... I> CL_IN int cl_all(const V &v, cl_list<I...>) { return ((v.at[I] < 0) && ...); }
template <class A, class V = cl_result<A>> CL_IN int any(const A &a) { return cl_any((V)a, cl_upto<cl_lanes<V>>()); }
template <class A, class V = cl_result<A>> CL_IN int all(const A &a) { return cl_all((V)a, cl_upto<cl_lanes<V>>()); }
CL_REALS(dot, CL_2, a * b)
template <class A, class B, class V = cl_result<A, B>> CL_IN cl_element<V> dot(const A &a, const B &b) { return cl_sum((V)(a * b), cl_upto<cl_lanes<V>>()); }
template <class A> CL_IN auto length(const A &a) { return sqrt(dot(a, a)); }
template <class A, class B> CL_IN auto distance(const A &a, const B &b) { return length(a - b); }
template <class A> CL_IN auto normalize(const A &a) { return a * rsqrt(dot(a, a)); }
template <class A> CL_IN float fast_length(const A &a) { return native_sqrt(dot(a, a)); }
template <class A, class B> CL_IN float fast_distance(const A &a, const B &b) { return fast_length(a - b); }
template <class A> CL_IN auto fast_normalize(const A &a) { return a * rsqrt(dot(a, a)); }
template <class T> CL_IN cl_vec<T, 3> cross(const cl_vec<T, 3> &a, const cl_vec<T, 3> &b)
{ return cl_vec<T, 3>(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x); }
template <class T> CL_IN cl_vec<T, 4> cross(const cl_vec<T, 4> &a, const cl_vec<T, 4> &b)
{ return cl_vec<T, 4>(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x, (T)0); }

// Conversions: of each element, and of the bits.
template <class R, class A, class = cl_scalar<R>> CL_IN R cl_convert(A a) { return (R)a; }
template <class R, class A, class V = cl_result<A>> CL_IN typename cl_if<cl_lanes<R> == cl_lanes<V>, R>::type cl_convert(const A &a)
{ return cl_map<R>([](cl_element<V> x) { return (cl_element<R>)x; }, a); }
template <class R, class A> CL_IN R cl_as(const A &a) {
  typedef typename cl_of<A>::value V;
  static_assert(sizeof(R) == sizeof(V), "as many bytes as there are");
  const V v = a;
  return *(const R *)&v;
}
#define CL_LOADS(N) \
  template <class T> CL_IN cl_vec<T, N> vload##N(size_t i, const T *p) { cl_vec<T, N> v; _Pragma("unroll") for (int k = 0; k < N; k++) v.at[k] = p[N * i + k]; return v; } \
  template <class A, class T> CL_IN void vstore##N(const A &a, size_t i, T *p) { const cl_vec<T, N> v = a; _Pragma("unroll") for (int k = 0; k < N; k++) p[N * i + k] = v.at[k]; }
CL_LOADS(2) CL_LOADS(3) CL_LOADS(4) CL_LOADS(8) CL_LOADS(16)

// Work-items: CL_SIDE_X and so on are what a kernel's reqd_work_group_size states.
#ifndef CL_SIDE_X
#define CL_SIDE_X blockDim.x
#define CL_SIDE_Y blockDim.y
#define CL_SIDE_Z blockDim.z
#endif
#define CL_IDS(F, X, Y, Z, O) CL_IN size_t F(uint axis) { return axis == 0 ? X : axis == 1 ? Y : axis == 2 ? Z : O; }
CL_IDS(get_local_id, threadIdx.x, threadIdx.y, threadIdx.z, 0)
CL_IDS(get_group_id, blockIdx.x, blockIdx.y, blockIdx.z, 0)
CL_IDS(get_num_groups, gridDim.x, gridDim.y, gridDim.z, 1)
CL_IDS(get_local_size, CL_SIDE_X, CL_SIDE_Y, CL_SIDE_Z, 1)
CL_IDS(get_enqueued_local_size, CL_SIDE_X, CL_SIDE_Y, CL_SIDE_Z, 1)
CL_IDS(get_global_size, gridDim.x * CL_SIDE_X, gridDim.y * CL_SIDE_Y, gridDim.z * CL_SIDE_Z, 1)
CL_IDS(get_global_id, blockIdx.x * CL_SIDE_X + threadIdx.x, blockIdx.y * CL_SIDE_Y + threadIdx.y, blockIdx.z * CL_SIDE_Z + threadIdx.z, 0)
CL_IN size_t get_global_offset(uint) { return 0; }
CL_IN uint get_work_dim() { return gridDim.z * CL_SIDE_Z > 1 ? 3 : gridDim.y * CL_SIDE_Y > 1 ? 2 : 1; }
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
CL_IN void barrier(cl_mem_fence_flags) { __syncthreads(); }
CL_IN void work_group_barrier(cl_mem_fence_flags) { __syncthreads(); }
CL_IN void mem_fence(cl_mem_fence_flags) { __threadfence_block(); }
CL_IN void read_mem_fence(cl_mem_fence_flags) { __threadfence_block(); }
CL_IN void write_mem_fence(cl_mem_fence_flags) { __threadfence_block(); }
constexpr __device__ uint cl_product(uint x, uint y, uint z) { return x * y * z; }
// Where a pointer to local memory that the host gives begins.
extern __shared__ __align__(16) char cl_memory[];
struct cl_local { uint place; template <class T> CL_OWN operator T *() const { return (T *)(cl_memory + place); } };

// Atomic operations, of whose 64-bit integers CUDA knows the unsigned ones.
template <class T, bool = sizeof(T) == 8> struct cl_word { typedef T type; };
template <> struct cl_word<long, true> { typedef unsigned long long type; };
template <> struct cl_word<ulong, true> { typedef unsigned long long type; };
#define CL_ATOMIC(N, F, P, ...) \
  template <class T, class W = typename cl_word<T>::type> CL_IN T atomic_##N(volatile T *p P) { return (T)F((W *)p, __VA_ARGS__); } \
  template <class T, class W = typename cl_word<T>::type> CL_IN T atom_##N(volatile T *p P) { return (T)F((W *)p, __VA_ARGS__); }
#define CL_GIVEN , cl_same<T> x
CL_ATOMIC(add, atomicAdd, CL_GIVEN, (W)x) CL_ATOMIC(sub, atomicAdd, CL_GIVEN, (W)-x) CL_ATOMIC(xchg, atomicExch, CL_GIVEN, (W)x)
CL_ATOMIC(inc, atomicAdd, , (W)1) CL_ATOMIC(dec, atomicAdd, , (W)-1) CL_ATOMIC(min, atomicMin, CL_GIVEN, (W)x)
CL_ATOMIC(max, atomicMax, CL_GIVEN, (W)x) CL_ATOMIC(and, atomicAnd, CL_GIVEN, (W)x) CL_ATOMIC(or, atomicOr, CL_GIVEN, (W)x)
CL_ATOMIC(xor, atomicXor, CL_GIVEN, (W)x)
#define CL_COMPARED , cl_same<T> compared, cl_same<T> x
CL_ATOMIC(cmpxchg, atomicCAS, CL_COMPARED, (W)compared, (W)x)

// Words, last: nothing above may be changed by them.
#undef NULL
#define NULL 0
#define restrict __restrict__
#define __OPENCL_VERSION__ 200
#define __OPENCL_C_VERSION__ 200
#define CL_VERSION_1_0 100
#define CL_VERSION_1_1 110
#define CL_VERSION_1_2 120
#define CL_VERSION_2_0 200
#define __ENDIAN_LITTLE__ 1
#define cl_khr_fp64 1
#define cl_khr_global_int32_base_atomics 1
#define cl_khr_global_int32_extended_atomics 1
#define cl_khr_local_int32_base_atomics 1
#define cl_khr_local_int32_extended_atomics 1
#define cl_khr_int64_base_atomics 1
#define cl_khr_int64_extended_atomics 1
#define cl_khr_byte_addressable_store 1
#define char2 cl_vec<char, 2>
#define char3 cl_vec<char, 3>
#define char4 cl_vec<char, 4>
#define char8 cl_vec<char, 8>
#define char16 cl_vec<char, 16>
#define uchar2 cl_vec<uchar, 2>
#define uchar3 cl_vec<uchar, 3>
#define uchar4 cl_vec<uchar, 4>
#define uchar8 cl_vec<uchar, 8>
#define uchar16 cl_vec<uchar, 16>
#define short2 cl_vec<short, 2>
#define short3 cl_vec<short, 3>
#define short4 cl_vec<short, 4>
#define short8 cl_vec<short, 8>
#define short16 cl_vec<short, 16>
#define ushort2 cl_vec<ushort, 2>
#define ushort3 cl_vec<ushort, 3>
#define ushort4 cl_vec<ushort, 4>
#define ushort8 cl_vec<ushort, 8>
#define ushort16 cl_vec<ushort, 16>
#define int2 cl_vec<int, 2>
#define int3 cl_vec<int, 3>
#define int4 cl_vec<int, 4>
#define int8 cl_vec<int, 8>
#define int16 cl_vec<int, 16>
#define uint2 cl_vec<uint, 2>
#define uint3 cl_vec<uint, 3>
#define uint4 cl_vec<uint, 4>
#define uint8 cl_vec<uint, 8>
#define uint16 cl_vec<uint, 16>
#define long2 cl_vec<long, 2>
#define long3 cl_vec<long, 3>
#define long4 cl_vec<long, 4>
#define long8 cl_vec<long, 8>
#define long16 cl_vec<long, 16>
#define ulong2 cl_vec<ulong, 2>
#define ulong3 cl_vec<ulong, 3>
#define ulong4 cl_vec<ulong, 4>
#define ulong8 cl_vec<ulong, 8>
#define ulong16 cl_vec<ulong, 16>
#define float2 cl_vec<float, 2>
#define float3 cl_vec<float, 3>
#define float4 cl_vec<float, 4>
#define float8 cl_vec<float, 8>
#define float16 cl_vec<float, 16>
#define double2 cl_vec<double, 2>
#define double3 cl_vec<double, 3>
#define double4 cl_vec<double, 4>
#define double8 cl_vec<double, 8>
#define double16 cl_vec<double, 16>
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000LL)
#define MAXFLOAT 3.402823466e+38f
#define FLT_EPSILON 1.1920928955078125e-7f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define DBL_EPSILON 2.220446049250313e-16
#define DBL_MAX 1.7976931348623158e+308
#define DBL_MIN 2.2250738585072014e-308
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define LONG_MAX 9223372036854775807L
#define LONG_MIN (-9223372036854775807L - 1)
#define HUGE_VALF INFINITY
#define M_E 2.718281828459045
#define M_E_F 2.71828183f
#define M_PI 3.141592653589793
#define M_PI_F 3.14159265f
#define M_PI_2 1.5707963267948966
#define M_PI_2_F 1.57079633f
#define M_PI_4 0.7853981633974483
#define M_PI_4_F 0.785398163f
#define M_SQRT2 1.4142135623730951
#define M_SQRT2_F 1.41421356f
#define M_SQRT1_2 0.7071067811865476
#define M_SQRT1_2_F 0.707106781f
#define M_LOG10E 0.4342944819032518
#define M_LOG10E_F 0.434294482f
#define M_LN10 2.302585092994046
#define M_LN10_F 2.30258509f
#define M_2_SQRTPI 1.1283791670955126
#define M_2_SQRTPI_F 1.12837917f
#define M_LOG2E 1.4426950408889634
#define M_LOG2E_F 1.44269504f
#define M_LN2 0.6931471805599453
#define M_LN2_F 0.693147181f
#define M_1_PI 0.3183098861837907
#define M_1_PI_F 0.318309886f
#define M_2_PI 0.6366197723675814
#define M_2_PI_F 0.636619772f
#define CHAR_BIT 8
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define UINT_MAX 0xffffffffu
#define ULONG_MAX 0xffffffffffffffffUL
