"""What rank, prune and tune count variants for: the calibration's machine and sub-groups, and the built code."""

from collections import defaultdict
from dataclasses import dataclass, replace

import loopy as lp
import numpy as np
import pytest

from perflex import FeatureTable, Model, SearchOptions, TimingOptions, VariantSpace, prune, rank, using_machine
from perflex import tune as searched
from perflex.compiled.code_values import CodeValues
from perflex.errors import (
    CalibrationError,
    DeviceError,
    FeatureError,
    MeasurementError,
    PerflexError,
    PerflexWarning,
    SpaceError,
)
from perflex.testing import FakeDevice
from perflex.timing.results import MeasurementFailure
from support.fitted import fitted
from support.source_kernels import axpy
from support.spaces_for_tests import scaled, small_space

pytestmark = pytest.mark.filterwarnings("ignore::perflex.errors.DoubtfulPredictionWarning")

COUNTED = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_mul * f_op_float32_mul + p_wave * f_waves")
CODE = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_instruction * f_code_instructions")
FAKE = FakeDevice(lambda _label, _sizes: 1e-3)


def calibration_of(model, sub_group_size=8, device=None):
    inputs = np.exp(np.random.default_rng(0).uniform(0, 8, (20, len(model.input_features()))))
    inputs[:, 0] = 1
    labels, groups = (tuple(f"k{number % 5}{rest}" for number in range(20)) for rest in ("(n)", ""))
    columns = np.column_stack([inputs @ np.array([1e-6, 1e-9, 1e-6][: inputs.shape[1]]), inputs])
    table = FeatureTable(model.output_feature, tuple(model.all_features()), labels, columns, groups=groups)
    made = fitted(model, replace(table, sub_group_size=sub_group_size))
    return replace(made, device=device or {}, machine="V100")


def by_hand(lsize, repeats):
    """One launch; products of sub-groups of 8; waves of 80 units that hold 32 work-groups each."""
    n = 1 << 22
    return [1, n / 8 * repeats, n / lsize / (80 * 32)]


@pytest.mark.parametrize("with_kernels_of", ["tune", "prune"])
def test_variants_are_counted_for_the_calibrations_machine_and_sub_groups(with_kernels_of):
    # The device has sub-groups of 32 work-items, and a name that no machine file knows.
    calibration, space, sizes = calibration_of(COUNTED), small_space(), {"n": 1 << 22}
    assert FAKE.sub_group_size == 32
    if with_kernels_of == "tune":
        found = searched(space, sizes, device=FAKE, calibration=calibration, options=SearchOptions(3)).space
    else:
        found = prune(space, calibration, sizes).variants
    assert len(found) == 9
    for settings, values in zip(found.settings, found.values, strict=True):
        assert list(values) == by_hand(**settings)


def tuned(candidates, calibration, sizes=None, machine=None):
    return searched(candidates, sizes, calibration=calibration, machine=machine, device=FAKE, options=SearchOptions(2))


@pytest.mark.parametrize("use", [rank, prune, tuned])
def test_what_was_counted_for_something_else_is_refused(use):
    """Candidates have their sizes, sub-groups and machine in them; others that are asked for were ignored."""
    space, features, sizes = small_space(), COUNTED.input_features(), {"n": 4096}
    calibration = calibration_of(COUNTED)
    with using_machine("V100"):
        of_32 = space.extract(features, sizes)
        found = space.extract(features, sizes, sub_group_size=8)
    for given in (None, sizes, {}):
        assert use(found, calibration, given)
    with pytest.raises(CalibrationError, match=r"^the variants were counted at n=4096, not at n=8192; extract"):
        use(found, calibration, {"n": 8192})
    with pytest.raises(CalibrationError, match="at n=4096, not at m=1"):
        use(found, calibration, {"n": 4096, "m": 1})
    with pytest.raises(CalibrationError, match="for machine V100, predictions are for machine T4; give the space"):
        use(found, calibration, machine="T4")
    with pytest.raises(CalibrationError, match=r"for sub-groups of 32 work-items, predictions are for .* of 8 work"):
        use(of_32, calibration)


def test_sizes_are_those_of_the_variants_without_a_calibration():
    found = small_space().extract(["f_thread_groups"], {"n": 4096})
    with pytest.raises(CalibrationError, match="were counted at n=4096, not at n=1"):
        searched(found, {"n": 1}, measure=lambda _proposal: 1.0)
    with pytest.raises(CalibrationError, match="your own function times variants; device=, timing= and answer= say"):
        searched(found, measure=lambda _proposal: 1.0, options=SearchOptions(timing=TimingOptions()))


@dataclass(frozen=True)
class Code:
    """Stands for a built program."""

    loads: int
    gpu: None = None
    runtime: str = "cuda"


@pytest.fixture
def built(monkeypatch):
    """A compiler that makes ten instructions of each load that a kernel's text has; how many it built at a time."""
    batches = []

    def compiled(jobs, device):
        assert device is FAKE
        batches.append(len(jobs))
        found = []
        for job in jobs:
            loads = str(job.translation_unit.default_entrypoint).count("x[i")
            error = MeasurementError(f"{job.label}: 5 loads are too many")
            found.append(
                MeasurementFailure(job.label, error.message, "prepare", error) if loads == 5 else (Code(loads),)
            )
        return found

    def values(_scop, _sizes, code):
        return CodeValues(counts=defaultdict(float, instructions=10.0 * sum(one.loads for one in code)))

    monkeypatch.setattr("perflex.timing.compiled_code.compiled_code", compiled)
    monkeypatch.setattr("perflex.features.families.machine_code.launch_values", values)
    monkeypatch.setattr("perflex.calibration.device_match.device_of_calibration", lambda *_: FAKE)
    return batches


def instructions_of(calibration, seconds):
    return (seconds - calibration.params["p_launch"]) / calibration.params["p_instruction"]


def test_rank_reads_the_built_code(built):
    calibration = calibration_of(CODE)
    kernels = {str(repeats): scaled(lsize=32, repeats=repeats) for repeats in (3, 1, 2)}
    places = rank(kernels, calibration, {"n": 4096})
    assert built == [3]
    assert [place.name for place in places] == ["1", "2", "3"]
    for place in places:
        assert instructions_of(calibration, place.predicted) == pytest.approx(10 * (int(place.name) + 1))
        assert place.predicted == calibration.predict(kernels[place.name], {"n": 4096})
        assert place.knowledge == "code"


def test_prune_reads_the_built_code_and_leaves_out_what_does_not_build(built):
    calibration = calibration_of(CODE)
    found = prune(small_space(), calibration, {"n": 4096}, keep=1.0)
    assert built == [9]
    assert {v.settings["repeats"] for v in found.kept} == {1, 2}
    for variant in found.kept:
        expected = pytest.approx(10 * (variant.settings["repeats"] + 1))
        assert instructions_of(calibration, variant.predicted) == expected
    assert dict(found.excluded) == {"cannot be built: # loads are too many": 3}
    # So does tune.
    assert len(searched(small_space(), {"n": 4096}, device=FAKE, calibration=calibration).space) == 6


def test_kernels_that_do_not_build_are_left_out_with_a_warning(built):
    calibration, sizes = calibration_of(CODE), {"n": 4096}
    kernels = {"1": scaled(lsize=32, repeats=1), "4": scaled(lsize=32, repeats=4)}
    with pytest.warns(PerflexWarning, match="left out: 4: .*5 loads are too many; predict where"):
        assert [place.name for place in rank(kernels, calibration, sizes)] == ["1"]
    with pytest.raises(SpaceError, match="holds no valid variant of 3 combinations: cannot be built"):
        prune(VariantSpace(scaled, {"lsize": (16, 32, 64), "repeats": (4,)}), calibration, sizes)
    with pytest.raises(PerflexError, match=r"none of the 1 variants can be described; 4: .*5 loads are too many"):
        prune({"4": kernels["4"]}, calibration, sizes)
    assert len(built) == 3


@pytest.mark.parametrize(
    "how", [rank, prune, lambda space, calibration, sizes: searched(space, sizes, device=FAKE, calibration=calibration)]
)
def test_without_the_device_the_cause_is_said(how):
    calibration = calibration_of(CODE, device={"name": "Some CPU", "platform": "Some runtime"})
    with pytest.raises(
        (FeatureError, DeviceError), match=r"the calibration is of Some CPU .*; predict where the device"
    ):
        how(small_space(), calibration, {"n": 4096})


def loopy_axpy(width):
    kernel = lp.make_kernel("{[i]: 0<=i<n}", "y[i] = y[i] + 3*x[i]", assumptions="n>=1", lang_version=(2018, 2))
    kernel = lp.add_dtypes(kernel, {"x": np.float32, "y": np.float32})
    return lp.split_iname(kernel, "i", width, outer_tag="g.0", inner_tag="l.0")


@pytest.mark.slow
def test_built_variants_are_predicted_as_alone(default_device):
    facts = {name: getattr(default_device, name) for name in ("name", "platform", "api")}
    calibration, sizes = calibration_of(CODE, device=facts), {"n": 4096}
    kernels = {"loopy": loopy_axpy(32), "wider": loopy_axpy(64), "source": axpy(64)}
    alone = {name: calibration.predict(kernel, sizes) for name, kernel in kernels.items()}
    assert {place.name: place.predicted for place in rank(kernels, calibration, sizes)} == alone
    space = VariantSpace(axpy, {"items": (16, 64)}, name="axpy")
    found = prune(space, calibration, sizes, keep=1.0)
    assert found.predicted[1] == alone["source"]
    assert found.predicted[0] == calibration.predict(axpy(16), sizes)
