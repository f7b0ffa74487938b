"""One launch of a kernel: code, buffers, sizes, and the OpenCL and CUDA back ends."""
