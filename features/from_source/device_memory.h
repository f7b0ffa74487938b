// Copies and fills of memory in code of the device: by elements of the pointed-to type, and by bytes what is left.
#pragma once
#define __builtin_memcpy memcpy
#define __builtin_memmove memmove
#define __builtin_memset memset
// A number of which the bits are given.
template <typename T> __cuda_builtin T as_bits_of(unsigned long long);
#define __cuda_copy static __host__ __device__ void *
template <unsigned Bytes> struct __cuda_word { typedef unsigned long long type; };
template <> struct __cuda_word<1> { typedef unsigned char type; };
template <> struct __cuda_word<2> { typedef unsigned short type; };
template <> struct __cuda_word<4> { typedef unsigned int type; };
// What of a type is moved at once: it as a whole where that is a copy of its bytes; of others, words of its alignment.
template <typename T, bool Whole> struct __cuda_piece { typedef T type; };
template <typename T> struct __cuda_piece<T, false> { typedef typename __cuda_word<alignof(T)>::type type; };
template <> struct __cuda_piece<void, false> { typedef unsigned char type; };
template <typename D, typename S> struct __cuda_pieces {
  typedef typename __cuda_piece<D, false>::type to;
  typedef typename __cuda_piece<S, false>::type from;
  typedef typename __cuda_word<(sizeof(to) < sizeof(from) ? sizeof(to) : sizeof(from))>::type type;
};
template <typename T> struct __cuda_pieces<T, T> : __cuda_piece<T, __is_trivially_copyable(T)> {};
template <typename D, typename S> __cuda_copy memcpy(D *to, const S *from, size_t bytes) {
  typedef typename __cuda_pieces<D, S>::type T;
  for (size_t i = 0; i < bytes / sizeof(T); i++) ((T *)to)[i] = ((const T *)from)[i];
  for (size_t i = bytes / sizeof(T) * sizeof(T); i < bytes; i++) ((char *)to)[i] = ((const char *)from)[i];
  return to;
}
template <typename D, typename S> __cuda_copy memmove(D *to, const S *from, size_t bytes) { return memcpy(to, from, bytes); }
template <typename D> __cuda_copy memset(D *to, int value, size_t bytes) {
  typedef typename __cuda_piece<D, __is_scalar(D)>::type T;
  const T filled = as_bits_of<T>((unsigned char)value * ((0xffffffffffffffffull >> (64 - 8 * sizeof(T))) / 255));
  for (size_t i = 0; i < bytes / sizeof(T); i++) ((T *)to)[i] = filled;
  for (size_t i = bytes / sizeof(T) * sizeof(T); i < bytes; i++) ((char *)to)[i] = value;
  return to;
}
