// Arithmetic on CUDA's vectors as NVIDIA's samples have it, for programs whose own copy of this header is not there.
#pragma once
#define __helper static inline __host__ __device__
// By element: of two vectors, of a vector and a scalar, of a scalar and a vector, of one vector.
#define __vv2(a, O, b) a.x O b.x, a.y O b.y
#define __vv3(a, O, b) __vv2(a, O, b), a.z O b.z
#define __vv4(a, O, b) __vv3(a, O, b), a.w O b.w
#define __vs2(a, O, s) a.x O s, a.y O s
#define __vs3(a, O, s) __vs2(a, O, s), a.z O s
#define __vs4(a, O, s) __vs3(a, O, s), a.w O s
#define __sv2(s, O, b) s O b.x, s O b.y
#define __sv3(s, O, b) __sv2(s, O, b), s O b.z
#define __sv4(s, O, b) __sv3(s, O, b), s O b.w
#define __f2(F, a) F(a.x), F(a.y)
#define __f3(F, a) __f2(F, a), F(a.z)
#define __f4(F, a) __f3(F, a), F(a.w)
#define __ff2(F, a, b) F(a.x, b.x), F(a.y, b.y)
#define __ff3(F, a, b) __ff2(F, a, b), F(a.z, b.z)
#define __ff4(F, a, b) __ff3(F, a, b), F(a.w, b.w)
#define __helper_operator(V, T, N, O) \
  __helper V operator O(V a, V b) { return V{__vv##N(a, O, b)}; } \
  __helper V operator O(V a, T s) { return V{__vs##N(a, O, s)}; } \
  __helper V operator O(T s, V b) { return V{__sv##N(s, O, b)}; } \
  __helper void operator O##=(V &a, V b) { a = V{__vv##N(a, O, b)}; } \
  __helper void operator O##=(V &a, T s) { a = V{__vs##N(a, O, s)}; }
#define __helper_arithmetic(V, T, N) \
  __helper_operator(V, T, N, +) __helper_operator(V, T, N, -) __helper_operator(V, T, N, *) \
  __helper V make_##V(T s) { V a = {}; return V{__vs##N(a, +, s)}; }
#define __helper_signed(V, T, N) \
  __helper_arithmetic(V, T, N) __helper V operator-(V a) { return V{__f##N(-, a)}; }
#define __helper_float(V, N) \
  __helper_signed(V, float, N) __helper_operator(V, float, N, /) \
  __helper V fminf(V a, V b) { return V{__ff##N(fminf, a, b)}; } \
  __helper V fmaxf(V a, V b) { return V{__ff##N(fmaxf, a, b)}; } \
  __helper V floorf(V a) { return V{__f##N(floorf, a)}; } \
  __helper V fabs(V a) { return V{__f##N(fabsf, a)}; } \
  __helper V fracf(V a) { return a - floorf(a); } \
  __helper V lerp(V a, V b, float t) { return a + t * (b - a); } \
  __helper V clamp(V a, float low, float high) { return fmaxf(make_##V(low), fminf(a, make_##V(high))); } \
  __helper V clamp(V a, V low, V high) { return fmaxf(low, fminf(a, high)); } \
  __helper float length(V a) { return sqrtf(dot(a, a)); } \
  __helper V normalize(V a) { return a * rsqrtf(dot(a, a)); } \
  __helper V reflect(V i, V n) { return i - 2.0f * n * dot(n, i); }

__helper float dot(float2 a, float2 b) { return a.x * b.x + a.y * b.y; }
__helper float dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
__helper float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
__helper float lerp(float a, float b, float t) { return a + t * (b - a); }
__helper float clamp(float a, float low, float high) { return fmaxf(low, fminf(a, high)); }
__helper int clamp(int a, int low, int high) { return max(low, min(a, high)); }
__helper unsigned clamp(unsigned a, unsigned low, unsigned high) { return max(low, min(a, high)); }
// Of a scalar before the operators, which read one.
__helper_float(float2, 2) __helper_float(float3, 3) __helper_float(float4, 4)
__helper_signed(int2, int, 2) __helper_signed(int3, int, 3) __helper_signed(int4, int, 4)
__helper_arithmetic(uint2, unsigned, 2) __helper_arithmetic(uint3, unsigned, 3) __helper_arithmetic(uint4, unsigned, 4)
__helper float3 cross(float3 a, float3 b)
{ return float3{a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x}; }
__helper float2 make_float2(float3 a) { return float2{a.x, a.y}; }
__helper float3 make_float3(float2 a, float z = 0) { return float3{a.x, a.y, z}; }
__helper float3 make_float3(float4 a) { return float3{a.x, a.y, a.z}; }
__helper float4 make_float4(float3 a, float w = 0) { return float4{a.x, a.y, a.z, w}; }
__helper float2 make_float2(int2 a) { return float2{(float)a.x, (float)a.y}; }
__helper float3 make_float3(int3 a) { return float3{(float)a.x, (float)a.y, (float)a.z}; }
__helper float3 make_float3(uint3 a) { return float3{(float)a.x, (float)a.y, (float)a.z}; }
__helper float4 make_float4(int4 a) { return float4{(float)a.x, (float)a.y, (float)a.z, (float)a.w}; }
__helper int2 make_int2(float2 a) { return int2{(int)a.x, (int)a.y}; }
__helper int3 make_int3(float3 a) { return int3{(int)a.x, (int)a.y, (int)a.z}; }
__helper int3 make_int3(uint3 a) { return int3{(int)a.x, (int)a.y, (int)a.z}; }
__helper uint3 make_uint3(float3 a) { return uint3{(unsigned)a.x, (unsigned)a.y, (unsigned)a.z}; }
__helper float smoothstep(float a, float b, float x) {
  float y = clamp((x - a) / (b - a), 0.0f, 1.0f);
  return y * y * (3.0f - 2.0f * y);
}
