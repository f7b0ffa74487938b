// CUDA's words for g++: work-groups run one after another, their work-items as fibers that switch at barriers.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <ucontext.h>
#include <utility>
#include <vector>

struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, blockDim, gridDim;
#define __global__
#define __device__
#define __constant__ static
#define __shared__ static
#define __launch_bounds__(n)
#define __align__(n) alignas(n)

using std::abs; using std::acos; using std::asin; using std::atan; using std::atan2; using std::ceil; using std::cos;
using std::cosh; using std::erf; using std::erfc; using std::exp; using std::fabs; using std::floor; using std::fmax;
using std::fmin; using std::log; using std::log10; using std::pow; using std::sin; using std::sinh; using std::sqrt;
using std::tan; using std::tanh;
static inline float rsqrt(float x) { return 1.0f / std::sqrt(x); }
static inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }
template <class T> static inline T atomicAdd(T *place, T x) { T before = *place; *place += x; return before; }
static inline float __int_as_float(int bits) { float x; __builtin_memcpy(&x, &bits, 4); return x; }
static inline double __longlong_as_double(long long bits) { double x; __builtin_memcpy(&x, &bits, 8); return x; }

static const size_t STACK = 1 << 16;
struct Fiber { ucontext_t context; Index place; bool done; char *stack; };
static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static size_t running;
static void (*body)(void *);
static void *body_argument;

static void __attribute__((noinline)) __syncthreads()
{
  size_t me = running;
  swapcontext(&fibers[me].context, &scheduler);
}

static void enter()
{
  body(body_argument);
  fibers[running].done = true;
  swapcontext(&fibers[running].context, &scheduler);
}

static void run_group(size_t items)
{
  for (size_t i = 0; i < items; ++i)
  {
    Fiber &fiber = fibers[i];
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    fiber.done = false;
    makecontext(&fiber.context, enter, 0);
  }
  for (bool left = true; left;)
  {
    left = false;
    // Last first, so that work-items that read what others have yet to write do not get it by luck.
    for (size_t i = items; i-- > 0;)
      if (!fibers[i].done)
      {
        running = i;
        threadIdx = fibers[i].place;
        swapcontext(&scheduler, &fibers[i].context);
        left |= !fibers[i].done;
      }
  }
}

template <class... A, size_t... I>
static void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>)
{
  kernel(*(A *) arguments[I]...);
}

template <class... A> static void launch(void (*kernel)(A...), void **arguments, int *grid, int *block)
{
  struct Call { void (*kernel)(A...); void **arguments; } what = {kernel, arguments};
  body_argument = &what;
  body = [](void *given) {
    Call *call_ = (Call *) given;
    call(call_->kernel, call_->arguments, std::index_sequence_for<A...>{});
  };
  gridDim = {(unsigned) grid[0], (unsigned) grid[1], (unsigned) grid[2]};
  blockDim = {(unsigned) block[0], (unsigned) block[1], (unsigned) block[2]};
  fibers.resize((size_t) block[0] * block[1] * block[2]);
  size_t number = 0;
  for (unsigned z = 0; z < blockDim.z; ++z)
    for (unsigned y = 0; y < blockDim.y; ++y)
      for (unsigned x = 0; x < blockDim.x; ++x, ++number)
      {
        fibers[number].place = {x, y, z};
        fibers[number].stack = (char *) malloc(STACK);
      }
  for (unsigned z = 0; z < gridDim.z; ++z)
    for (unsigned y = 0; y < gridDim.y; ++y)
      for (unsigned x = 0; x < gridDim.x; ++x)
      {
        blockIdx = {x, y, z};
        run_group(number);
      }
  for (Fiber &fiber : fibers)
    free(fiber.stack);
  fibers.clear();
}
