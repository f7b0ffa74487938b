// CUDA's complex numbers and their arithmetic; R in names of functions of float, nothing in those of double.
#pragma once
typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;
#define __complex_in static __host__ __device__ inline
#define __cuda_complex(C, T, N, M, R) \
  __complex_in C make_##N(T a, T b) { return C{a, b}; } \
  __complex_in T cuCreal##R(C a) { return a.x; } \
  __complex_in T cuCimag##R(C a) { return a.y; } \
  __complex_in C cuConj##R(C a) { return C{a.x, -a.y}; } \
  __complex_in C cuCadd##R(C a, C b) { return C{a.x + b.x, a.y + b.y}; } \
  __complex_in C cuCsub##R(C a, C b) { return C{a.x - b.x, a.y - b.y}; } \
  __complex_in C cuCmul##R(C a, C b) { return C{a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; } \
  __complex_in C cuCdiv##R(C a, C b) { /* scaled, lest squares overflow */ \
    T s = (T)1 / (fabs(b.x) + fabs(b.y)); \
    const T ax = a.x * s, ay = a.y * s, bx = b.x * s, by = b.y * s; \
    s = (T)1 / (bx * bx + by * by); \
    return C{(ax * bx + ay * by) * s, (ay * bx - ax * by) * s}; \
  } \
  __complex_in T cuCabs##R(C a) { \
    const T x = fabs(a.x), y = fabs(a.y), high = x > y ? x : y, low = x > y ? y : x; \
    const T t = low / high; \
    T found = high * sqrt((T)1 + t * t); \
    if (high == 0 || high > (T)(M) || low > (T)(M)) found = low + high; \
    return found; \
  } \
  __complex_in C cuCfma##R(C a, C b, C c) { \
    const T x = a.x * b.x + c.x, y = a.x * b.y + c.y; \
    return C{x - a.y * b.y, a.y * b.x + y}; \
  }
__cuda_complex(cuFloatComplex, float, cuFloatComplex, FLT_MAX, f)
__cuda_complex(cuDoubleComplex, double, cuDoubleComplex, DBL_MAX, )
__complex_in cuComplex make_cuComplex(float a, float b) { return cuComplex{a, b}; }
__complex_in cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) { return cuDoubleComplex{a.x, a.y}; }
__complex_in cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a) { return cuFloatComplex{(float)a.x, (float)a.y}; }
