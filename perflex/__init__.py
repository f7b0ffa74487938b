"""Calibrated cost models for OpenCL and GPU kernels.

Write a cost model as a string, calibrate it on a device from measurement kernels, and predict the run
time of kernels that never ran there::

    from perflex import Model, calibrate
    from uipick import ALL_GENERATORS, KernelCollection

    model = Model("f_cl_wall_time_intel_epyc", "p_f32madd * f_op_float32_madd")
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels(
        ["matmul_sq", "dtype:float32", "prefetch:True", "lsize_0:16", "lsize_1:16",
         "groups_fit:True", "n:512,640,768,896"])
    calibration = calibrate(model, kernels)
    seconds = calibration.predict(kernels[0], {"n": 1024})
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflex._blocks import BlockChoice, calibrate_blocks, choose_block
    from perflex._calibrate import calibrate
    from perflex._calibration import Calibration
    from perflex._described.description_file import load_description
    from perflex._described.kernel_tuner_strategy import KernelTunerStrategy
    from perflex._described.prune import prune_described
    from perflex._described.scops import described_scop
    from perflex._described.space import DescribedSpace
    from perflex._described.tuner import DescribedTuner, tune_described
    from perflex._diagnosis import Diagnosis, diagnose
    from perflex._ecm_model import ecm_model, in_core_cycles
    from perflex._fit import FitResult, fit_model
    from perflex._gather import gather_feature_values
    from perflex._interval import PredictionInterval
    from perflex._machines import Machine, load_machine, using_machine
    from perflex._model import Model
    from perflex._prune.promise import Promise
    from perflex._prune.pruned import Pruning
    from perflex._prune.pruning import prune
    from perflex._prune.space import VariantSpace
    from perflex._prune.tuner import Tuner
    from perflex._prune.tuning import TuningResult, tune
    from perflex._rank import RankedVariant, rank
    from perflex._table import FeatureTable, scale_features_by_output
    from perflex._volumes.refit import fit_capacity_curve
    from perflex.errors import PerflexError
    from perflex.features import InstructionCounts, annotate

__all__ = [
    "BlockChoice",
    "Calibration",
    "DescribedSpace",
    "DescribedTuner",
    "Diagnosis",
    "FeatureTable",
    "FitResult",
    "InstructionCounts",
    "KernelTunerStrategy",
    "Machine",
    "Model",
    "PerflexError",
    "PredictionInterval",
    "Promise",
    "Pruning",
    "RankedVariant",
    "Tuner",
    "TuningResult",
    "VariantSpace",
    "annotate",
    "calibrate",
    "calibrate_blocks",
    "choose_block",
    "described_scop",
    "diagnose",
    "ecm_model",
    "fit_capacity_curve",
    "fit_model",
    "gather_feature_values",
    "in_core_cycles",
    "load_description",
    "load_machine",
    "prune",
    "prune_described",
    "rank",
    "scale_features_by_output",
    "tune",
    "tune_described",
    "using_machine",
]

__version__ = "0.1.0"

# Names are loaded when first used: loopy and sympy alone take most of a second.
_HOME = {
    "BlockChoice": "perflex._blocks",
    "Calibration": "perflex._calibration",
    "DescribedSpace": "perflex._described.space",
    "DescribedTuner": "perflex._described.tuner",
    "Diagnosis": "perflex._diagnosis",
    "FeatureTable": "perflex._table",
    "FitResult": "perflex._fit",
    "InstructionCounts": "perflex.features",
    "KernelTunerStrategy": "perflex._described.kernel_tuner_strategy",
    "Machine": "perflex._machines",
    "Model": "perflex._model",
    "PerflexError": "perflex.errors",
    "PredictionInterval": "perflex._interval",
    "Promise": "perflex._prune.promise",
    "Pruning": "perflex._prune.pruned",
    "RankedVariant": "perflex._rank",
    "Tuner": "perflex._prune.tuner",
    "TuningResult": "perflex._prune.tuning",
    "VariantSpace": "perflex._prune.space",
    "annotate": "perflex.features",
    "calibrate": "perflex._calibrate",
    "calibrate_blocks": "perflex._blocks",
    "choose_block": "perflex._blocks",
    "described_scop": "perflex._described.scops",
    "diagnose": "perflex._diagnosis",
    "ecm_model": "perflex._ecm_model",
    "fit_capacity_curve": "perflex._volumes.refit",
    "fit_model": "perflex._fit",
    "gather_feature_values": "perflex._gather",
    "in_core_cycles": "perflex._ecm_model",
    "load_description": "perflex._described.description_file",
    "load_machine": "perflex._machines",
    "prune": "perflex._prune.pruning",
    "prune_described": "perflex._described.prune",
    "rank": "perflex._rank",
    "scale_features_by_output": "perflex._table",
    "tune": "perflex._prune.tuning",
    "tune_described": "perflex._described.tuner",
    "using_machine": "perflex._machines",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    msg = f"module 'perflex' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
