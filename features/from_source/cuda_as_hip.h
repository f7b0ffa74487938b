// CUDA C++'s vectors, variables and functions of devices for clang's HIP (C++17), on top of clang's own mathematics:
// kernels are compiled so, never launched. What is missing here does not compile.
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define CUDA_IN static __device__ __forceinline__
// As HIP has it: work-items of a work-group at most, and sub-groups that a SIMD unit is to hold.
#define CUDA_BOUNDS_1(ITEMS) __attribute__((amdgpu_flat_work_group_size(1, ITEMS)))
#define CUDA_BOUNDS_2(ITEMS, HELD) __attribute__((amdgpu_flat_work_group_size(1, ITEMS), amdgpu_waves_per_eu(HELD)))
#define CUDA_BOUNDS_3(ITEMS, HELD, CLUSTER) CUDA_BOUNDS_2(ITEMS, HELD)
#define CUDA_BOUNDS(A, B, C, NAME, ...) NAME
#define __launch_bounds__(...) CUDA_BOUNDS(__VA_ARGS__, CUDA_BOUNDS_3, CUDA_BOUNDS_2, CUDA_BOUNDS_1)(__VA_ARGS__)
#ifndef NULL
#define NULL 0
#endif
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef __INT8_TYPE__ int8_t; typedef __INT16_TYPE__ int16_t; typedef __INT32_TYPE__ int32_t; typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t; typedef __UINT16_TYPE__ uint16_t; typedef __UINT32_TYPE__ uint32_t; typedef __UINT64_TYPE__ uint64_t;

#define CUDA_VECTORS(T, N) \
  struct N##1 { T x; }; \
  struct __align__(2 * sizeof(T)) N##2 { T x, y; }; \
  struct N##3 { T x, y, z; }; \
  struct __align__(sizeof(T) > 4 ? 16 : 4 * sizeof(T)) N##4 { T x, y, z, w; }; \
  static inline __host__ __device__ N##1 make_##N##1(T x) { return {x}; } \
  static inline __host__ __device__ N##2 make_##N##2(T x, T y) { return {x, y}; } \
  static inline __host__ __device__ N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; } \
  static inline __host__ __device__ N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUDA_VECTORS(signed char, char) CUDA_VECTORS(unsigned char, uchar) CUDA_VECTORS(short, short)
CUDA_VECTORS(unsigned short, ushort) CUDA_VECTORS(int, int) CUDA_VECTORS(unsigned int, uint) CUDA_VECTORS(long, long)
CUDA_VECTORS(unsigned long, ulong) CUDA_VECTORS(long long, longlong) CUDA_VECTORS(unsigned long long, ulonglong)
CUDA_VECTORS(float, float) CUDA_VECTORS(double, double)

struct dim3 {
  uint x, y, z;
  __host__ __device__ constexpr dim3(uint a = 1, uint b = 1, uint c = 1) : x(a), y(b), z(c) {}
  __host__ __device__ constexpr operator uint3() const { return {x, y, z}; }
};
#define CUDA_INDEX(NAME, X, Y, Z) \
  struct NAME##_of_device { \
    __declspec(property(get = at_x)) uint x; __declspec(property(get = at_y)) uint y; __declspec(property(get = at_z)) uint z; \
    CUDA_INDEX_OF(x, X) CUDA_INDEX_OF(y, Y) CUDA_INDEX_OF(z, Z) \
    __device__ operator dim3() const { return dim3(at_x(), at_y(), at_z()); } \
    __device__ operator uint3() const { return {at_x(), at_y(), at_z()}; } \
  }; \
  extern const __device__ __attribute__((weak)) NAME##_of_device NAME;
#define CUDA_INDEX_OF(AXIS, VALUE) __device__ __forceinline__ uint at_##AXIS() const { return VALUE; }
extern "C" __device__ __attribute__((const)) size_t __ockl_get_local_size(uint);
extern "C" __device__ __attribute__((const)) size_t __ockl_get_num_groups(uint);
CUDA_INDEX(threadIdx, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z())
CUDA_INDEX(blockIdx, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z())
CUDA_INDEX(blockDim, (uint)__ockl_get_local_size(0), (uint)__ockl_get_local_size(1), (uint)__ockl_get_local_size(2))
CUDA_INDEX(gridDim, (uint)__ockl_get_num_groups(0), (uint)__ockl_get_num_groups(1), (uint)__ockl_get_num_groups(2))
constexpr int warpSize = __AMDGCN_WAVEFRONT_SIZE;

// Synchronisation, as HIP has it
CUDA_IN void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
CUDA_IN void __syncwarp(unsigned long = ~0ul) { __builtin_amdgcn_wave_barrier(); }
CUDA_IN void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
CUDA_IN void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
CUDA_IN void __threadfence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }

// Sub-groups
CUDA_IN int cuda_lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }
CUDA_IN int cuda_from(int x, int lane) { return __builtin_amdgcn_ds_bpermute(4 * lane, x); }
template <class T> CUDA_IN T cuda_from(T x, int lane) {
  int words[(sizeof(T) + 3) / 4] = {};
  __builtin_memcpy(words, &x, sizeof(T));
  for (int &each : words) each = cuda_from(each, lane);
  __builtin_memcpy(&x, words, sizeof(T));
  return x;
}
template <class T> CUDA_IN T __shfl(T x, int from, int width = warpSize) {
  return cuda_from(x, (from & (width - 1)) + (cuda_lane() & ~(width - 1)));
}
template <class T> CUDA_IN T __shfl_up(T x, uint by, int width = warpSize) {
  int own = cuda_lane(), from = own - (int)by;
  return cuda_from(x, from < (own & ~(width - 1)) ? own : from);
}
template <class T> CUDA_IN T __shfl_down(T x, uint by, int width = warpSize) {
  int own = cuda_lane();
  return cuda_from(x, (own & (width - 1)) + (int)by >= width ? own : own + (int)by);
}
template <class T> CUDA_IN T __shfl_xor(T x, int mask, int width = warpSize) {
  int own = cuda_lane(), from = own ^ mask;
  return cuda_from(x, from >= ((own + width) & ~(width - 1)) ? own : from);
}
#define CUDA_SYNC(NAME, TYPE) \
  template <class T> CUDA_IN T NAME##_sync(unsigned long, T x, TYPE by, int width = warpSize) { return NAME(x, by, width); }
CUDA_SYNC(__shfl, int) CUDA_SYNC(__shfl_up, uint) CUDA_SYNC(__shfl_down, uint) CUDA_SYNC(__shfl_xor, int)

// Atomic updates
#define CUDA_ATOMIC(NAME, BUILTIN) \
  template <class T> CUDA_IN T atomic##NAME(T *p, T x) { return BUILTIN(p, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
CUDA_ATOMIC(Add, __hip_atomic_fetch_add) CUDA_ATOMIC(Min, __hip_atomic_fetch_min) CUDA_ATOMIC(Max, __hip_atomic_fetch_max)
CUDA_ATOMIC(And, __hip_atomic_fetch_and) CUDA_ATOMIC(Or, __hip_atomic_fetch_or) CUDA_ATOMIC(Xor, __hip_atomic_fetch_xor)
CUDA_ATOMIC(Exch, __hip_atomic_exchange)
template <class T, class S> CUDA_IN T atomicAdd(T *p, S x) { return atomicAdd(p, (T)x); }
template <class T, class S> CUDA_IN T atomicSub(T *p, S x) { return atomicAdd(p, (T)-x); }
template <class T> CUDA_IN T atomicCAS(T *p, T before, T x) {
  __hip_atomic_compare_exchange_strong(p, &before, x, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  return before;
}

// Loads and stores with hints
#define CUDA_LOAD(N) template <class T> CUDA_IN T N(const T *p) { return *p; }
#define CUDA_STORE(N) template <class T> CUDA_IN void N(T *p, T x) { *p = x; }
CUDA_LOAD(__ldg) CUDA_LOAD(__ldca) CUDA_LOAD(__ldcg) CUDA_LOAD(__ldcs) CUDA_LOAD(__ldlu) CUDA_LOAD(__ldcv)
CUDA_STORE(__stwb) CUDA_STORE(__stwt) CUDA_STORE(__stcg) CUDA_STORE(__stcs)

// Integers
CUDA_IN int __popc(uint x) { return __builtin_popcount(x); }
CUDA_IN int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
CUDA_IN int __clz(int x) { return x ? __builtin_clz(x) : 32; }
CUDA_IN int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
CUDA_IN int __ffs(int x) { return __builtin_ffs(x); }
CUDA_IN uint __brev(uint x) { return __builtin_bitreverse32(x); }
CUDA_IN int __mul24(int x, int y) { return ((x << 8) >> 8) * ((y << 8) >> 8); }
CUDA_IN uint __umul24(uint x, uint y) { return (x & 0xffffff) * (y & 0xffffff); }
CUDA_IN int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
CUDA_IN uint __umulhi(uint x, uint y) { return (uint)((unsigned long long)x * y >> 32); }
CUDA_IN int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
CUDA_IN uint __float_as_uint(float x) { return __builtin_bit_cast(uint, x); }
CUDA_IN float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
CUDA_IN float __uint_as_float(uint x) { return __builtin_bit_cast(float, x); }
