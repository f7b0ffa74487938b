"""Feature tables: counted from kernels, timed on a fake device."""

import numpy as np
import pytest

from perflex import RunOptions, gather_feature_values
from perflex.errors import (
    CalibrationError,
    MeasurementError,
    MissingSizeError,
    NoMatchError,
    PerflexWarning,
    UnknownFeatureError,
)
from perflex.testing import FakeDevice
from sample_kernels import pointwise
from uipick import ALL_GENERATORS, KernelCollection

MADD = "f_op_float32_madd"
TIME = "f_cl_wall_time_fake"


def kernels(sizes="64,96,128"):
    tags = ["matmul_sq", "dtype:float32", "prefetch:True", "groups_fit:True", f"n:{sizes}"]
    return KernelCollection(ALL_GENERATORS).generate_kernels(tags)


def test_input_features_alone():
    table = gather_feature_values([MADD, "f_thread_groups"], kernels())
    assert table.output is None
    assert table.features == (MADD, "f_thread_groups")
    assert table.sub_group_size == 32
    assert table.column(MADD).tolist() == [n**3 / 32 for n in (64, 96, 128)]
    assert set(table.groups) == {"matmul_sq"}
    assert len(table) == 3
    assert table.info[MADD].unit == "sub-group operation"
    assert (table.info[MADD].amount, table.info[MADD].amount_unit) == (32.0, "op")
    with pytest.raises(CalibrationError, match="has no column 'f_thread_items'"):
        table.column("f_thread_items")


def test_measured_output_and_the_devices_sub_group_size():
    device = FakeDevice(lambda _, sizes: 1e-9 * sizes["n"] ** 3, sub_group_size=16)
    table = gather_feature_values([TIME, MADD], kernels(), device=device)
    assert table.output == TIME
    assert table.sub_group_size == 16
    assert table.column(TIME) == pytest.approx([1e-9 * n**3 for n in (64, 96, 128)])
    assert table.column(MADD).tolist() == [n**3 / 16 for n in (64, 96, 128)]
    assert table.device == "fake device (fake platform)"
    assert table.spread == pytest.approx(np.zeros(3))
    assert table.info[TIME].unit == "s"


def test_failures_are_left_out_with_a_warning():
    def law(label, sizes):
        if sizes["n"] == 96:
            msg = f"{label}: the compiler does not like it"
            raise MeasurementError(msg)
        return 1.0

    told, run = [], RunOptions(progress=lambda *step: told.append(step[:2]))
    with pytest.warns(PerflexWarning, match=r"n=96.* is left out: .*does not like it"):
        table = gather_feature_values([TIME, MADD], kernels(), device=FakeDevice(law), run=run)
    assert told[:3] == [(0, 3), (1, 3), (2, 3)]
    assert table.column(MADD).tolist() == [64**3 / 32, 128**3 / 32]
    assert len(table.dropped) == 1
    with (
        pytest.warns(PerflexWarning),
        pytest.raises(CalibrationError, match=r"none of the 1 kernels could be used .*does not like it"),
    ):
        gather_feature_values([TIME, MADD], kernels("96"), device=FakeDevice(law))


def test_kernels_that_cannot_be_counted_are_left_out():
    indirect = pointwise("x[idx[i]] * 2", {"x": np.float32, "idx": np.int32})
    fine = pointwise("x[i] * 2")
    with pytest.warns(PerflexWarning, match="is indirect"):
        table = gather_feature_values(["f_op_float32_mul"], [(indirect, {"n": 64}), (fine, {"n": 64})])
    assert table.column("f_op_float32_mul").tolist() == [2.0]


@pytest.mark.parametrize(
    ("features", "entries", "error", "message"),
    [
        ([MADD], [], CalibrationError, "there are no kernels"),
        ([MADD], [3], CalibrationError, r"expected a measurement kernel or a pair .* got int"),
        (["f_op_float32_add"], [(pointwise("x[i] + 1"), {})], MissingSizeError, "needs a value for size n"),
        ([MADD, "f_op_float32_exp"], None, NoMatchError, "exp matches nothing.*they contain: f_op_float32_madd"),
        (["f_mem_access_tag:zz"], None, NoMatchError, "tag:zz matches.*f_mem_access_tag:aLD_global_float32_load"),
        (["f_op_float32_mad"], None, UnknownFeatureError, "did you mean madd"),
        ([TIME, "f_cl_wall_time_other"], None, CalibrationError, "one wall time, not 2"),
    ],
)
def test_bad_features_and_entries(features, entries, error, message):
    with pytest.raises(error, match=message):
        gather_feature_values(features, kernels() if entries is None else entries)
