"""Triton kernels: their intermediate code (TTIR), interpreted exactly without a GPU, to tile programs."""
