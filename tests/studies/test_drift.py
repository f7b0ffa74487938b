"""Whether a device is still as fast as when it was calibrated."""

import pytest

from perflex import gather_feature_values
from perflex.errors import MeasurementError
from perflex.studies.evaluation.run import drift, reference_times
from perflex.testing import FakeDevice
from perflex.timing.results import MeasurementFailure, Timing
from uipick import ALL_GENERATORS, KernelCollection


def timing(seconds):
    return Timing("k", seconds, 0.0, (seconds,))


FAILURE = MeasurementFailure("k", "gone", "run", MeasurementError("gone"))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ([1.0, 2.0, 4.0], [timing(1.0), timing(2.5), timing(40.0)], 0.25),
        ([2.0], [timing(1.0)], -0.5),
        # Failures are passed over.
        ([1.0, 2.0], [FAILURE, timing(3.0)], 0.5),
        ([1.0], [FAILURE], None),
        ([], [], None),
    ],
)
def test_drift_is_the_median_ratio_less_one(before, now, expected):
    assert drift(before, now) == (None if expected is None else pytest.approx(expected))


def test_reference_times_are_those_of_the_calibration():
    tags = ["flops_madd_pattern", "dtype:float32", "groups_fit:True", "nelements:32768,65536,131072", "m:64"]
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels(tags)

    def law(_, sizes):
        return {32768: 5e-3, 65536: 1e-3, 131072: 4e-3}[sizes["nelements"]]

    table = gather_feature_values(["f_cl_wall_time_fake", "f_op_float32_madd"], kernels, device=FakeDevice(law))
    named = {kernel.name: kernel for kernel in kernels}
    found = reference_times(table, named, 2)
    assert [kernel.sizes["nelements"] for kernel in found] == [32768, 131072]
    assert list(found.values()) == pytest.approx([5e-3, 4e-3])
    other = KernelCollection(ALL_GENERATORS).generate_kernels(["empty", "ngroups:16"])
    assert reference_times(table, {kernel.name: kernel for kernel in other}) == {}
