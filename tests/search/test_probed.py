"""Ranks by probes: variants that a calibration gets wrong are put right."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np
import pytest

from perflex import Calibration, Model, calibrate, rank
from perflex.errors import MeasurementError, PerflexWarning
from perflex.testing import FakeDevice

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.filterwarnings("ignore:this prediction is doubtful")

SIZES = {"n": 1 << 17}
# What a launch takes, in seconds; by its source each variant looks the better the larger its number.
COST = {"v0": 3e-5, "v1": 1e-5, "v2": 5e-5, "v3": 4e-5, "v4": 2e-5}


def variant(name: str) -> lp.TranslationUnit:
    # Products alone: the model that is calibrated below knows no sums.
    terms = "*".join(["a[i]"] * (7 - int(name[1])))
    kernel = lp.make_kernel("{[i]: 0<=i<n}", f"b[i] = {terms}", assumptions="n>=1", lang_version=(2018, 2), name=name)
    kernel = lp.add_dtypes(kernel, {"a": np.float32, "b": np.float32})
    return lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")


@pytest.fixture(scope="module")
def variants() -> Mapping[str, Any]:
    return {name: variant(name) for name in COST}


@pytest.fixture(scope="module")
def calibration(variants: Mapping[str, Any]) -> Calibration:
    model = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_mul * f_op_float32_mul")
    kernels = [(variants["v0"], {"n": n}) for n in (2048, 4096, 8192, 16384)]
    return calibrate(model, kernels, device=FakeDevice(lambda _label, sizes: 1e-6 + 1e-10 * sizes["n"]))


DEVICE = FakeDevice(lambda label, _sizes: COST[label])


def test_ranks_follow_the_timings(calibration: Calibration, variants: Mapping[str, Any]) -> None:
    by_counts = [each.name for each in rank(variants, calibration, SIZES)]
    by_probes = rank(variants, calibration, SIZES, probe=DEVICE)
    assert by_counts == ["v4", "v3", "v2", "v1", "v0"]
    assert [each.name for each in by_probes] == sorted(COST, key=COST.__getitem__)
    for each in by_probes:
        assert each.predicted == pytest.approx(COST[each.name])
        assert each.knowledge == "timing"


def broken(name: str, _sizes: Mapping[str, int]) -> float:
    if name == "v1":
        msg = "v1 does not run"
        raise MeasurementError(msg)
    return COST[name]


def test_a_variant_that_fails_is_last(calibration: Calibration, variants: Mapping[str, Any]) -> None:
    with pytest.warns(PerflexWarning, match="v1 does not run; the variant is not timed"):
        places = rank(variants, calibration, SIZES, probe=FakeDevice(broken))
    assert [each.name for each in places] == ["v4", "v0", "v3", "v2", "v1"]
    assert math.isinf(places[-1].predicted)


def test_all_that_fail_are_an_error(calibration: Calibration, variants: Mapping[str, Any]) -> None:
    def never(name: str, _sizes: Mapping[str, int]) -> float:
        msg = f"{name} does not run"
        raise MeasurementError(msg)

    device = FakeDevice(never)
    with pytest.raises(MeasurementError, match="none of the 5 variants could be timed; the last: v4 does not run"):
        rank(variants, calibration, SIZES, probe=device)
