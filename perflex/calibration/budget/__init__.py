"""Fewer measurements: which measurement kernels of a pool to time so that a budget of device time tells most.

`choose` picks the kernels that determine the parameters best (D-optimal design); `measure_within_budget` does so in
batches, for what a kernel costs and tells is known only as well as the parameters are.
"""
