// What device code of CUDA takes from headers of the host: the run-time compiler has none, and gets of this what is used.
#ifdef __CUDACC_RTC__
#define __cuda_body(...) { __VA_ARGS__; }
#define __cuda_not_rtc(...)
#define __builtin_huge_val() (1.0 / 0.0)
#define __builtin_huge_valf() (1.0f / 0.0f)
#define __builtin_nan(text) (0.0 / 0.0)
#define __builtin_nanf(text) (0.0f / 0.0f)
#define __cuda_first(N) (thread_block().thread_rank() % 32 / N * N)
#define __cuda_arch __CUDA_ARCH__
#define __cuda_lanes(N) ((0xffffffffu >> (32 - N)) << __cuda_first(N))
#else
#define __cuda_body(...) ;
#define __cuda_lanes(N) 0
#define __cuda_arch __arch_of_device
#define __cuda_not_rtc(...) __VA_ARGS__  // What the run-time compiler has of its own.
#define __cuda_first(N) 0  // Which of the warp's items a tile has costs nothing that is counted.
#endif
#define CUDART_INF_F (1.0f / 0.0f)
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931
#define M_PI 3.14159265358979323846
#define M_PI_F 3.14159265358979323846f
#define CUDART_INF (1.0 / 0.0)
#define CUDART_NAN_F (0.0f / 0.0f)
#define CUDART_NAN (0.0 / 0.0)
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define M_E 2.7182818284590452354
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define FLT_RADIX 2
#define FLT_MAX_EXP 128
#define FLT_MIN_EXP (-125)
#define DBL_MAX_EXP 1024
#define DBL_MIN_EXP (-1021)
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define DBL_MAX 1.7976931348623158e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
#define DBL_DIG 15
#define DBL_MANT_DIG 53
#define INFINITY (1.0f / 0.0f)
#define NAN (0.0f / 0.0f)
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-9223372036854775807l - 1)
#define ULONG_MAX 18446744073709551615ul
#define LLONG_MAX 9223372036854775807ll
#define LLONG_MIN (-9223372036854775807ll - 1)
#define ULLONG_MAX 18446744073709551615ull
#define INT8_MAX 127
#define INT8_MIN (-128)
#define UINT8_MAX 255
#define INT16_MAX 32767
#define INT16_MIN (-32768)
#define UINT16_MAX 65535
#define INT32_MAX 2147483647
#define INT32_MIN (-2147483647 - 1)
#define UINT32_MAX 4294967295u
#define INT64_MAX 9223372036854775807ll
#define INT64_MIN (-9223372036854775807ll - 1)
#define UINT64_MAX 18446744073709551615ull
#define SIZE_MAX 18446744073709551615ul
#define RAND_MAX 2147483647
#define HUGE_VALF (1.0f / 0.0f)
#define INT8_C(x) x
#define INT16_C(x) x
#define INT32_C(x) x
#define INT64_C(x) x##ll
#define UINT8_C(x) x
#define UINT16_C(x) x
#define UINT32_C(x) x##u
#define UINT64_C(x) x##ull

typedef long intptr_t;
typedef long ssize_t;
typedef unsigned long uintptr_t;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef long intmax_t;
typedef unsigned long uintmax_t;
#define __cuda_width(N, LEAST, FAST) \
  typedef signed LEAST int_least##N##_t; typedef unsigned LEAST uint_least##N##_t; typedef signed FAST int_fast##N##_t; \
  typedef unsigned FAST uint_fast##N##_t;
__cuda_width(8, char, char) __cuda_width(16, short, long) __cuda_width(32, int, long) __cuda_width(64, long, long)
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

#include "standard.h"
namespace std {
template <typename T> __host__ __device__ T min(T a, T b) __cuda_body(return b < a ? b : a)
template <typename T> __host__ __device__ T max(T a, T b) __cuda_body(return a < b ? b : a)
using ::int8_t; using ::uint8_t; using ::int16_t; using ::uint16_t; using ::int32_t; using ::uint32_t;
using ::int64_t; using ::uint64_t; using ::intptr_t; using ::uintptr_t; using ::size_t; using ::ptrdiff_t;
using ::memcpy; using ::memmove; using ::memset; using ::intmax_t; using ::uintmax_t;
#define __cuda_uses(N) \
  using ::int_least##N##_t; using ::uint_least##N##_t; using ::int_fast##N##_t; using ::uint_fast##N##_t;
__cuda_uses(8) __cuda_uses(16) __cuda_uses(32) __cuda_uses(64)
#define __cuda_limit(T, N, V) static constexpr __host__ __device__ T N() { return V; }
template <typename T> struct numeric_limits;
#define __cuda_limits(T, LOWEST, MIN, MAX, DIGITS, INTEGER, SIGNED, MORE) \
  template <> struct numeric_limits<T> { \
    __cuda_limit(T, lowest, LOWEST) __cuda_limit(T, min, MIN) __cuda_limit(T, max, MAX) MORE \
    static constexpr bool is_specialized = true, is_integer = INTEGER, is_exact = INTEGER, is_signed = SIGNED; \
    static constexpr int digits = DIGITS, digits10 = (DIGITS - !INTEGER) * 30103 / 100000; \
  };
#define __cuda_integer(T, MIN, MAX, DIGITS) __cuda_limits(T, MIN, MIN, MAX, DIGITS, true, (T)-1 < (T)1, )
__cuda_integer(bool, false, true, 1) __cuda_integer(char, CHAR_MIN, CHAR_MAX, 7) __cuda_integer(signed char, -128, 127, 7)
__cuda_integer(unsigned char, 0, UCHAR_MAX, 8) __cuda_integer(short, SHRT_MIN, SHRT_MAX, 15)
__cuda_integer(unsigned short, 0, USHRT_MAX, 16) __cuda_integer(int, INT_MIN, INT_MAX, 31)
__cuda_integer(unsigned int, 0, UINT_MAX, 32) __cuda_integer(long, LONG_MIN, LONG_MAX, 63)
__cuda_integer(unsigned long, 0, ULONG_MAX, 64) __cuda_integer(long long, LLONG_MIN, LLONG_MAX, 63)
__cuda_integer(unsigned long long, 0, ULLONG_MAX, 64)
#define __cuda_float(T, MIN, MAX, EPSILON, DIGITS, INFINITE, UNDEFINED) \
  __cuda_limits(T, -MAX, MIN, MAX, DIGITS, false, true, __cuda_limit(T, epsilon, EPSILON) \
    __cuda_limit(T, infinity, INFINITE) __cuda_limit(T, quiet_NaN, UNDEFINED) static constexpr bool has_infinity = true;)
__cuda_float(float, FLT_MIN, FLT_MAX, FLT_EPSILON, 24, __builtin_huge_valf(), __builtin_nanf(""))
__cuda_float(double, DBL_MIN, DBL_MAX, DBL_EPSILON, 53, __builtin_huge_val(), __builtin_nan(""))
}  // namespace std

// Cooperative groups
namespace cooperative_groups {
template <typename T> struct plus { __device__ T operator()(T a, T b) const { return a + b; } };
template <typename T> struct less { __device__ T operator()(T a, T b) const { return min(a, b); } };
template <typename T> struct greater { __device__ T operator()(T a, T b) const { return max(a, b); } };
template <typename T> struct bit_and { __device__ T operator()(T a, T b) const { return a & b; } };
template <typename T> struct bit_or { __device__ T operator()(T a, T b) const { return a | b; } };
template <typename T> struct bit_xor { __device__ T operator()(T a, T b) const { return a ^ b; } };
struct thread_group {
  unsigned lanes;  // None of a whole work-group
  __device__ thread_group(unsigned n) : lanes(n) {}
  __device__ void sync() const;
  __device__ unsigned thread_rank() const;
  __device__ unsigned size() const;
  __device__ unsigned num_threads() const { return size(); }
};
struct thread_block {
  __device__ operator thread_group() const { return thread_group(0); }
  __device__ void sync() const { __syncthreads(); }
  __device__ unsigned thread_rank() const { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
  __device__ unsigned size() const { return blockDim.x * blockDim.y * blockDim.z; }
  __device__ unsigned num_threads() const { return size(); }
  __device__ dim3 group_index() const { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  __device__ dim3 thread_index() const { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
  __device__ dim3 group_dim() const { return blockDim; }
  __device__ dim3 dim_threads() const { return blockDim; }
};
inline __device__ void thread_group::sync() const { if (lanes) __syncwarp(__cuda_lanes(lanes)); else __syncthreads(); }
inline __device__ unsigned thread_group::thread_rank() const
{ return lanes ? thread_block().thread_rank() % lanes : thread_block().thread_rank(); }
inline __device__ unsigned thread_group::size() const { return lanes ? lanes : thread_block().size(); }
static __device__ thread_block this_thread_block() { return thread_block(); }
struct grid_group {
  __device__ void sync() const;
  __device__ bool is_valid() const { return true; }
  __device__ unsigned block_rank() const { return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; }
  __device__ unsigned num_blocks() const { return gridDim.x * gridDim.y * gridDim.z; }
  __device__ unsigned thread_rank() const { return block_rank() * thread_block().size() + thread_block().thread_rank(); }
  __device__ unsigned size() const { return num_blocks() * thread_block().size(); }
  __device__ unsigned num_threads() const { return size(); }
  __device__ dim3 group_dim() const { return gridDim; }
};
static __device__ grid_group this_grid() { return grid_group(); }
template <typename G> static __device__ void sync(const G &group) { group.sync(); }
// Structs are shuffled word by word.
#define __cuda_by_words(NAME, BUILTIN, MASK, N) \
  template <typename T> __device__ T NAME(T x, unsigned i) const { \
    if constexpr (!__is_class(T)) { \
      return BUILTIN(MASK, x, i, N); \
    } else { \
      union { T value; unsigned words[(sizeof(T) + 3) / 4]; } all; \
      all.value = x; \
      for (unsigned k = 0; k < sizeof(all) / 4; ++k) all.words[k] = BUILTIN(MASK, all.words[k], i, N); \
      return all.value; \
    } \
  }
#define __cuda_warp(MASK, N, FIRST) \
  __device__ void sync() const { __syncwarp(MASK); } \
  __cuda_by_words(shfl, __shfl_sync, MASK, N) \
  __cuda_by_words(shfl_down, __shfl_down_sync, MASK, N) \
  __cuda_by_words(shfl_up, __shfl_up_sync, MASK, N) \
  __cuda_by_words(shfl_xor, __shfl_xor_sync, MASK, N) \
  __device__ int any(int x) const { return __any_sync(MASK, x); } \
  __device__ int all(int x) const { return __all_sync(MASK, x); } \
  __device__ unsigned ballot(int x) const { return __ballot_sync(MASK, x) FIRST; } \
  __device__ unsigned num_threads() const { return size(); }
template <unsigned N, typename G = void> struct thread_block_tile {
  static_assert(N <= 32, "groups of several warps are not read");
  unsigned outer;  // Lanes of the group that it is part of, none of a work-group
  __device__ thread_block_tile(unsigned n) : outer(n) {}
  template <typename H> __device__ thread_block_tile(const thread_block_tile<N, H> &other) : outer(other.outer) {}
  __device__ operator thread_group() const { return thread_group(N); }
  __device__ unsigned thread_rank() const { return thread_block().thread_rank() % N; }
  __device__ unsigned size() const { return N; }
  __device__ unsigned meta_group_rank() const
  { return (outer ? thread_block().thread_rank() % outer : thread_block().thread_rank()) / N; }
  __device__ unsigned meta_group_size() const { return outer ? outer / N : (thread_block().size() + N - 1) / N; }
  __cuda_warp(__cuda_lanes(N), N, >> __cuda_first(N))
};
static __device__ unsigned __lanes_of(const thread_block &) { return 0; }
static __device__ unsigned __lanes_of(const thread_group &group) { return group.lanes; }
template <unsigned N, typename G> static __device__ unsigned __lanes_of(const thread_block_tile<N, G> &) { return N; }
template <unsigned N, typename G> static __device__ thread_block_tile<N> tiled_partition(const G &group) {
  return thread_block_tile<N>(__lanes_of(group));
}
static __device__ thread_group tiled_partition(const thread_group &, unsigned lanes) { return thread_group(lanes); }
static __device__ unsigned __lanemask_lt() __cuda_body(return (1u << thread_block().thread_rank() % 32) - 1)
struct coalesced_group {
  unsigned mask;
  __device__ coalesced_group(unsigned lanes) : mask(lanes) {}
  __device__ unsigned thread_rank() const { return __popc(mask & __lanemask_lt()); }
  __device__ unsigned size() const { return __popc(mask); }
  __cuda_warp(mask, 32, )
};
static __device__ coalesced_group coalesced_threads() { return coalesced_group(__activemask()); }
template <typename T> static __device__ coalesced_group labeled_partition(const coalesced_group &group, T label) {
  return coalesced_group(__match_any_sync(group.mask, label));
}
template <unsigned N, typename G, typename T>
static __device__ coalesced_group labeled_partition(const thread_block_tile<N, G> &, T label) {
  return coalesced_group(__match_any_sync(__cuda_lanes(N), label));
}
static __device__ coalesced_group binary_partition(const coalesced_group &group, bool here) {
  const unsigned lanes = __ballot_sync(group.mask, here);
  return coalesced_group(here ? lanes : group.mask & ~lanes);
}
template <unsigned N, typename G> static __device__ coalesced_group binary_partition(const thread_block_tile<N, G> &, bool here) {
  return binary_partition(coalesced_group(__cuda_lanes(N)), here);
}
// Steps that halve, written out, as the library has them.
template <unsigned N, typename G, typename T, typename F> static __device__ T __reduce_by(const G &group, T x, F combine) {
  if constexpr (N == 0) return x; else return __reduce_by<N / 2>(group, combine(x, group.shfl_xor(x, N)), combine);
}
template <unsigned N, unsigned M, typename G, typename T, typename F> static __device__ T __scan_by(const G &group, T x, F combine) {
  if constexpr (N < M) {
    T other = group.shfl_up(x, N);
    if (group.thread_rank() >= N) x = combine(x, other);
    return __scan_by<N * 2, M>(group, x, combine);
  } else {
    return x;
  }
}
// From compute capability 8.0 on one instruction reduces integers.
template <typename T, typename F> struct __redux { static constexpr char with = 0; };
#define __cuda_redux(F, S) \
  template <> struct __redux<int, F<int>> { static constexpr char with = S; }; \
  template <> struct __redux<unsigned, F<unsigned>> { static constexpr char with = S; };
__cuda_redux(plus, '+') __cuda_redux(less, '<') __cuda_redux(greater, '>')
__cuda_redux(bit_and, '&') __cuda_redux(bit_or, '|') __cuda_redux(bit_xor, '^')
template <unsigned N, typename G, typename T, typename F>
static __device__ T reduce(const thread_block_tile<N, G> &group, T x, F combine) {
  constexpr char with = __cuda_arch >= 800 ? __redux<T, F>::with : 0;
  if constexpr (with == '+') return __reduce_add_sync(__cuda_lanes(N), x);
  else if constexpr (with == '<') return __reduce_min_sync(__cuda_lanes(N), x);
  else if constexpr (with == '>') return __reduce_max_sync(__cuda_lanes(N), x);
  else if constexpr (with == '&') return __reduce_and_sync(__cuda_lanes(N), x);
  else if constexpr (with == '|') return __reduce_or_sync(__cuda_lanes(N), x);
  else if constexpr (with == '^') return __reduce_xor_sync(__cuda_lanes(N), x);
  else return __reduce_by<N / 2>(group, x, combine);
}
template <unsigned N, typename G, typename T, typename F>
static __device__ T inclusive_scan(const thread_block_tile<N, G> &group, T x, F combine) {
  return __scan_by<1, N>(group, x, combine);
}
}  // namespace cooperative_groups
