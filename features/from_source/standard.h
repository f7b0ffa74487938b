// What programs use of C++'s type_traits, utility, array, algorithm and functional in code of the device.
#pragma once
namespace std {
#define __cuda_in static __host__ __device__
#define __cuda_constant(N) template <typename T> constexpr bool N##_v = N<T>::value;
#define __cuda_constant2(N) template <typename T, typename U> constexpr bool N##_v = N<T, U>::value;
template <typename T, T V> struct integral_constant {
  static constexpr T value = V;
  typedef T value_type;
  typedef integral_constant type;
  __host__ __device__ constexpr operator T() const { return V; }
  __host__ __device__ constexpr T operator()() const { return V; }
};
template <bool B> using bool_constant = integral_constant<bool, B>;
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;
template <typename... T> using void_t = void;
template <bool B, typename T = void> struct enable_if {};
template <typename T> struct enable_if<true, T> { typedef T type; };
template <bool B, typename T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool B, typename T, typename U> struct conditional { typedef T type; };
template <typename T, typename U> struct conditional<false, T, U> { typedef U type; };
template <bool B, typename T, typename U> using conditional_t = typename conditional<B, T, U>::type;

// Types made of others: P has parameters besides the type, F is the form that it has.
#define __cuda_type(N) template <typename T> struct N { typedef T type; }; template <typename T> using N##_t = typename N<T>::type;
#define __cuda_removed(N, F) __cuda_type(N) template <typename T> struct N<F> { typedef T type; };
__cuda_removed(remove_const, const T) __cuda_removed(remove_volatile, volatile T) __cuda_removed(remove_pointer, T *)
template <typename T> struct remove_pointer<T *const> { typedef T type; };
__cuda_removed(remove_reference, T &)
template <typename T> struct remove_reference<T &&> { typedef T type; };
__cuda_removed(remove_extent, T[])
template <typename T, size_t N> struct remove_extent<T[N]> { typedef T type; };
#define __cuda_made(N, ...) \
  template <typename T> struct N { typedef __VA_ARGS__ type; }; template <typename T> using N##_t = typename N<T>::type;
__cuda_made(remove_cv, remove_const_t<remove_volatile_t<T>>)
__cuda_made(add_const, const T) __cuda_made(add_volatile, volatile T) __cuda_made(add_cv, const volatile T)
__cuda_made(add_pointer, remove_reference_t<T> *)
__cuda_made(add_lvalue_reference, T &) __cuda_made(add_rvalue_reference, T &&)
template <> struct add_lvalue_reference<void> { typedef void type; };
template <> struct add_rvalue_reference<void> { typedef void type; };
template <typename T> __host__ __device__ add_rvalue_reference_t<T> declval() noexcept;

#define __cuda_is(N, F) \
  template <typename T> struct N : false_type {}; template <typename T> struct N<F> : true_type {}; __cuda_constant(N)
#define __cuda_tells(N, ...) template <typename T> struct N : bool_constant<(__VA_ARGS__)> {}; __cuda_constant(N)
template <typename T, typename U> struct is_same : false_type {};
template <typename T> struct is_same<T, T> : true_type {};
__cuda_constant2(is_same)
template <typename T> struct __cuda_integral : false_type {};
template <typename T> struct __cuda_floating : false_type {};
template <typename T> struct __cuda_pointer : false_type {};
template <typename T> struct __cuda_pointer<T *> : true_type {};
template <typename T> struct make_signed { typedef T type; };
template <typename T> struct make_unsigned { typedef T type; };
#define __cuda_integer_type(S, U) \
  template <> struct __cuda_integral<S> : true_type {}; template <> struct __cuda_integral<U> : true_type {}; \
  template <> struct make_signed<U> { typedef S type; }; template <> struct make_unsigned<S> { typedef U type; };
__cuda_integer_type(signed char, unsigned char) __cuda_integer_type(short, unsigned short)
__cuda_integer_type(int, unsigned int) __cuda_integer_type(long, unsigned long)
__cuda_integer_type(long long, unsigned long long)
template <> struct __cuda_integral<bool> : true_type {};
template <> struct __cuda_integral<char> : true_type {};
template <> struct make_signed<char> { typedef signed char type; };
template <> struct make_unsigned<char> { typedef unsigned char type; };
template <> struct __cuda_floating<float> : true_type {};
template <> struct __cuda_floating<double> : true_type {};
template <typename T> using make_signed_t = typename make_signed<T>::type;
template <typename T> using make_unsigned_t = typename make_unsigned<T>::type;
__cuda_tells(is_integral, __cuda_integral<remove_cv_t<T>>::value)
__cuda_tells(is_floating_point, __cuda_floating<remove_cv_t<T>>::value)
__cuda_tells(is_arithmetic, is_integral<T>::value || is_floating_point<T>::value)
__cuda_tells(is_void, is_same<remove_cv_t<T>, void>::value)
__cuda_tells(is_null_pointer, is_same<remove_cv_t<T>, decltype(nullptr)>::value)
__cuda_tells(is_fundamental, is_arithmetic<T>::value || is_void<T>::value || is_null_pointer<T>::value)
__cuda_tells(is_pointer, __cuda_pointer<remove_cv_t<T>>::value)
__cuda_is(is_lvalue_reference, T &) __cuda_is(is_rvalue_reference, T &&)
__cuda_tells(is_reference, is_lvalue_reference<T>::value || is_rvalue_reference<T>::value)
__cuda_is(is_const, const T) __cuda_is(is_volatile, volatile T) __cuda_is(is_array, T[])
template <typename T, size_t N> struct is_array<T[N]> : true_type {};
template <typename T, bool = is_arithmetic<T>::value> struct __cuda_signed : bool_constant<(T(-1) < T(0))> {};
template <typename T> struct __cuda_signed<T, false> : false_type {};
__cuda_tells(is_signed, __cuda_signed<remove_cv_t<T>>::value)
__cuda_tells(is_unsigned, is_arithmetic<T>::value && !is_signed<T>::value)
__cuda_tells(is_enum, __is_enum(T)) __cuda_tells(is_class, __is_class(T)) __cuda_tells(is_union, __is_union(T))
__cuda_tells(is_empty, __is_empty(T)) __cuda_tells(is_pod, __is_pod(T)) __cuda_tells(is_final, __is_final(T))
__cuda_tells(is_trivially_copyable, __is_trivially_copyable(T)) __cuda_tells(is_abstract, __is_abstract(T))
__cuda_tells(is_trivial, __is_trivial(T)) __cuda_tells(is_standard_layout, __is_standard_layout(T))
__cuda_tells(is_default_constructible, __is_constructible(T)) __cuda_tells(is_polymorphic, __is_polymorphic(T))
__cuda_tells(is_scalar, is_arithmetic<T>::value || is_enum<T>::value || is_pointer<T>::value || is_null_pointer<T>::value)
__cuda_tells(is_object, is_scalar<T>::value || is_array<T>::value || is_class<T>::value || is_union<T>::value)
template <typename T, typename U> struct is_base_of : bool_constant<__is_base_of(T, U)> {};
template <typename T, typename U> struct is_convertible : bool_constant<__is_convertible_to(T, U)> {};
__cuda_constant2(is_base_of) __cuda_constant2(is_convertible)
template <typename T, typename... A> struct is_constructible : bool_constant<__is_constructible(T, A...)> {};
template <typename T, typename... A> constexpr bool is_constructible_v = is_constructible<T, A...>::value;
template <typename B> struct negation : bool_constant<!B::value> {};
template <typename... B> struct conjunction : bool_constant<(B::value && ...)> {};
template <typename... B> struct disjunction : bool_constant<(B::value || ...)> {};
__cuda_constant(negation)
template <typename... B> constexpr bool conjunction_v = conjunction<B...>::value;
template <typename... B> constexpr bool disjunction_v = disjunction<B...>::value;
template <typename T> struct alignment_of : integral_constant<size_t, alignof(T)> {};
template <typename T> struct underlying_type { typedef __underlying_type(T) type; };
template <typename T> using underlying_type_t = typename underlying_type<T>::type;
template <typename T, bool A> struct __cuda_decay { typedef remove_cv_t<T> type; };
template <typename T> struct __cuda_decay<T, true> { typedef remove_extent_t<T> *type; };
__cuda_made(decay, typename __cuda_decay<remove_reference_t<T>, is_array<remove_reference_t<T>>::value>::type)
template <typename... T> struct common_type;
template <typename T> struct common_type<T> { typedef decay_t<T> type; };
template <typename T, typename U> struct common_type<T, U> { typedef decay_t<decltype(true ? declval<T>() : declval<U>())> type; };
template <typename T, typename U, typename... M> struct common_type<T, U, M...> : common_type<typename common_type<T, U>::type, M...> {};
template <typename... T> using common_type_t = typename common_type<T...>::type;
template <typename F, typename... A> struct invoke_result { typedef decltype(declval<F>()(declval<A>()...)) type; };
template <typename F, typename... A> using invoke_result_t = typename invoke_result<F, A...>::type;

__cuda_not_rtc(
template <typename T> __cuda_in constexpr remove_reference_t<T> &&move(T &&x) { return static_cast<remove_reference_t<T> &&>(x); }
template <typename T> __cuda_in constexpr T &&forward(remove_reference_t<T> &x) { return static_cast<T &&>(x); }
template <typename T> __cuda_in constexpr T &&forward(remove_reference_t<T> &&x) { return static_cast<T &&>(x); })
template <typename T> __cuda_in void swap(T &a, T &b) { T kept = a; a = b; b = kept; }
template <typename T, typename U = T> __cuda_in T exchange(T &a, U b) { T kept = a; a = b; return kept; }
template <typename T, typename U> struct pair {
  typedef T first_type;
  typedef U second_type;
  T first;
  U second;
  __host__ __device__ constexpr pair() : first(), second() {}
  __host__ __device__ constexpr pair(const T &a, const U &b) : first(a), second(b) {}
  template <typename V, typename W>
  __host__ __device__ constexpr pair(const pair<V, W> &p) : first(p.first), second(p.second) {}
};
template <typename T, typename U> __cuda_in pair<decay_t<T>, decay_t<U>> make_pair(T a, U b) { return pair<decay_t<T>, decay_t<U>>(a, b); }
#define __cuda_of_pairs(O, ...) \
  template <typename T, typename U> __cuda_in bool operator O(const pair<T, U> &a, const pair<T, U> &b) { return __VA_ARGS__; }
__cuda_of_pairs(==, a.first == b.first && a.second == b.second) __cuda_of_pairs(!=, !(a == b))
__cuda_of_pairs(<, a.first < b.first || (!(b.first < a.first) && a.second < b.second)) __cuda_of_pairs(>, b < a)
template <typename T, T... I> struct integer_sequence { static constexpr __host__ __device__ size_t size() { return sizeof...(I); } };
template <size_t... I> using index_sequence = integer_sequence<size_t, I...>;
template <size_t N, size_t... I> struct __cuda_sequence : __cuda_sequence<N - 1, N - 1, I...> {};
template <size_t... I> struct __cuda_sequence<0, I...> { typedef index_sequence<I...> type; };
template <size_t N> using make_index_sequence = typename __cuda_sequence<N>::type;

template <typename T, size_t N> struct array {
  typedef T value_type;
  typedef T *iterator;
  typedef const T *const_iterator;
  typedef size_t size_type;
  T elements[N ? N : 1];
#define __cuda_elements(C) \
  __host__ __device__ constexpr C T &operator[](size_t i) C { return elements[i]; } \
  __host__ __device__ constexpr C T &at(size_t i) C { return elements[i]; } \
  __host__ __device__ constexpr C T &front() C { return elements[0]; } \
  __host__ __device__ constexpr C T &back() C { return elements[N - 1]; } \
  __host__ __device__ constexpr C T *data() C { return elements; } \
  __host__ __device__ constexpr C T *begin() C { return elements; } \
  __host__ __device__ constexpr C T *end() C { return elements + N; }
  __cuda_elements() __cuda_elements(const)
  __host__ __device__ static constexpr size_t size() { return N; }
  __host__ __device__ static constexpr bool empty() { return N == 0; }
  __host__ __device__ constexpr void fill(const T &x) { for (size_t i = 0; i < N; i++) elements[i] = x; }
};

template <typename... T> struct tuple {};
template <typename T, typename... M> struct tuple<T, M...> {
  T first;
  tuple<M...> others;
  __host__ __device__ constexpr tuple() : first(), others() {}
  __host__ __device__ constexpr tuple(T a, M... b) : first(a), others(b...) {}
};
template <size_t I, typename T, typename... M> __cuda_in constexpr auto &get(tuple<T, M...> &t)
{ if constexpr (I == 0) return t.first; else return get<I - 1>(t.others); }
template <size_t I, typename T, typename... M> __cuda_in constexpr const auto &get(const tuple<T, M...> &t)
{ if constexpr (I == 0) return t.first; else return get<I - 1>(t.others); }
template <size_t I, typename T, typename U> __cuda_in constexpr auto &get(pair<T, U> &p)
{ if constexpr (I == 0) return p.first; else return p.second; }
template <size_t I, typename T, size_t N> __cuda_in constexpr T &get(array<T, N> &a) { return a.elements[I]; }
template <typename... T> __cuda_in constexpr tuple<decay_t<T>...> make_tuple(T... a) { return tuple<decay_t<T>...>(a...); }

#define __cuda_function(N, R, ...) \
  template <typename T = void> struct N { \
    typedef T first_argument_type; \
    typedef T second_argument_type; \
    typedef R result_type; \
    __host__ __device__ constexpr R operator()(const T &a, const T &b) const { return __VA_ARGS__; } \
  }; \
  template <> struct N<void> { \
    template <typename T, typename U> __host__ __device__ constexpr auto operator()(const T &a, const U &b) const { return __VA_ARGS__; } \
  };
#define __cuda_function1(N, R, ...) \
  template <typename T = void> struct N { __host__ __device__ constexpr R operator()(const T &a) const { return __VA_ARGS__; } }; \
  template <> struct N<void> { template <typename T> __host__ __device__ constexpr auto operator()(const T &a) const { return __VA_ARGS__; } };
__cuda_function(plus, T, a + b) __cuda_function(minus, T, a - b) __cuda_function(multiplies, T, a * b)
__cuda_function(divides, T, a / b) __cuda_function(modulus, T, a % b) __cuda_function1(negate, T, -a)
__cuda_function(bit_and, T, a & b) __cuda_function(bit_or, T, a | b) __cuda_function(bit_xor, T, a ^ b)
__cuda_function1(bit_not, T, ~a) __cuda_function1(logical_not, bool, !a)
__cuda_function(equal_to, bool, a == b) __cuda_function(not_equal_to, bool, a != b) __cuda_function(less, bool, a < b)
__cuda_function(greater, bool, a > b) __cuda_function(less_equal, bool, a <= b) __cuda_function(greater_equal, bool, a >= b)
__cuda_function(logical_and, bool, a && b) __cuda_function(logical_or, bool, a || b)
// Containers of the host program, of which kernels use at most the types of classes that hold some: none has functions.
#define __cuda_container(N, WORDS) \
  template <typename T, typename... More> class N { void *words[WORDS]; public: typedef T value_type; typedef T *iterator; };
__cuda_container(vector, 3) __cuda_container(list, 3) __cuda_container(set, 6) __cuda_container(map, 6)
__cuda_container(unordered_map, 7) __cuda_container(shared_ptr, 2) __cuda_container(unique_ptr, 1) __cuda_container(function, 4)
__cuda_container(basic_string, 4)
typedef basic_string<char> string;
}  // namespace std
