// CUDA's numbers of eight bits, by their bytes; perflex counts no conversions.
#pragma once
#include "cuda_fp16.h"
#include "cuda_bf16.h"
typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
// Numbers of which the bits are others'.
template <typename T, typename... A> __cuda_builtin T as_fp8_bits_of(A...);
#define __fp8_in __host__ __device__
#define __fp8_from(N, T, S) explicit __fp8_in N(T a) : __x(as_fp8_bits_of<S>((float)a)) {}
#define __fp8_to(T) explicit __fp8_in operator T() const { return (T)as_fp8_bits_of<float>(__x); }
#define __fp8_number(N, S) \
  struct N { \
    S __x; \
    N() = default; \
    __fp8_from(N, float, S) __fp8_from(N, double, S) __fp8_from(N, half, S) __fp8_from(N, __nv_bfloat16, S) \
    __fp8_from(N, int, S) __fp8_from(N, unsigned, S) __fp8_from(N, short, S) __fp8_from(N, unsigned short, S) \
    __fp8_from(N, long, S) __fp8_from(N, unsigned long, S) __fp8_from(N, long long, S) __fp8_from(N, unsigned long long, S) \
    __fp8_to(float) __fp8_to(double) __fp8_to(half) __fp8_to(__nv_bfloat16) __fp8_to(int) __fp8_to(unsigned) \
    __fp8_to(long long) __fp8_to(unsigned long long) __fp8_to(short) __fp8_to(unsigned short) __fp8_to(char) \
    __fp8_to(unsigned char) \
  };
#define __fp8_parts(N, T, S) explicit __fp8_in N(T a) : __x(as_fp8_bits_of<S>(a)) {}
#define __fp8_unpacks(T) explicit __fp8_in operator T() const { return as_fp8_bits_of<T>(__x); }
#define __fp8_pair(N, S) \
  struct __align__(2) N { \
    S __x; \
    N() = default; \
    __fp8_parts(N, __half2, S) __fp8_parts(N, __nv_bfloat162, S) __fp8_parts(N, float2, S) __fp8_parts(N, double2, S) \
    __fp8_unpacks(float2) __fp8_unpacks(__half2) \
  };
#define __fp8_four(N, S) \
  struct __align__(4) N { \
    S __x; \
    N() = default; \
    explicit __fp8_in N(__half2 a, __half2 b) : __x(as_fp8_bits_of<S>(a, b)) {} \
    explicit __fp8_in N(__nv_bfloat162 a, __nv_bfloat162 b) : __x(as_fp8_bits_of<S>(a, b)) {} \
    __fp8_parts(N, float4, S) __fp8_parts(N, double4, S) __fp8_unpacks(float4) \
  };
__fp8_number(__nv_fp8_e4m3, __nv_fp8_storage_t) __fp8_number(__nv_fp8_e5m2, __nv_fp8_storage_t)
__fp8_pair(__nv_fp8x2_e4m3, __nv_fp8x2_storage_t) __fp8_pair(__nv_fp8x2_e5m2, __nv_fp8x2_storage_t)
__fp8_four(__nv_fp8x4_e4m3, __nv_fp8x4_storage_t) __fp8_four(__nv_fp8x4_e5m2, __nv_fp8x4_storage_t)
#define __fp8_stored(N, T, S) \
  static __fp8_in S __nv_cvt_##N(T a, __nv_saturation_t, __nv_fp8_interpretation_t) { return as_fp8_bits_of<S>(a); }
__fp8_stored(float_to_fp8, float, __nv_fp8_storage_t) __fp8_stored(double_to_fp8, double, __nv_fp8_storage_t)
__fp8_stored(float2_to_fp8x2, float2, __nv_fp8x2_storage_t) __fp8_stored(double2_to_fp8x2, double2, __nv_fp8x2_storage_t)
