"""OpenCL C and CUDA C kernels as Scops."""
