"""Independent truths for the tests: an OpenCL simulator, brute-force enumeration, printed code in lock step, random kernels."""
