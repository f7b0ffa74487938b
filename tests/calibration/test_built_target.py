"""What stops a prediction that needs the kernel's machine code, said so that it can be mended."""

from __future__ import annotations

import loopy as lp
import numpy as np
import pytest

from perflex.calibration.built_target import built_target
from perflex.errors import FeatureError, MissingSizeError
from perflex.features import Target


def doubled():
    kernel = lp.make_kernel(
        "{[i]: 0<=i<n}", "b[i] = 2*a[i]", assumptions="n>=1", lang_version=(2018, 2), name="doubled"
    )
    kernel = lp.add_dtypes(kernel, {"a": np.float32, "b": np.float32})
    return lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")


def test_code_is_of_one_size():
    with pytest.raises(
        FeatureError, match="f_code_instructions is of the code for one value of each size, not an array"
    ):
        built_target(["f_code_instructions"], doubled(), {"n": np.array([64, 128])}, Target(), "f_cl_wall_time")


def test_a_missing_size_is_a_missing_size(default_device):
    del default_device
    with pytest.raises(MissingSizeError, match="no value for size parameter n"):
        built_target(["f_code_instructions"], doubled(), {}, Target(), "f_cl_wall_time")


def test_models_without_code_build_nothing():
    target = Target()
    assert built_target(["f_op_float32_mul"], doubled(), {}, target, "f_cl_wall_time_of_no_device") is target
