// What of CUB is known step by step: reductions of warps and work-groups, scans of warps, loads and stores as they lie.
// Other algorithms are declared only, so that kernels that use them are refused.
#pragma once
namespace cub {
#define __cub_in static __device__
#define __cub_operator(N, ...) struct N { template <typename T> __device__ T operator()(const T &a, const T &b) const { __VA_ARGS__; } };
__cub_operator(Sum, return a + b) __cub_operator(Difference, return a - b) __cub_operator(Division, return a / b)
__cub_operator(Max, return thrust::maximum<T>()(a, b)) __cub_operator(Min, return thrust::minimum<T>()(a, b))
struct Equality { template <typename T> __device__ bool operator()(const T &a, const T &b) const { return a == b; } };
struct Inequality { template <typename T> __device__ bool operator()(const T &a, const T &b) const { return a != b; } };
template <typename K, typename V> struct KeyValuePair {
  typedef K Key;
  typedef V Value;
  K key;
  V value;
  KeyValuePair() = default;
  __device__ KeyValuePair(const K &k, const V &v) : key(k), value(v) {}
};
#define __cub_extreme_at(N, O) \
  struct N { \
    template <typename K, typename V> \
    __device__ KeyValuePair<K, V> operator()(const KeyValuePair<K, V> &a, const KeyValuePair<K, V> &b) const \
    { return b.value O a.value || (a.value == b.value && b.key < a.key) ? b : a; } \
  };
__cub_extreme_at(ArgMax, >) __cub_extreme_at(ArgMin, <)
struct NullType {};
template <int N> struct Int2Type {};
__cub_in int RowMajorTid(int x, int y, int z)
{ return (z == 1 ? 0 : threadIdx.z * x * y) + (y == 1 ? 0 : threadIdx.y * x) + threadIdx.x; }
__cub_in unsigned LaneId() { return RowMajorTid(blockDim.x, blockDim.y, blockDim.z) % 32; }
__cub_in unsigned WarpId() { return RowMajorTid(blockDim.x, blockDim.y, blockDim.z) / 32; }

// A value of another lane; of structs, word by word.
#define __cub_shuffle(N, F) \
  template <typename T> __cub_in T N(T x, int step, int lanes) { \
    if constexpr (std::is_arithmetic_v<T>) { \
      return F(0xffffffffu, x, step, lanes); \
    } else { \
      typedef typename __cuda_word<(alignof(T) < 4 ? alignof(T) : 4)>::type word; \
      T found = x; \
      for (int i = 0; i < sizeof(T) / sizeof(word); i++) \
        ((word *)&found)[i] = F(0xffffffffu, (unsigned)((const word *)&x)[i], step, lanes); \
      return found; \
    } \
  }
__cub_shuffle(__shuffled_down, __shfl_down_sync) __cub_shuffle(__shuffled_up, __shfl_up_sync)
__cub_shuffle(__shuffled, __shfl_sync)
template <typename T, typename F> __cub_in T __thread_reduce(const T *x, int count, F combine) {
  T found = x[0];
  for (int i = 1; i < count; i++) found = combine(found, x[i]);
  return found;
}
template <int N, typename T, typename F> __cub_in T ThreadReduce(T (&x)[N], F combine) { return __thread_reduce(x, N, combine); }

// Warps: of lanes that are a power of two. From compute capability 8.0 on there are instructions that reduce integers.
#if __CUDA_ARCH__ >= 800
template <typename T> constexpr bool __reduces = !std::is_same_v<T, int> && !std::is_same_v<T, unsigned>;
#else
template <typename T> constexpr bool __reduces = true;
#endif
template <int N, int Step = 1, typename T, typename F> __cub_in T __warp_reduce(T x, int lane, int count, F combine) {
  if constexpr (Step < N) {
    T other = __shuffled_down(x, Step, N);
    if (lane + Step < count) x = combine(x, other);
    return __warp_reduce<N, Step * 2>(x, lane, count, combine);
  } else {
    return x;
  }
}
template <int N, int Step = 1, typename T, typename F> __cub_in T __warp_scan(T x, int lane, F combine) {
  if constexpr (Step < N) {
    T other = __shuffled_up(x, Step, N);
    if (lane >= Step) x = combine(other, x);
    return __warp_scan<N, Step * 2>(x, lane, combine);
  } else {
    return x;
  }
}
template <typename T, int N = 32, int Arch = 0, bool = (N & (N - 1)) == 0 && N <= 32 && __reduces<T>> struct WarpReduce;
template <typename T, int N, int Arch> struct WarpReduce<T, N, Arch, true> {
  struct TempStorage {};
  __device__ WarpReduce(TempStorage &) {}
  template <typename F> __device__ T Reduce(T x, F combine) { return __warp_reduce<N>(x, LaneId() % N, N, combine); }
  template <typename F> __device__ T Reduce(T x, F combine, int count) { return __warp_reduce<N>(x, LaneId() % N, count, combine); }
  __device__ T Sum(T x) { return Reduce(x, cub::Sum()); }
  __device__ T Sum(T x, int count) { return Reduce(x, cub::Sum(), count); }
};
template <typename T, int N = 32, int Arch = 0, bool = (N & (N - 1)) == 0 && N <= 32> struct WarpScan;
template <typename T, int N, int Arch> struct WarpScan<T, N, Arch, true> {
  struct TempStorage {};
  __device__ WarpScan(TempStorage &) {}
  template <typename F> __device__ void InclusiveScan(T x, T &found, F combine) { found = __warp_scan<N>(x, LaneId() % N, combine); }
  __device__ void InclusiveSum(T x, T &found) { InclusiveScan(x, found, cub::Sum()); }
  __device__ void InclusiveSum(T x, T &found, T &all) { InclusiveSum(x, found); all = __shuffled(found, N - 1, N); }
  template <typename U> __device__ std::enable_if_t<std::is_integral_v<U>> ExclusiveSum(T x, U &found) {
    T own = x;
    InclusiveSum(own, found);
    found = found - own;
  }
  __device__ T Broadcast(T x, unsigned lane) { return __shuffled(x, lane, N); }
};

// Work-groups: warps reduce, their first lanes hand what they have to the first thread.
enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
template <typename T, int X, BlockReduceAlgorithm A = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1, int Arch = 0,
          bool = (X * Y * Z >= 32 || (X * Y * Z & (X * Y * Z - 1)) == 0) && __reduces<T>>
struct BlockReduce;
template <typename T, int X, int Y, int Z, int Arch>
struct BlockReduce<T, X, BLOCK_REDUCE_WARP_REDUCTIONS, Y, Z, Arch, true> {
  static constexpr int threads = X * Y * Z, lanes = threads < 32 ? threads : 32, warps = (threads + lanes - 1) / lanes;
  struct TempStorage { T aggregates[warps]; T prefix; };
  TempStorage *own;
  __device__ BlockReduce(TempStorage &storage) : own(&storage) {}
  __device__ BlockReduce() { __shared__ TempStorage storage; own = &storage; }
  template <typename F> __device__ T Reduce(T x, F combine, int count) {
    const int thread = RowMajorTid(X, Y, Z), warp = thread / lanes, lane = thread % lanes;
    T found = __warp_reduce<lanes>(x, lane, count - warp * lanes, combine);
    if (lane == 0) own->aggregates[warp] = found;
    __syncthreads();
    if (thread == 0)
      for (int i = 1; i < warps; i++)
        if (i * lanes < count) {
          T other = own->aggregates[i];
          found = combine(found, other);
        }
    return found;
  }
  template <typename F> __device__ T Reduce(T x, F combine) { return Reduce(x, combine, threads); }
  template <int N, typename F> __device__ T Reduce(T (&x)[N], F combine) { return Reduce(__thread_reduce(x, N, combine), combine); }
  __device__ T Sum(T x) { return Reduce(x, cub::Sum()); }
  __device__ T Sum(T x, int count) { return Reduce(x, cub::Sum(), count); }
  template <int N> __device__ T Sum(T (&x)[N]) { return Reduce(x, cub::Sum()); }
};

// Loads and stores
#define __cub_moves(N, AT, ...) \
  template <__VA_ARGS__ typename T, int M, typename P> __cub_in void Load##N(int thread, P from, T (&x)[M]) \
  { for (int i = 0; i < M; i++) x[i] = from[AT]; } \
  template <__VA_ARGS__ typename T, int M, typename P> __cub_in void Load##N(int thread, P from, T (&x)[M], int count) \
  { for (int i = 0; i < M; i++) if (AT < count) x[i] = from[AT]; } \
  template <__VA_ARGS__ typename T, int M, typename D, typename P> \
  __cub_in void Load##N(int thread, P from, T (&x)[M], int count, D other) \
  { for (int i = 0; i < M; i++) { x[i] = other; if (AT < count) x[i] = from[AT]; } } \
  template <__VA_ARGS__ typename T, int M, typename P> __cub_in void Store##N(int thread, P to, T (&x)[M]) \
  { for (int i = 0; i < M; i++) to[AT] = x[i]; } \
  template <__VA_ARGS__ typename T, int M, typename P> __cub_in void Store##N(int thread, P to, T (&x)[M], int count) \
  { for (int i = 0; i < M; i++) if (AT < count) to[AT] = x[i]; }
#define __cub_comma ,
__cub_moves(DirectBlocked, thread * M + i, )
__cub_moves(DirectStriped, thread + i * Threads, int Threads __cub_comma)
enum BlockLoadAlgorithm {
  BLOCK_LOAD_DIRECT, BLOCK_LOAD_STRIPED, BLOCK_LOAD_VECTORIZE, BLOCK_LOAD_TRANSPOSE, BLOCK_LOAD_WARP_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
  BLOCK_STORE_DIRECT, BLOCK_STORE_STRIPED, BLOCK_STORE_VECTORIZE, BLOCK_STORE_TRANSPOSE, BLOCK_STORE_WARP_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};
#define __cub_block(N, A, F) \
  template <typename T, int X, int M, int Y, int Z> struct Block##N<T, X, M, A, Y, Z> { \
    struct TempStorage {}; \
    __device__ Block##N(TempStorage &) {} \
    __device__ Block##N() {} \
    template <typename P> __device__ void N(P p, T (&x)[M]) { F(RowMajorTid(X, Y, Z), p, x); } \
    template <typename P> __device__ void N(P p, T (&x)[M], int count) { F(RowMajorTid(X, Y, Z), p, x, count); } \
    template <typename D, typename P> __device__ void N(P p, T (&x)[M], int count, D other) \
    { F(RowMajorTid(X, Y, Z), p, x, count, other); } \
  };
template <typename T, int X, int M, BlockLoadAlgorithm A = BLOCK_LOAD_DIRECT, int Y = 1, int Z = 1> struct BlockLoad;
template <typename T, int X, int M, BlockStoreAlgorithm A = BLOCK_STORE_DIRECT, int Y = 1, int Z = 1> struct BlockStore;
__cub_block(Load, BLOCK_LOAD_DIRECT, LoadDirectBlocked) __cub_block(Store, BLOCK_STORE_DIRECT, StoreDirectBlocked)
__cub_block(Load, BLOCK_LOAD_STRIPED, LoadDirectStriped<X * Y * Z>)
__cub_block(Store, BLOCK_STORE_STRIPED, StoreDirectStriped<X * Y * Z>)
}  // namespace cub
