"""C texts that are executed: a parser and an interpreter of small kernels in OpenCL C and CUDA C, and random ones."""
