"""From measurement kernels to a calibration: gathering, budget, the file, intervals, diagnosis."""
