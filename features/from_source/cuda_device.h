// What device code of CUDA uses without including it: qualifiers, vector types, built-in variables and functions.
// Declarations only: functions are known to the reader by their names.
#pragma once
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((managed))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __align__(n) __attribute__((aligned(n)))
#define __cuda_builtin static __device__
#define __CUDACC__ 1
#define __CUDACC_VER_MAJOR__ 12
#define CUDART_VERSION 12000
#define NULL 0

typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef _Float16 half;
typedef _Float16 __half;

// Structs, as in CUDA: those of three lie without gaps, and operators are what programs define.
#define __cuda_vectors(T, N) \
  struct N##1 { T x; }; \
  struct __align__(2 * sizeof(T)) N##2 { T x, y; }; \
  struct N##3 { T x, y, z; }; \
  struct __align__(sizeof(T) > 4 ? 16 : 4 * sizeof(T)) N##4 { T x, y, z, w; }; \
  static __device__ N##1 make_##N##1(T); static __device__ N##2 make_##N##2(T, T); static __device__ N##3 make_##N##3(T, T, T); \
  static __device__ N##4 make_##N##4(T, T, T, T);
__cuda_vectors(signed char, char) __cuda_vectors(unsigned char, uchar) __cuda_vectors(short, short)
__cuda_vectors(unsigned short, ushort) __cuda_vectors(int, int) __cuda_vectors(unsigned int, uint)
__cuda_vectors(long, long) __cuda_vectors(unsigned long, ulong) __cuda_vectors(long long, longlong)
__cuda_vectors(unsigned long long, ulonglong) __cuda_vectors(float, float) __cuda_vectors(double, double)
typedef float cufftReal;
typedef float2 cufftComplex;
typedef double cufftDoubleReal;
typedef double2 cufftDoubleComplex;

struct dim3 {
  unsigned int x, y, z;
  __host__ __device__ constexpr dim3(unsigned int a = 1, unsigned int b = 1, unsigned int c = 1) : x(a), y(b), z(c) {}
};
// A struct, not a vector: clang hides which element of a vector a macro names.
struct __cuda_index {
  unsigned int x, y, z;
  __device__ operator uint3() const;
  __device__ operator dim3() const;
};
extern __device__ const __cuda_index threadIdx;
extern __device__ const __cuda_index blockIdx;
extern __device__ const dim3 blockDim;
extern __device__ const dim3 gridDim;
#ifdef __CUDA_ARCH__
constexpr int __arch_of_device = __CUDA_ARCH__;
#else
constexpr int __arch_of_device = 0;
#endif
#ifdef __AMDGCN_WAVEFRONT_SIZE
constexpr int warpSize = __AMDGCN_WAVEFRONT_SIZE;
#else
constexpr int warpSize = 32;
#endif

// Synchronisation
__device__ void __syncthreads();  // which clang declares, too
__cuda_builtin int __syncthreads_or(int);
__cuda_builtin int __syncthreads_and(int);
__cuda_builtin int __syncthreads_count(int);
__cuda_builtin void __syncwarp(unsigned int = 0xffffffff);
__cuda_builtin void __threadfence();
__cuda_builtin void __threadfence_block();
__cuda_builtin void __threadfence_system();
__cuda_builtin void __trap();
__cuda_builtin void __nanosleep(unsigned int);
__cuda_builtin int printf(const char *, ...);
__cuda_builtin long long clock64();
__cuda_builtin long clock();
__cuda_builtin void assert(bool);
__cuda_builtin void __prof_trigger(int);

// Warps
#define __cuda_shuffle(T) \
  __cuda_builtin T __shfl_sync(unsigned, T, int, int = 32); __cuda_builtin T __shfl_up_sync(unsigned, T, unsigned, int = 32); \
  __cuda_builtin T __shfl_down_sync(unsigned, T, unsigned, int = 32); __cuda_builtin T __shfl_xor_sync(unsigned, T, int, int = 32); \
  __cuda_builtin T __shfl(T, int, int = 32); __cuda_builtin T __shfl_up(T, unsigned, int = 32); \
  __cuda_builtin T __shfl_down(T, unsigned, int = 32); __cuda_builtin T __shfl_xor(T, int, int = 32);
__cuda_shuffle(int) __cuda_shuffle(unsigned) __cuda_shuffle(long) __cuda_shuffle(unsigned long) __cuda_shuffle(long long)
__cuda_shuffle(unsigned long long) __cuda_shuffle(float) __cuda_shuffle(double) __cuda_shuffle(half)
__cuda_builtin unsigned __ballot_sync(unsigned, int);
template <typename T> __cuda_builtin unsigned __match_any_sync(unsigned, T);
__cuda_builtin int __any_sync(unsigned, int);
__cuda_builtin int __all_sync(unsigned, int);
__cuda_builtin unsigned __activemask();
__cuda_builtin unsigned __ballot(int);
__cuda_builtin int __any(int);
__cuda_builtin int __all(int);
#define __cuda_reduced(N) \
  __cuda_builtin int __reduce_##N##_sync(unsigned, int); __cuda_builtin unsigned __reduce_##N##_sync(unsigned, unsigned);
__cuda_reduced(add) __cuda_reduced(min) __cuda_reduced(max) __cuda_reduced(and) __cuda_reduced(or) __cuda_reduced(xor)

// Atomic updates
#define __cuda_atomic(T) \
  __cuda_builtin T atomicAdd(T *, T); __cuda_builtin T atomicSub(T *, T); __cuda_builtin T atomicExch(T *, T); \
  __cuda_builtin T atomicMin(T *, T); __cuda_builtin T atomicMax(T *, T); __cuda_builtin T atomicAnd(T *, T); \
  __cuda_builtin T atomicOr(T *, T); __cuda_builtin T atomicXor(T *, T); __cuda_builtin T atomicCAS(T *, T, T); \
  __cuda_builtin T atomicInc(T *, T); __cuda_builtin T atomicDec(T *, T);
__cuda_atomic(int) __cuda_atomic(unsigned) __cuda_atomic(long long) __cuda_atomic(unsigned long long) __cuda_atomic(float)
__cuda_atomic(double)
__cuda_builtin unsigned short atomicCAS(unsigned short *, unsigned short, unsigned short);
#define atomicAdd_system atomicAdd
#define atomicExch_system atomicExch
#define atomicMin_system atomicMin
#define atomicMax_system atomicMax
#define atomicInc_system atomicInc
#define atomicDec_system atomicDec
#define atomicCAS_system atomicCAS
#define atomicAnd_system atomicAnd
#define atomicOr_system atomicOr
#define atomicXor_system atomicXor
#define atomicSub_system atomicSub
#define atomicAdd_block atomicAdd
#define atomicAnd_block atomicAnd
#define atomicCAS_block atomicCAS
#define atomicDec_block atomicDec
#define atomicExch_block atomicExch
#define atomicInc_block atomicInc
#define atomicMax_block atomicMax
#define atomicMin_block atomicMin
#define atomicOr_block atomicOr
#define atomicXor_block atomicXor
#define atomicSub_block atomicSub

// Loads and stores with hints
template <typename T> __cuda_builtin T __ldg(const T *);
template <typename T> __cuda_builtin T __ldcg(const T *);
template <typename T> __cuda_builtin T __ldcs(const T *);
template <typename T> __cuda_builtin T __ldca(const T *);
template <typename T> __cuda_builtin T __ldlu(const T *);
template <typename T> __cuda_builtin T __ldcv(const T *);
template <typename T> __cuda_builtin void __stwb(T *, T);
template <typename T> __cuda_builtin void __stwt(T *, T);
template <typename T> __cuda_builtin void __stcg(T *, T);
template <typename T> __cuda_builtin void __stcs(T *, T);

// Mathematics: with one, two and three operands; of integers, and of float and double, in double
template <bool B> struct __cuda_if {};
template <> struct __cuda_if<true> { typedef double type; };
template <typename A, typename B> constexpr bool __cuda_in_double =
  (__is_integral(A) && __is_integral(B)) || (__is_same(A, float) && __is_same(B, double)) || (__is_same(A, double) && __is_same(B, float));
#define __cuda_math1(N) __cuda_builtin float N##f(float); __cuda_builtin float N(float); __cuda_builtin double N(double);
#define __cuda_math2(N) \
  __cuda_builtin float N##f(float, float); __cuda_builtin float N(float, float); __cuda_builtin double N(double, double);
#define __cuda_math3(N) \
  __cuda_builtin float N##f(float, float, float); __cuda_builtin float N(float, float, float); \
  __cuda_builtin double N(double, double, double);
__cuda_math1(sqrt) __cuda_math1(rsqrt) __cuda_math1(cbrt) __cuda_math1(exp) __cuda_math1(exp2) __cuda_math1(exp10)
__cuda_math1(expm1) __cuda_math1(log) __cuda_math1(log2) __cuda_math1(log10) __cuda_math1(log1p) __cuda_math1(sin)
__cuda_math1(cos) __cuda_math1(tan) __cuda_math1(asin) __cuda_math1(acos) __cuda_math1(atan) __cuda_math1(sinh)
__cuda_math1(cosh) __cuda_math1(tanh) __cuda_math1(asinh) __cuda_math1(acosh) __cuda_math1(atanh) __cuda_math1(sinpi)
__cuda_math1(cospi) __cuda_math1(erf) __cuda_math1(erfc) __cuda_math1(floor) __cuda_math1(ceil) __cuda_math1(round)
__cuda_math1(rint) __cuda_math1(trunc) __cuda_math1(fabs) __cuda_math1(lgamma) __cuda_math1(tgamma) __cuda_math1(nearbyint)
__cuda_math1(rcbrt) __cuda_math1(normcdf) __cuda_math1(normcdfinv) __cuda_math1(erfcx) __cuda_math1(erfinv)
__cuda_math1(erfcinv) __cuda_math1(logb) __cuda_math1(j0) __cuda_math1(j1) __cuda_math1(y0) __cuda_math1(y1)
__cuda_math2(pow) __cuda_math2(fmod) __cuda_math2(fmin) __cuda_math2(fmax) __cuda_math2(atan2) __cuda_math2(hypot)
__cuda_math2(copysign) __cuda_math2(fdim) __cuda_math2(remainder) __cuda_math2(rhypot) __cuda_math2(nextafter)
#define __cuda_integers1(N) template <typename A> __cuda_builtin typename __cuda_if<__is_integral(A)>::type N(A);
#define __cuda_integers2(N) \
  template <typename A, typename B> __cuda_builtin typename __cuda_if<__cuda_in_double<A, B>>::type N(A, B);
__cuda_integers1(sqrt) __cuda_integers1(exp) __cuda_integers1(exp2) __cuda_integers1(log) __cuda_integers1(log2)
__cuda_integers1(log10) __cuda_integers1(sin) __cuda_integers1(cos) __cuda_integers1(tan) __cuda_integers1(floor)
__cuda_integers1(ceil) __cuda_integers1(round) __cuda_integers1(fabs) __cuda_integers1(cbrt)
__cuda_integers2(pow) __cuda_integers2(fmod) __cuda_integers2(fmin) __cuda_integers2(fmax) __cuda_integers2(atan2)
__cuda_math3(fma) __cuda_math3(norm3d) __cuda_math3(rnorm3d)
#define __cuda_math_to(N, T) __cuda_builtin T N##f(float); __cuda_builtin T N(float); __cuda_builtin T N(double);
__cuda_math_to(lround, long) __cuda_math_to(lrint, long) __cuda_math_to(llround, long long)
__cuda_math_to(llrint, long long) __cuda_math_to(ilogb, int)
__cuda_builtin float norm4df(float, float, float, float);
__cuda_builtin double norm4d(double, double, double, double);
__cuda_builtin float rnorm4df(float, float, float, float);
__cuda_builtin double rnorm4d(double, double, double, double);
__cuda_builtin void sincospif(float, float *, float *);
__cuda_builtin void sincospi(double, double *, double *);
__cuda_builtin float modff(float, float *);
__cuda_builtin double modf(double, double *);
__cuda_builtin float frexpf(float, int *);
__cuda_builtin double frexp(double, int *);
__cuda_builtin float remquof(float, float, int *);
__cuda_builtin float scalbnf(float, int);
__cuda_builtin double scalbn(double, int);
__cuda_builtin double pow(double, int);
__cuda_builtin float pow(float, int);
__cuda_builtin float powf(float, int);
__cuda_builtin void sincosf(float, float *, float *);
__cuda_builtin void sincos(double, double *, double *);
__cuda_builtin float ldexpf(float, int);
__cuda_builtin double ldexp(double, int);
__cuda_builtin int abs(int);
__cuda_builtin long abs(long);
__cuda_builtin long labs(long);
__cuda_builtin long long abs(long long);
__cuda_builtin long long llabs(long long);
__cuda_builtin float abs(float);
__cuda_builtin double abs(double);
__cuda_builtin bool isnan(double);
__cuda_builtin bool isinf(double);
__cuda_builtin bool isfinite(double);
__cuda_builtin bool signbit(double);
__cuda_builtin float saturate(float);
#define __cuda_extremes(T) __cuda_builtin T min(T, T); __cuda_builtin T max(T, T);
__cuda_extremes(int) __cuda_extremes(unsigned) __cuda_extremes(long) __cuda_extremes(unsigned long) __cuda_extremes(long long)
__cuda_extremes(unsigned long long) __cuda_extremes(float) __cuda_extremes(double)
#define __cuda_mixed(A, B, T) __cuda_builtin T min(A, B); __cuda_builtin T max(A, B); __cuda_builtin T min(B, A); \
  __cuda_builtin T max(B, A);
__cuda_mixed(float, double, double) __cuda_mixed(int, long, long) __cuda_mixed(int, long long, long long)
__cuda_mixed(unsigned, unsigned long, unsigned long) __cuda_mixed(unsigned, unsigned long long, unsigned long long)
__cuda_builtin float nanf(const char *);
__cuda_builtin double nan(const char *);
__cuda_builtin unsigned min(int, unsigned);
__cuda_builtin unsigned min(unsigned, int);
__cuda_builtin unsigned max(int, unsigned);
__cuda_builtin unsigned max(unsigned, int);
__cuda_builtin unsigned umin(unsigned, unsigned);
__cuda_builtin unsigned umax(unsigned, unsigned);

// Intrinsics
__cuda_builtin float __expf(float);
__cuda_builtin float __exp10f(float);
__cuda_builtin float __logf(float);
__cuda_builtin float __log2f(float);
__cuda_builtin float __log10f(float);
__cuda_builtin float __sinf(float);
__cuda_builtin float __cosf(float);
__cuda_builtin float __tanf(float);
__cuda_builtin float __powf(float, float);
__cuda_builtin float __saturatef(float);
__cuda_builtin void __sincosf(float, float *, float *);
__cuda_builtin float __fdividef(float, float);
__cuda_builtin float fdividef(float, float);
#define __cuda_rounded(R) \
  __cuda_builtin float __frcp_##R(float); __cuda_builtin float __fsqrt_##R(float); \
  __cuda_builtin float __fadd_##R(float, float); __cuda_builtin float __fsub_##R(float, float); \
  __cuda_builtin float __fmul_##R(float, float); __cuda_builtin float __fdiv_##R(float, float); \
  __cuda_builtin float __fmaf_##R(float, float, float); __cuda_builtin double __fma_##R(double, double, double); \
  __cuda_builtin double __dadd_##R(double, double); __cuda_builtin double __dsub_##R(double, double); \
  __cuda_builtin double __dmul_##R(double, double); __cuda_builtin double __ddiv_##R(double, double); \
  __cuda_builtin double __drcp_##R(double); __cuda_builtin double __dsqrt_##R(double); \
  __cuda_builtin int __float2int_##R(float); __cuda_builtin unsigned __float2uint_##R(float); \
  __cuda_builtin long long __float2ll_##R(float); __cuda_builtin unsigned long long __float2ull_##R(float); \
  __cuda_builtin int __double2int_##R(double); __cuda_builtin unsigned __double2uint_##R(double); \
  __cuda_builtin long long __double2ll_##R(double); __cuda_builtin unsigned long long __double2ull_##R(double); \
  __cuda_builtin float __double2float_##R(double); __cuda_builtin float __int2float_##R(int); \
  __cuda_builtin float __uint2float_##R(unsigned); __cuda_builtin float __ll2float_##R(long long); \
  __cuda_builtin float __ull2float_##R(unsigned long long); __cuda_builtin double __ll2double_##R(long long); \
  __cuda_builtin double __ull2double_##R(unsigned long long);
__cuda_rounded(rn) __cuda_rounded(rz) __cuda_rounded(ru) __cuda_rounded(rd)
__cuda_builtin double __int2double_rn(int);
__cuda_builtin double __uint2double_rn(unsigned);
__cuda_builtin float __frsqrt_rn(float);
__cuda_builtin int __hadd(int, int);
__cuda_builtin int __rhadd(int, int);
__cuda_builtin unsigned __uhadd(unsigned, unsigned);
__cuda_builtin unsigned __urhadd(unsigned, unsigned);
__cuda_builtin long long __mul64hi(long long, long long);
__cuda_builtin unsigned long long __umul64hi(unsigned long long, unsigned long long);
__cuda_builtin int __ffsll(long long);
__cuda_builtin unsigned long long __brevll(unsigned long long);
__cuda_builtin int __dp4a(int, int, int);
__cuda_builtin unsigned __dp4a(unsigned, unsigned, unsigned);
__cuda_builtin double __hiloint2double(int, int);
__cuda_builtin int __double2hiint(double);
__cuda_builtin int __double2loint(double);
__cuda_builtin int __mul24(int, int);
__cuda_builtin unsigned __umul24(unsigned, unsigned);
__cuda_builtin int __mulhi(int, int);
__cuda_builtin unsigned __umulhi(unsigned, unsigned);
__cuda_builtin int __popc(unsigned);
__cuda_builtin int __popcll(unsigned long long);
__cuda_builtin int __clz(int);
__cuda_builtin int __clzll(long long);
__cuda_builtin int __ffs(int);
__cuda_builtin unsigned __brev(unsigned);
__cuda_builtin unsigned __byte_perm(unsigned, unsigned, unsigned);
__cuda_builtin unsigned __sad(int, int, unsigned);
__cuda_builtin unsigned __usad(unsigned, unsigned, unsigned);
__cuda_builtin unsigned __usad4(unsigned, unsigned, unsigned);
// Two and four integers in one
#define __cuda_packed1(N) __cuda_builtin unsigned __v##N##2(unsigned); __cuda_builtin unsigned __v##N##4(unsigned);
#define __cuda_packed(N) \
  __cuda_builtin unsigned __v##N##2(unsigned, unsigned); __cuda_builtin unsigned __v##N##4(unsigned, unsigned);
__cuda_packed1(abs) __cuda_packed1(absss) __cuda_packed1(neg) __cuda_packed1(negss)
__cuda_packed(add) __cuda_packed(addss) __cuda_packed(addus) __cuda_packed(sub) __cuda_packed(subss) __cuda_packed(subus)
__cuda_packed(maxs) __cuda_packed(maxu) __cuda_packed(mins) __cuda_packed(minu) __cuda_packed(avgs) __cuda_packed(avgu)
__cuda_packed(haddu) __cuda_packed(absdiffs) __cuda_packed(absdiffu) __cuda_packed(sads) __cuda_packed(sadu)
#define __cuda_packed_test(N) \
  __cuda_packed(cmp##N##s) __cuda_packed(cmp##N##u) __cuda_packed(set##N##s) __cuda_packed(set##N##u)
__cuda_packed(cmpeq) __cuda_packed(cmpne) __cuda_packed(seteq) __cuda_packed(setne)
__cuda_packed_test(ge) __cuda_packed_test(gt) __cuda_packed_test(le) __cuda_packed_test(lt)
__cuda_builtin unsigned __funnelshift_l(unsigned, unsigned, unsigned);
__cuda_builtin unsigned __funnelshift_r(unsigned, unsigned, unsigned);
__cuda_builtin int __float_as_int(float);
__cuda_builtin unsigned __float_as_uint(float);
__cuda_builtin float __int_as_float(int);
__cuda_builtin float __uint_as_float(unsigned);
__cuda_builtin long long __double_as_longlong(double);
__cuda_builtin double __longlong_as_double(long long);

#include "device_memory.h"
#include "cuda_headers.h"
namespace std {
using ::sqrt; using ::cbrt; using ::exp; using ::exp2; using ::expm1; using ::log; using ::log2; using ::log10; using ::log1p;
using ::sin; using ::cos; using ::tan; using ::asin; using ::acos; using ::atan; using ::atan2; using ::sinh; using ::cosh;
using ::tanh; using ::asinh; using ::acosh; using ::atanh; using ::erf; using ::erfc; using ::tgamma; using ::lgamma;
using ::floor; using ::ceil; using ::round; using ::trunc; using ::rint; using ::nearbyint; using ::lround; using ::fabs;
using ::abs; using ::pow; using ::fmod; using ::fmin; using ::fmax; using ::hypot; using ::copysign; using ::fma;
using ::remainder; using ::ldexp; using ::frexp; using ::modf; using ::isnan; using ::isinf; using ::isfinite; using ::signbit;
}  // namespace std
#include "thrust_device.h"

// Textures and surfaces: kernels that use one are refused by the function's name
typedef struct __cuda_image *cudaTextureObject_t, *cudaSurfaceObject_t, *CUtexObject, *CUsurfObject;
enum cudaTextureReadMode { cudaReadModeElementType, cudaReadModeNormalizedFloat };
enum cudaSurfaceBoundaryMode { cudaBoundaryModeZero, cudaBoundaryModeClamp, cudaBoundaryModeTrap };
constexpr int cudaTextureType1D = 1, cudaTextureType2D = 2, cudaTextureType3D = 3, cudaTextureTypeCubemap = 12,
              cudaTextureType1DLayered = 241, cudaTextureType2DLayered = 242;
template <typename T, int Dim = 1, cudaTextureReadMode Mode = cudaReadModeElementType> struct texture {};
template <typename T> struct __normalised { typedef float type; };
#define __cuda_normalised(T) template <> struct __normalised<T##2> { typedef float2 type; }; template <> struct __normalised<T##4> { typedef float4 type; };
__cuda_normalised(char) __cuda_normalised(uchar) __cuda_normalised(short) __cuda_normalised(ushort)
#define __cuda_texture(N) \
  template <typename T, typename... A> __cuda_builtin T N(cudaTextureObject_t, A...); \
  template <typename T, int D, typename... A> __cuda_builtin T N(texture<T, D, cudaReadModeElementType>, A...); \
  template <typename T, int D, typename... A> \
  __cuda_builtin typename __normalised<T>::type N(texture<T, D, cudaReadModeNormalizedFloat>, A...);
#define __cuda_textures(N) \
  __cuda_texture(N) __cuda_texture(N##Lod) __cuda_texture(N##Grad) __cuda_texture(N##Layered) __cuda_texture(N##gather)
__cuda_texture(tex1Dfetch) __cuda_textures(tex1D) __cuda_textures(tex2D) __cuda_textures(tex3D) __cuda_textures(texCubemap)
__cuda_textures(tex1DLayered) __cuda_textures(tex2DLayered) __cuda_textures(texCubemapLayered)
#define __cuda_surface(N) \
  template <typename T = int, typename... A> __cuda_builtin T N##read(A...); \
  template <typename T = int, typename... A> __cuda_builtin void N##write(A...);
__cuda_surface(surf1D) __cuda_surface(surf2D) __cuda_surface(surf3D) __cuda_surface(surfCubemap)
__cuda_surface(surf1DLayered) __cuda_surface(surf2DLayered) __cuda_surface(surfCubemapLayered)

// Host calls that stand beside kernels in the same file
typedef void *cudaStream_t;
typedef int cudaError_t;
typedef unsigned long long cudaGraphConditionalHandle;
__cuda_builtin void cudaGraphSetConditional(cudaGraphConditionalHandle, unsigned);
typedef long clock_t;
struct cudaExtent { size_t width, height, depth; };
struct cudaDeviceProp;
extern "C" __host__ int cudaConfigureCall(dim3, dim3, size_t = 0, cudaStream_t = 0);
