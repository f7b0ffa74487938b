// What CUDA's header of bfloat16 declares; functions are known to the reader by their names.
#pragma once
#include "half_precision.h"
typedef __bf16 __nv_bfloat16;
typedef __bf16 nv_bfloat16;
__cuda_half_precision(__nv_bfloat16, __nv_bfloat162, bfloat16)
typedef __nv_bfloat162 nv_bfloat162;
