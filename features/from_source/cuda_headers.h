// What device code of CUDA takes from headers of the host: the run-time compiler has none, and gets of this what is used.
#ifdef __CUDACC_RTC__
#define __cuda_body(...) { __VA_ARGS__; }
#else
#define __cuda_body(...) ;
#endif
#define CUDART_INF_F (1.0f / 0.0f)
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931
#define M_PI 3.14159265358979323846
#define M_PI_F 3.14159265358979323846f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define DBL_MAX 1.7976931348623158e+308
#define INFINITY (1.0f / 0.0f)
#define NAN (0.0f / 0.0f)
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define RAND_MAX 2147483647
#define HUGE_VALF (1.0f / 0.0f)

typedef long intptr_t;
typedef unsigned long uintptr_t;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

namespace std {
template <typename T> __host__ __device__ T min(T a, T b) __cuda_body(return b < a ? b : a)
template <typename T> __host__ __device__ T max(T a, T b) __cuda_body(return a < b ? b : a)
}  // namespace std

// Cooperative groups of one block
namespace cooperative_groups {
struct thread_block {
  __device__ void sync() const __cuda_body(__syncthreads())
  __device__ unsigned thread_rank() const
    __cuda_body(return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x)
  __device__ unsigned size() const __cuda_body(return blockDim.x * blockDim.y * blockDim.z)
  __device__ dim3 group_index() const __cuda_body(return dim3(blockIdx.x, blockIdx.y, blockIdx.z))
  __device__ dim3 thread_index() const __cuda_body(return dim3(threadIdx.x, threadIdx.y, threadIdx.z))
};
static __device__ thread_block this_thread_block() __cuda_body(return thread_block())
template <typename G> static __device__ void sync(const G &group) __cuda_body(group.sync())
template <unsigned N> struct thread_block_tile {
  __device__ static unsigned first() __cuda_body(return thread_block().thread_rank() % 32 / N * N)
  __device__ static unsigned mask() __cuda_body(return (0xffffffffu >> (32 - N)) << first())
  __device__ void sync() const __cuda_body(__syncwarp(mask()))
  __device__ unsigned thread_rank() const __cuda_body(return thread_block().thread_rank() % N)
  __device__ unsigned size() const __cuda_body(return N)
  __device__ unsigned meta_group_rank() const __cuda_body(return thread_block().thread_rank() / N)
  __device__ unsigned meta_group_size() const __cuda_body(return (thread_block().size() + N - 1) / N)
  template <typename T> __device__ T shfl(T x, int i) const __cuda_body(return __shfl_sync(mask(), x, i, N))
  template <typename T> __device__ T shfl_down(T x, unsigned i) const __cuda_body(return __shfl_down_sync(mask(), x, i, N))
  template <typename T> __device__ T shfl_up(T x, unsigned i) const __cuda_body(return __shfl_up_sync(mask(), x, i, N))
  template <typename T> __device__ T shfl_xor(T x, unsigned i) const __cuda_body(return __shfl_xor_sync(mask(), x, i, N))
  __device__ int any(int x) const __cuda_body(return __any_sync(mask(), x))
  __device__ int all(int x) const __cuda_body(return __all_sync(mask(), x))
  __device__ unsigned ballot(int x) const __cuda_body(return __ballot_sync(mask(), x) >> first())
};
template <unsigned N> static __device__ thread_block_tile<N> tiled_partition(const thread_block &)
  __cuda_body(return thread_block_tile<N>())
}  // namespace cooperative_groups
