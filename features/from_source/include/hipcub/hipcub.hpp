// HIP has CUB by another name.
#pragma once
#include "../cub/cub.cuh"
namespace hipcub { using namespace ::cub; }
