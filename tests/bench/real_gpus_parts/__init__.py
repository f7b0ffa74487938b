"""Readers of the data sets of times of real GPUs: one module per folder."""
