"""A kernel whose data decide what it touches or how long its loops are is not timed: the data would be made up."""

import loopy as lp
import numpy as np
import pytest

from perflex import time_kernel
from perflex.errors import MeasurementError
from perflex.features import SizedKernel
from perflex.timing.launch.plan import plan_launch
from perflex.timing.launch.source_plan import plan_of
from support.source_kernels import LAUNCHED

ROWS = ["{[i]: 0<=i<n}", "{[j]: 0<=j<count}"]


def made(body, domain="{[i]: 0<=i<n}"):
    arrays = [lp.GlobalArg("x, y", np.float32, shape="n"), lp.GlobalArg("at", np.int32, shape="n + 1"), ...]
    return lp.make_kernel(domain, body, arrays, assumptions="n>=1", lang_version=(2018, 2))


@pytest.mark.parametrize(
    ("kernel", "decided"),
    [
        (made("y[i] = x[at[i]]"), "which element x[at[i]] is"),
        (made("y[at[i]] = x[i]"), "which element y[at[i]] is"),
        (made("<int32> k = 2*at[i]\n<int32> j = k + i\ny[i] = x[j]"), "which element x[j] is"),
        (made("if x[at[i]] > 1\ny[i] = 2\nend"), "which element x[at[i]] is"),
        (made("for i\n<int32> count = at[i+1]\ny[i] = sum(j, 1.0*j)\nend", ROWS), "how often loop j runs"),
        # A condition on data leaves the subscripts alone, and what sizes tell needs no data.
        (made("if at[i] > 0\ny[i] = x[i]\nend"), ""),
        (made("<int32> j = (3*i) % n\ny[j] = x[i] + at[i]"), ""),
        (made("for i\n<int32> count = n // 2\ny[i] = sum(j, 1.0*j)\nend", ROWS), ""),
    ],
)
def test_what_data_decide_of_a_loopy_kernel(kernel, decided):
    assert plan_launch(kernel).by_data == decided


def test_what_data_decide_of_a_kernel_from_source_code():
    plans = {name: plan_of(SizedKernel(case.kernel, case.sizes, "x"), "opencl") for name, case in LAUNCHED.items()}
    decided = {name: plan.by_data for name, plan in plans.items() if plan.by_data}
    assert decided.keys() == {"gather", "rows of given lengths", "stated extent"}
    assert "line 2: data decide what" in decided["stated extent"]
    assert "line 2: trip count of" in decided["rows of given lengths"]


@pytest.mark.parametrize(
    ("kernel", "sizes"), [(made("y[i] = x[at[i]]"), {"n": 64}), (LAUNCHED["stated extent"].kernel, {"n": 500})]
)
def test_such_a_kernel_is_not_timed(kernel, sizes, default_device):
    with pytest.raises(MeasurementError, match=r"cannot be timed with made-up data.*x\[at\[i\]\].*calibrate --times"):
        time_kernel(kernel, sizes, default_device)
