"""A model file of a user's own without measurement kernels, and kernels to time."""

from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "matmul.py"
MODEL = """\
schema: perflex-model/1
name: mine
description: launches and multiply-adds
output: f_cl_wall_time
expression: p_launch * f_sync_kernel_launch + p_madd * f_op_float32_madd
parameters:
  p_launch: {meaning: cost of a launch, unit: s per launch}
  p_madd: {meaning: cost of a multiply-add, unit: s per sub-group operation}
measurement_kernels: []
"""
