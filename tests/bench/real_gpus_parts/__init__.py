"""Readers of the data sets of times of real GPUs, their kernels, and ways to predict them."""
