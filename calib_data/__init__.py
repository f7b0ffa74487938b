"""Data that comes with perflex: calibrations of real devices, as YAML.

A calibration belongs to the device it was measured on; on another one, even of the same name, calibrate
anew (``perflex calibrate matmul_sq``). The shipped ones serve to look at and to try predictions with.
"""
