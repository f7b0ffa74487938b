// What CUDA's header of half precision declares; functions are known to the reader by their names.
#pragma once
#include "half_precision.h"
__cuda_half_precision(half, __half2, half)
typedef __half2 half2;
typedef half nv_half;
typedef half2 nv_half2;
