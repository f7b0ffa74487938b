"""Data volumes of GPU kernels in the memory hierarchy, from address expressions."""
