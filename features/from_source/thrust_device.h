// What of Thrust kernels use: functionals, pairs, pointers to memory of the device, complex numbers; libcu++'s names.
#pragma once
namespace cuda {
namespace std {
using namespace ::std;
// Of C++20
__cuda_made(remove_cvref, remove_cv_t<remove_reference_t<T>>) __cuda_type(type_identity)
template <typename T, typename U> static __host__ __device__ T bit_cast(const U &from) {
  T to;
  memcpy(&to, &from, sizeof(T));
  return to;
}
}  // namespace std
}  // namespace cuda
namespace thrust {
using namespace ::std;
#define __thrust_in static __host__ __device__
#define __thrust_method __host__ __device__
// Of numbers the operation of that name.
#define __thrust_extreme(N, F, ...) \
  template <typename T> struct N { \
    __thrust_method T operator()(const T &a, const T &b) const \
    { if constexpr (std::is_arithmetic_v<T>) return F(a, b); else return __VA_ARGS__; } \
  };
__thrust_extreme(maximum, ::max, a < b ? b : a) __thrust_extreme(minimum, ::min, b < a ? b : a)
template <typename T> struct identity { __thrust_method const T &operator()(const T &a) const { return a; } };
template <typename T> struct square { __thrust_method T operator()(const T &a) const { return a * a; } };

template <typename T> struct device_ptr {
  typedef T element_type;
  T *own;
  device_ptr() = default;
  __thrust_method explicit device_ptr(T *p) : own(p) {}
  __thrust_method T *get() const { return own; }
  __thrust_method T &operator*() const { return *own; }
  __thrust_method T &operator[](long i) const { return own[i]; }
  __thrust_method device_ptr operator+(long i) const { return device_ptr(own + i); }
};
template <typename T> __thrust_in T *raw_pointer_cast(device_ptr<T> p) { return p.own; }
template <typename T> __thrust_in T *raw_pointer_cast(T *p) { return p; }
template <typename T> struct device_vector;
template <typename T> struct host_vector;

template <typename T> struct __align__(2 * sizeof(T)) complex {
  typedef T value_type;
  T x, y;
  complex() = default;
  __thrust_method complex(T a, T b = T()) : x(a), y(b) {}
  template <typename U> __thrust_method complex(const complex<U> &a) : x(T(a.x)), y(T(a.y)) {}
  __thrust_method T real() const { return x; }
  __thrust_method T imag() const { return y; }
  __thrust_method void real(T a) { x = a; }
  __thrust_method void imag(T a) { y = a; }
#define __thrust_assigns(O) \
  template <typename U> __thrust_method complex &operator O##=(const complex<U> &b) { *this = *this O complex(b); return *this; } \
  __thrust_method complex &operator O##=(T b) { *this = *this O b; return *this; }
  __thrust_assigns(+) __thrust_assigns(-) __thrust_assigns(*) __thrust_assigns(/)
};
#define __thrust_complex(O, ...) template <typename T> __thrust_in complex<T> operator O { __VA_ARGS__ }
__thrust_complex(+(const complex<T> &a, const complex<T> &b), return complex<T>(a.x + b.x, a.y + b.y);)
__thrust_complex(+(const complex<T> &a, const T &b), return complex<T>(a.x + b, a.y);)
__thrust_complex(+(const T &a, const complex<T> &b), return complex<T>(a + b.x, b.y);)
__thrust_complex(-(const complex<T> &a, const complex<T> &b), return complex<T>(a.x - b.x, a.y - b.y);)
__thrust_complex(-(const complex<T> &a, const T &b), return complex<T>(a.x - b, a.y);)
__thrust_complex(-(const T &a, const complex<T> &b), return complex<T>(a - b.x, -b.y);)
__thrust_complex(-(const complex<T> &a), return complex<T>(-a.x, -a.y);)
__thrust_complex(*(const complex<T> &a, const complex<T> &b), return complex<T>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);)
__thrust_complex(*(const complex<T> &a, const T &b), return complex<T>(a.x * b, a.y * b);)
__thrust_complex(*(const T &a, const complex<T> &b), return complex<T>(a * b.x, a * b.y);)
__thrust_complex(/(const complex<T> &a, const T &b), return complex<T>(a.x / b, a.y / b);)
// Scaled, lest squares overflow.
__thrust_complex(/(const complex<T> &a, const complex<T> &b),
  T s = T(1) / (fabs(b.x) + fabs(b.y));
  const T ax = a.x * s, ay = a.y * s, bx = b.x * s, by = b.y * s;
  s = T(1) / (bx * bx + by * by);
  return complex<T>((ax * bx + ay * by) * s, (ay * bx - ax * by) * s);)
__thrust_complex(/(const T &a, const complex<T> &b), return complex<T>(a) / b;)
template <typename T> __thrust_in complex<T> conj(const complex<T> &a) { return complex<T>(a.x, -a.y); }
template <typename T> __thrust_in T abs(const complex<T> &a) { return hypot(a.x, a.y); }
template <typename T> __thrust_in T arg(const complex<T> &a) { return atan2(a.y, a.x); }
template <typename T> __thrust_in bool operator==(const complex<T> &a, const complex<T> &b) { return a.x == b.x && a.y == b.y; }
template <typename T> __thrust_in bool operator!=(const complex<T> &a, const complex<T> &b) { return !(a == b); }
}  // namespace thrust
