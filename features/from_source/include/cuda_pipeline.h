// Asynchronous copies from global to shared memory, which load and store, and what waits for them: within a work-item
// nothing that is counted, of a work-group a barrier. Copies are in pieces of the alignment that is known.
#pragma once
template <typename T, size_t Align, bool Whole> struct __cuda_copied { typedef typename __cuda_word<Align>::type type; };
template <typename T, size_t Align> struct __cuda_copied<T, Align, true> { typedef T type; };
template <typename T> struct __cuda_copied<T, 16, false> { typedef uint4 type; };
template <> struct __cuda_copied<float, 16, false> { typedef float4 type; };
template <> struct __cuda_copied<float, 8, false> { typedef float2 type; };
template <size_t Align, typename P, typename Q>
static __device__ void __cuda_copy_by(P *to, const Q *from, size_t bytes, size_t first, size_t step) {
  constexpr size_t most = Align < 16 ? Align : 16;
  typedef typename __cuda_copied<P, most, sizeof(P) == most>::type piece;
  for (size_t i = first; i < bytes / sizeof(piece); i += step) ((piece *)to)[i] = ((const piece *)from)[i];
}
template <typename P, typename Q> static __device__ void __pipeline_memcpy_async(P *to, const Q *from, size_t bytes) {
  if (bytes == 16) __cuda_copy_by<16>(to, from, bytes, 0, 1);
  else if (bytes == 8) __cuda_copy_by<8>(to, from, bytes, 0, 1);
  else __cuda_copy_by<4>(to, from, bytes, 0, 1);
}
static __device__ void __pipeline_commit() {}
static __device__ void __pipeline_wait_prior(size_t) {}
namespace cuda {
enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread = 10 };
template <size_t Align> struct aligned_size_t {
  static constexpr size_t align = Align;
  size_t value;
  __device__ constexpr explicit aligned_size_t(size_t n) : value(n) {}
  __device__ constexpr operator size_t() const { return value; }
};
enum memory_order { memory_order_relaxed, memory_order_acquire = 2, memory_order_release, memory_order_acq_rel, memory_order_seq_cst };
template <typename T, thread_scope Scope = thread_scope_system> struct atomic_ref {
  T *own;
  __device__ explicit atomic_ref(T &x) : own(&x) {}
  __device__ T load(memory_order = memory_order_seq_cst) const { return *own; }
  __device__ void store(T x, memory_order = memory_order_seq_cst) const { *own = x; }
#define __cuda_updates(N, F) __device__ T N(T x, memory_order = memory_order_seq_cst) const { return F(own, x); }
  __cuda_updates(fetch_add, atomicAdd) __cuda_updates(fetch_sub, atomicSub) __cuda_updates(exchange, atomicExch)
  __cuda_updates(fetch_min, atomicMin) __cuda_updates(fetch_max, atomicMax) __cuda_updates(fetch_and, atomicAnd)
  __cuda_updates(fetch_or, atomicOr) __cuda_updates(fetch_xor, atomicXor)
};
// Of a work-group, with roles of its members: declared only.
template <thread_scope Scope> struct pipeline;
template <> struct pipeline<thread_scope_thread> {
  __device__ void producer_acquire() {}
  __device__ void producer_commit() {}
  __device__ void consumer_wait() {}
  __device__ void consumer_release() {}
};
static __device__ pipeline<thread_scope_thread> make_pipeline() { return pipeline<thread_scope_thread>(); }
template <unsigned char Prior> static __device__ void pipeline_consumer_wait_prior(pipeline<thread_scope_thread> &) {}
template <thread_scope Scope> struct barrier;
template <> struct barrier<thread_scope_block> {
  typedef int arrival_token;
  __device__ arrival_token arrive(int = 1) { return 0; }
  __device__ void wait(arrival_token) const { __syncthreads(); }
  __device__ void arrive_and_wait() { __syncthreads(); }
};
static __device__ void init(barrier<thread_scope_block> *, int) {}
#define __cuda_async(SYNC) \
  template <typename T, size_t Align> \
  __device__ void memcpy_async(T *to, const T *from, aligned_size_t<Align> size, SYNC &) \
  { __cuda_copy_by<(Align > alignof(T) ? Align : alignof(T))>(to, from, size.value, 0, 1); } \
  template <typename T> __device__ void memcpy_async(T *to, const T *from, size_t bytes, SYNC &) \
  { __cuda_copy_by<alignof(T)>(to, from, bytes, 0, 1); } \
  template <typename G, typename T, size_t Align> \
  __device__ void memcpy_async(const G &group, T *to, const T *from, aligned_size_t<Align> size, SYNC &) \
  { __cuda_copy_by<(Align > alignof(T) ? Align : alignof(T))>(to, from, size.value, group.thread_rank(), group.size()); } \
  template <typename G, typename T> \
  __device__ void memcpy_async(const G &group, T *to, const T *from, size_t bytes, SYNC &) \
  { __cuda_copy_by<alignof(T)>(to, from, bytes, group.thread_rank(), group.size()); }
__cuda_async(pipeline<thread_scope_thread>) __cuda_async(barrier<thread_scope_block>)
}  // namespace cuda
