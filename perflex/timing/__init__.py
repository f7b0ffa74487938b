"""Code for a device, launches, samples, drift, isolation, executors. Only this room runs kernels."""
