// HIP's names of half precision are those of CUDA.
#pragma once
#include "cuda_fp16.h"
