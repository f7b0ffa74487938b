from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from perflex import calibration_names, load_calibration
from perflex.errors import FileFormatError
from perflex.models import load_model
from sample_kernels import matmul
from uipick import ALL_GENERATORS, KernelCollection, tag_accesses


def _target(name):
    """A kernel that the calibration is for, two sizes, and how many times as long the larger one takes."""
    if name.startswith("matmul"):
        kernel = tag_accesses(matmul(prefetch=False), loads={"a": "aLD", "b": "bLD"})
        return kernel, [{"n": 160}, {"n": 480}], (10, 60)
    tags = {
        "dg": ["dg_diff", "variant:plain", "lsize_0:16", "lsize_1:16", "nelements:3200,9600"],
        "fdiff": ["fdiff", "tile:18", "n:2576,5152"],
    }[name.partition("_")[0]]
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels(["dtype:float32", "groups_fit:True", *tags])
    return kernels[0].kernel, [kernel.sizes for kernel in kernels], (2.5, 4.5)


@pytest.mark.filterwarnings("ignore:this prediction is doubtful")
@pytest.mark.parametrize("name", calibration_names())
def test_calibrations_load_and_predict(name):
    calibration = load_calibration(name)
    assert calibration.device["name"]
    assert calibration.noise_floor is not None
    assert len(calibration.fit.kernels) > len(calibration.params)
    kernel, sizes, growth = _target(name)
    small, large = (calibration.predict(kernel, size) for size in sizes)
    assert growth[0] < large / small < growth[1]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name.startswith("dg") else pytest.mark.slow) for name in calibration_names()],
)
def test_files_keep_what_left_out_generators_say(name):
    """Else each command refits the model for every generator before it predicts."""
    calibration = load_calibration(name)
    kept = calibration.kept_generator_term
    assert kept is not None
    again = replace(calibration, kept_generator_term=None).generator_term
    assert asdict(again) == pytest.approx(asdict(kept), rel=1e-3)


def test_unknown_calibrations_are_refused_with_those_there_are():
    with pytest.raises(FileFormatError, match=f"there are {calibration_names()[0]}"):
        load_calibration("none")


def test_the_matmul_model_counts_all_that_both_variants_do():
    from perflex.features.coverage import uncounted

    features = load_model("matmul_sq").model().input_features()
    for prefetch in ("True", "False"):
        (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(
            ["matmul_sq", "dtype:float32", f"prefetch:{prefetch}", "groups_fit:True", "n:64"]
        )
        assert uncounted(features, kernel.kernel, kernel.sizes) == []
