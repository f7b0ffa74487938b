"""Independent truths for the tests: an OpenCL simulator, brute-force enumeration, random kernels."""
