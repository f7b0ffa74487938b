"""A script of Kernel Tuner, as its users write them; perflex reads it as it is."""

import numpy as np
from kernel_tuner import tune_kernel

nx, ny, taps = 1024, 1024, 7

image = np.random.default_rng(0).random((ny + taps - 1) * (nx + taps - 1)).astype(np.float32)
weights = np.random.default_rng(1).random(taps * taps).astype(np.float32)
out = np.zeros(nx * ny, dtype=np.float32)

tune_params = {
    "block_size_x": [8, 16, 32, 64],
    "block_size_y": [1, 2, 4, 8],
    "tile_size_x": [1, 2, 4],
    "tile_size_y": [1, 2, 4],
    "use_local": [0, 1],
}

tune_kernel(
    "convolution",
    "convolution.cl",
    (nx, ny),
    [out, image, weights, np.int32(nx), np.int32(ny)],
    tune_params,
    grid_div_x=["block_size_x", "tile_size_x"],
    grid_div_y=["block_size_y", "tile_size_y"],
    restrictions=["block_size_x * block_size_y >= 32", "block_size_x * block_size_y <= 256"],
)
