"""Sizes are whole numbers: everything else is one error, wherever sizes go."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np
import pytest

from perflex import estimate_ecm, estimate_volumes, gather_feature_values, load_calibration, load_machine
from perflex.errors import MissingSizeError
from perflex.features import Target, extract_scop, kernel_feature_values, parse_feature

if TYPE_CHECKING:
    from collections.abc import Callable

WRONG = [
    16.5,
    math.nan,
    math.inf,
    -math.inf,
    "16",
    None,
    True,
    np.True_,
    16 + 0j,
    Fraction(33, 2),
    2**63,
    10**300,
    1e300,
    [16, 16.5],
    [16, 32],
    (16,),
    np.array([16, math.nan]),
    [[16], [16, 32]],
    [None],
    {"n": 16},
]
RIGHT = [16, np.int8(16), np.uint64(16), 16.0, np.float32(16), Fraction(16)]


def kernel() -> lp.TranslationUnit:
    made = lp.make_kernel(
        "{[i]: 0<=i<n}", "b[i] = 2*a[i]", assumptions="n >= 16 and n mod 16 = 0", lang_version=(2018, 2), name="scale"
    )
    made = lp.add_dtypes(made, {"a": np.float32})
    return lp.split_iname(made, "i", 16, outer_tag="g.0", inner_tag="l.0")


CALIBRATION = load_calibration("matmul_sq_amd_epyc_4cores_pocl")
USES: dict[str, Callable[[Any], object]] = {
    "count": lambda n: parse_feature("f_thread_groups").value(extract_scop(kernel()), {"n": n}, Target()),
    "values": lambda n: kernel_feature_values(["f_thread_groups"], kernel(), {"n": n}),
    "predict": lambda n: CALIBRATION.predict(kernel(), {"n": n}),
    "interval": lambda n: CALIBRATION.predict_interval(kernel(), {"n": n}),
    "gather": lambda n: gather_feature_values(["f_thread_groups"], [(kernel(), {"n": n})]),
    "volumes": lambda n: estimate_volumes(extract_scop(kernel()), {"n": n}, load_machine("V100")),
    "ecm": lambda n: estimate_ecm(extract_scop(kernel()), {"n": n}, load_machine("Gold-6248")),
}


@pytest.mark.filterwarnings("ignore::perflex.PerflexWarning")
@pytest.mark.parametrize("use", USES)
def test_what_is_no_whole_number_is_one_error(use: str) -> None:
    for wrong in WRONG:
        with pytest.raises(MissingSizeError, match=r"size n must be a whole number below 2\*\*63, such as 1024, not "):
            USES[use](wrong)


@pytest.mark.filterwarnings("ignore::perflex.PerflexWarning")
@pytest.mark.parametrize("use", ["values", "predict"])
def test_whole_numbers_of_any_type_are_the_same_size(use: str) -> None:
    assert len({repr(USES[use](right)) for right in RIGHT}) == 1
