"""Code for a device, launches, samples, isolation, executors. Only this room runs kernels."""
