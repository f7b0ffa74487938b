"""Independent truths for the tests: a simulator, enumeration, printed code in lock step, random kernels."""
