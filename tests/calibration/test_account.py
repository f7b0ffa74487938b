"""What is said of a calibration that was just made."""

import re
from dataclasses import replace

import numpy as np

from perflex import Calibration
from perflex.calibration.account import noise_floor_lines


def test_what_the_noise_floor_is_is_said():
    older = Calibration.load("matmul_sq_amd_epyc_4cores_intel_opencl")
    (line,) = noise_floor_lines(older)
    assert re.fullmatch(r"noise floor: \S+ % \(median spread of single timings; there are too few .*\)", line)
    table = replace(older.table, repeatability=np.full(len(older.table), 0.012))
    (line,) = noise_floor_lines(replace(older, table=table, noise_floor=0.012))
    assert line == "noise floor: 1.2 % (by how much a kernel's time differs between measurements)"
    assert noise_floor_lines(replace(older, noise_floor=None)) == []
