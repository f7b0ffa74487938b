// cuRAND's generators XORWOW and Philox in code of the device, and its distributions. How many steps `curand_init` takes
// depends on its arguments: it is declared only, and so are other generators.
#pragma once
struct curandStateXORWOW {
  unsigned d, v[5];
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
typedef curandStateXORWOW curandStateXORWOW_t;
typedef curandStateXORWOW curandState_t;
typedef curandStateXORWOW curandState;
struct curandStatePhilox4_32_10 {
  uint4 ctr, output;
  uint2 key;
  unsigned STATE;
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;
#define __curand_in static __device__
template <typename S> __curand_in void curand_init(unsigned long long, unsigned long long, unsigned long long, S *);

__curand_in unsigned curand(curandStateXORWOW *s) {
  const unsigned t = s->v[0] ^ (s->v[0] >> 2);
  s->v[0] = s->v[1];
  s->v[1] = s->v[2];
  s->v[2] = s->v[3];
  s->v[3] = s->v[4];
  s->v[4] = (s->v[4] ^ (s->v[4] << 4)) ^ (t ^ (t << 1));
  s->d += 362437;
  return s->v[4] + s->d;
}
template <int Round = 0> __curand_in uint4 __philox(uint4 c, uint2 k) {
  if constexpr (Round < 10) {
    const unsigned low = 0xD2511F53u * c.x, high = __umulhi(0xD2511F53u, c.x);
    const unsigned low2 = 0xCD9E8D57u * c.z, high2 = __umulhi(0xCD9E8D57u, c.z);
    if constexpr (Round < 9)
      return __philox<Round + 1>(uint4{high2 ^ c.y ^ k.x, low2, high ^ c.w ^ k.y, low}, uint2{k.x + 0x9E3779B9u, k.y + 0xBB67AE85u});
    else
      return uint4{high2 ^ c.y ^ k.x, low2, high ^ c.w ^ k.y, low};
  } else {
    return c;
  }
}
__curand_in void __philox_next(curandStatePhilox4_32_10 *s) {
  if (++s->ctr.x == 0 && ++s->ctr.y == 0 && ++s->ctr.z == 0) ++s->ctr.w;
  s->output = __philox(s->ctr, s->key);
}
__curand_in unsigned curand(curandStatePhilox4_32_10 *s) {
  const unsigned at = s->STATE++;
  const unsigned found = at == 1 ? s->output.y : at == 2 ? s->output.z : at == 3 ? s->output.w : s->output.x;
  if (s->STATE == 4) {
    __philox_next(s);
    s->STATE = 0;
  }
  return found;
}

#define __curand_scale 2.3283064e-10f
#define __curand_scale_double 1.1102230246251565e-16
__curand_in float __curand_uniform(unsigned x) { return x * __curand_scale + __curand_scale / 2.0f; }
__curand_in unsigned long long __curand_long(unsigned x, unsigned y)
{ return (unsigned long long)x ^ ((unsigned long long)y << 21); }
__curand_in float2 __curand_box_muller(unsigned x, unsigned y) {
  const float u = x * __curand_scale + __curand_scale / 2.0f, v = y * 1.46291807e-09f + 1.46291807e-09f / 2.0f;
  const float s = sqrtf(-2.0f * logf(u));
  float2 found;
  __sincosf(v, &found.x, &found.y);
  return float2{found.x * s, found.y * s};
}
__curand_in double2 __curand_box_muller_double(uint4 x) {
  const double u = __curand_long(x.x, x.y) * __curand_scale_double + __curand_scale_double / 2.0;
  const double v = __curand_long(x.z, x.w) * (__curand_scale_double * 2.0) + __curand_scale_double;
  const double s = sqrt(-2.0 * log(u));
  double2 found;
  sincospi(v, &found.x, &found.y);
  return double2{found.x * s, found.y * s};
}
template <typename S> __curand_in float curand_uniform(S *s) { return __curand_uniform(curand(s)); }
__curand_in double curand_uniform_double(curandStateXORWOW *s) {
  const unsigned x = curand(s), y = curand(s);
  return __curand_long(x, y) * __curand_scale_double + __curand_scale_double / 2.0;
}
__curand_in float2 curand_normal2(curandStateXORWOW *s) {
  const unsigned x = curand(s), y = curand(s);
  return __curand_box_muller(x, y);
}
// Of two normal numbers the second is kept for the next call.
__curand_in float curand_normal(curandStateXORWOW *s) {
  if (s->boxmuller_flag != 1) {
    const float2 found = curand_normal2(s);
    s->boxmuller_extra = found.y;
    s->boxmuller_flag = 1;
    return found.x;
  }
  s->boxmuller_flag = 0;
  return s->boxmuller_extra;
}
__curand_in double2 curand_normal2_double(curandStateXORWOW *s) {
  uint4 x;
  x.x = curand(s);
  x.y = curand(s);
  x.z = curand(s);
  x.w = curand(s);
  return __curand_box_muller_double(x);
}
__curand_in double curand_normal_double(curandStateXORWOW *s) {
  if (s->boxmuller_flag_double != 1) {
    const double2 found = curand_normal2_double(s);
    s->boxmuller_extra_double = found.y;
    s->boxmuller_flag_double = 1;
    return found.x;
  }
  s->boxmuller_flag_double = 0;
  return s->boxmuller_extra_double;
}
