// What types of half precision have in common: numbers T of two bytes, pairs P of them, and N in functions' names.
#pragma once
#define __cuda_pair(T, P) \
  struct __align__(4) P { \
    T x, y; \
    P() = default; \
    __host__ __device__ constexpr P(T a, T b) : x(a), y(b) {} \
  }; \
  __cuda_builtin P operator+(P, P); __cuda_builtin P operator-(P, P); __cuda_builtin P operator*(P, P); \
  __cuda_builtin P operator/(P, P); __cuda_builtin P operator-(P); \
  __cuda_builtin P &operator+=(P &a, P b) { a = a + b; return a; } \
  __cuda_builtin P &operator-=(P &a, P b) { a = a - b; return a; } \
  __cuda_builtin P &operator*=(P &a, P b) { a = a * b; return a; } \
  __cuda_builtin P &operator/=(P &a, P b) { a = a / b; return a; }
#define __cuda_half1(T, P, F) __cuda_builtin T h##F(T); __cuda_builtin P h2##F(P);
#define __cuda_half2(T, P, F) \
  __cuda_builtin T __h##F(T, T); __cuda_builtin T __h##F##_rn(T, T); __cuda_builtin T __h##F##_sat(T, T); \
  __cuda_builtin P __h##F##2(P, P); __cuda_builtin P __h##F##2_rn(P, P); __cuda_builtin P __h##F##2_sat(P, P);
#define __cuda_half_test(T, P, F) \
  __cuda_builtin bool __h##F(T, T); __cuda_builtin bool __h##F##u(T, T); __cuda_builtin P __h##F##2(P, P); \
  __cuda_builtin P __h##F##u2(P, P); __cuda_builtin bool __hb##F##2(P, P); __cuda_builtin bool __hb##F##u2(P, P);
#define __cuda_half_extreme(T, P, F) \
  __cuda_builtin T __h##F(T, T); __cuda_builtin P __h##F##2(P, P); __cuda_builtin T __h##F##_nan(T, T); \
  __cuda_builtin P __h##F##2_nan(P, P);
#define __cuda_half_rounded(T, N, R) \
  __cuda_builtin T __float2##N##_##R(float); __cuda_builtin T __int2##N##_##R(int); \
  __cuda_builtin T __uint2##N##_##R(unsigned); __cuda_builtin T __short2##N##_##R(short); \
  __cuda_builtin T __ushort2##N##_##R(unsigned short); __cuda_builtin T __ll2##N##_##R(long long); \
  __cuda_builtin T __ull2##N##_##R(unsigned long long); __cuda_builtin int __##N##2int_##R(T); \
  __cuda_builtin unsigned __##N##2uint_##R(T); __cuda_builtin short __##N##2short_##R(T); \
  __cuda_builtin unsigned short __##N##2ushort_##R(T); __cuda_builtin long long __##N##2ll_##R(T); \
  __cuda_builtin unsigned long long __##N##2ull_##R(T);
#define __cuda_half_precision(T, P, N) \
  __cuda_pair(T, P) \
  __cuda_half1(T, P, exp) __cuda_half1(T, P, exp2) __cuda_half1(T, P, exp10) __cuda_half1(T, P, log) \
  __cuda_half1(T, P, log2) __cuda_half1(T, P, log10) __cuda_half1(T, P, sin) __cuda_half1(T, P, cos) \
  __cuda_half1(T, P, sqrt) __cuda_half1(T, P, rsqrt) __cuda_half1(T, P, rcp) __cuda_half1(T, P, ceil) \
  __cuda_half1(T, P, floor) __cuda_half1(T, P, trunc) __cuda_half1(T, P, rint) __cuda_half1(T, P, tanh) \
  __cuda_half2(T, P, add) __cuda_half2(T, P, sub) __cuda_half2(T, P, mul) \
  __cuda_builtin T __hdiv(T, T); __cuda_builtin P __h2div(P, P); \
  __cuda_builtin T __hfma(T, T, T); __cuda_builtin T __hfma_sat(T, T, T); __cuda_builtin T __hfma_relu(T, T, T); \
  __cuda_builtin P __hfma2(P, P, P); __cuda_builtin P __hfma2_sat(P, P, P); __cuda_builtin P __hfma2_relu(P, P, P); \
  __cuda_builtin T __hneg(T); __cuda_builtin P __hneg2(P); __cuda_builtin T __habs(T); __cuda_builtin P __habs2(P); \
  __cuda_half_extreme(T, P, max) __cuda_half_extreme(T, P, min) \
  __cuda_half_test(T, P, eq) __cuda_half_test(T, P, ne) __cuda_half_test(T, P, lt) __cuda_half_test(T, P, le) \
  __cuda_half_test(T, P, gt) __cuda_half_test(T, P, ge) \
  __cuda_builtin bool __hisnan(T); __cuda_builtin int __hisinf(T); __cuda_builtin P __hisnan2(P); \
  __cuda_half_rounded(T, N, rn) __cuda_half_rounded(T, N, rz) __cuda_half_rounded(T, N, rd) __cuda_half_rounded(T, N, ru) \
  __cuda_builtin T __float2##N(float); __cuda_builtin T __double2##N(double); __cuda_builtin float __##N##2float(T); \
  __cuda_builtin P __float2##N##2_rn(float); __cuda_builtin P __floats2##N##2_rn(float, float); \
  __cuda_builtin P __float22##N##2_rn(float2); __cuda_builtin float2 __##N##22float2(P); \
  __cuda_builtin P __##N##2##N##2(T); __cuda_builtin P __halves2##N##2(T, T); __cuda_builtin P make_##N##2(T, T); \
  __cuda_builtin float __low2float(P); __cuda_builtin float __high2float(P); __cuda_builtin T __low2##N(P); \
  __cuda_builtin T __high2##N(P); __cuda_builtin P __low2##N##2(P); __cuda_builtin P __high2##N##2(P); \
  __cuda_builtin P __lows2##N##2(P, P); __cuda_builtin P __highs2##N##2(P, P); __cuda_builtin P __lowhigh2highlow(P); \
  __cuda_builtin short __##N##_as_short(T); __cuda_builtin unsigned short __##N##_as_ushort(T); \
  __cuda_builtin T __short_as_##N(short); __cuda_builtin T __ushort_as_##N(unsigned short); \
  __cuda_builtin T atomicAdd(T *, T); __cuda_builtin P atomicAdd(P *, P); \
  __cuda_shuffle(P)
