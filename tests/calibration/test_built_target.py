"""What stops a prediction that needs the kernel's machine code, said so that it can be mended."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import loopy as lp
import numpy as np
import pytest

from perflex import Calibration, Model, calibrate, list_devices
from perflex.calibration.built_target import built_target, require_cycles, with_cycles
from perflex.compiled.in_core import source as sources
from perflex.compiled.in_core.source import CycleSource, source_of_options
from perflex.errors import CalibrationError, FeatureError, MissingExtraError, MissingSizeError
from perflex.features import Target, extract_scop, parse_feature
from support.tools import has_llvm_mca

if TYPE_CHECKING:
    from pathlib import Path

    from perflex import Device


def doubled() -> lp.TranslationUnit:
    kernel = lp.make_kernel(
        "{[i]: 0<=i<n}", "b[i] = 2*a[i]", assumptions="n>=1", lang_version=(2018, 2), name="doubled"
    )
    kernel = lp.add_dtypes(kernel, {"a": np.float32, "b": np.float32})
    return lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")


def test_code_is_of_one_size() -> None:
    with pytest.raises(FeatureError, match="f_code_cycles is of the code for one value of each size, not an array"):
        built_target(["f_code_cycles"], doubled(), {"n": np.array([64, 128])}, Target(), "f_cl_wall_time")


@pytest.mark.device
def test_a_missing_size_is_a_missing_size(default_device: Device) -> None:
    del default_device
    with pytest.raises(MissingSizeError, match="no value for size parameter n"):
        built_target(["f_code_cycles"], doubled(), {}, Target(), "f_cl_wall_time")


def test_models_without_code_build_nothing() -> None:
    target = Target()
    assert built_target(["f_op_float32_mul"], doubled(), {}, target, "f_cl_wall_time_of_no_device") is target


@pytest.mark.slow
@pytest.mark.device
@pytest.mark.filterwarnings("ignore::perflex.errors.PerflexWarning")
@pytest.mark.skipif(not has_llvm_mca(), reason="needs llvm-mca (apt install llvm)")
def test_a_calibration_keeps_its_source_of_cycles_and_predicts_with_it(tmp_path: Path) -> None:
    usable = (one.device for one in list_devices() if one.usable)
    device = next((one for one in usable if one.kind == "cpu" and "Intel" in one.platform), None)
    if device is None:
        pytest.skip("needs Intel's CPU runtime")
    model = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_core * f_code_cycles")
    kernels = [(doubled(), {"n": 32 * count}) for count in (1, 512, 4096, 16384)]
    found = calibrate(model, kernels, device=device, cycles="llvm-mca", store="off", on_undetermined="warn")
    found.save(tmp_path / "kept.yaml")
    kept = Calibration.load(tmp_path / "kept.yaml")
    assert kept.options["cycles"] == "llvm-mca"
    target = built_target(model.input_features(), doubled(), {"n": 4096}, kept.target(), model.output_feature)
    assert target.cycles is not None
    assert {name: kept.options[name] for name in target.cycles.facts()} == target.cycles.facts()
    # The same code by ports has other cycles, and predictions take the tool's.
    feature, scop = parse_feature("f_code_cycles"), extract_scop(doubled())
    ours = feature.value(scop, {"n": 4096}, target)
    assert ours != feature.value(scop, {"n": 4096}, replace(target, cycles=None))
    assert kept.feature_values(doubled(), {"n": 4096})["f_code_cycles"] == ours
    # Where the tool is of another version there is no prediction.
    other = replace(kept, options={**kept.options, "cycles_version": "1.0"})
    with pytest.raises(MissingExtraError, match="install that version, or calibrate again"):
        other.predict(doubled(), {"n": 4096})


def test_predictions_take_the_source_of_the_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    here = CycleSource("llvm-mca", "19.1.7", "znver3", "/usr/bin/llvm-mca-19")
    monkeypatch.setattr(sources, "_llvm_mca", lambda: here)
    plain, features = Target(), ["f_code_cycles"]
    assert with_cycles(plain, features, here.facts()).cycles == here
    assert with_cycles(plain, features, {}) == plain
    # Counts need no tool, though the calibration names one.
    assert with_cycles(plain, ["f_code_loads"], here.facts()) == plain
    with pytest.raises(MissingExtraError, match=r"llvm-mca 14.0.6 \(znver3\), and here is llvm-mca 19.1.7 \(znver3\)"):
        source_of_options(here.facts() | {"cycles_version": "14.0.6"})
    with pytest.raises(MissingExtraError, match="does not know; update perflex"):
        source_of_options({"cycles": "uica"})


def test_a_tool_without_a_use_is_an_error() -> None:
    source = CycleSource("llvm-mca", "1", "x")
    require_cycles(source, ["f_code_chain_cycles"])
    require_cycles(None, ["f_op_float32_add"])
    with pytest.raises(CalibrationError, match="neither f_code_cycles nor f_code_chain_cycles"):
        require_cycles(source, ["f_op_float32_add", "f_code_loads"])
