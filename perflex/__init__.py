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
    from perflex.analysis.blocks import BlockChoice, calibrate_blocks, choose_block
    from perflex.analysis.ecm import ecm_model, in_core_cycles
    from perflex.calibration.calibrating import calibrate
    from perflex.calibration.calibration import Calibration
    from perflex.calibration.diagnosis import Diagnosis, diagnose
    from perflex.calibration.gathering import gather_feature_values
    from perflex.calibration.interval import PredictionInterval
    from perflex.errors import PerflexError
    from perflex.expression.model import Model
    from perflex.features import InstructionCounts, annotate
    from perflex.features.gpu.refit import fit_capacity_curve
    from perflex.fit.fitting import FitResult, fit_model
    from perflex.fit.table import FeatureTable, scale_features_by_output
    from perflex.machines import Machine, load_machine, using_machine
    from perflex.search.described.description_file import load_description
    from perflex.search.described.kernel_tuner_strategy import KernelTunerStrategy
    from perflex.search.described.prune import prune_described
    from perflex.search.described.scops import described_scop
    from perflex.search.described.space import DescribedSpace
    from perflex.search.described.tuner import DescribedTuner, tune_described
    from perflex.search.pruning.promise import Promise
    from perflex.search.pruning.pruned import Pruning
    from perflex.search.pruning.pruning import prune
    from perflex.search.pruning.ranking import RankedVariant, rank
    from perflex.search.spaces.space import VariantSpace
    from perflex.search.tuning.tuner import Tuner
    from perflex.search.tuning.tuning import TuningResult, tune

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

from perflex.version import __version__ as __version__

# Names are loaded when first used: loopy and sympy alone take most of a second.
_HOME = {
    "BlockChoice": "perflex.analysis.blocks",
    "Calibration": "perflex.calibration.calibration",
    "DescribedSpace": "perflex.search.described.space",
    "DescribedTuner": "perflex.search.described.tuner",
    "Diagnosis": "perflex.calibration.diagnosis",
    "FeatureTable": "perflex.fit.table",
    "FitResult": "perflex.fit.fitting",
    "InstructionCounts": "perflex.features",
    "KernelTunerStrategy": "perflex.search.described.kernel_tuner_strategy",
    "Machine": "perflex.machines",
    "Model": "perflex.expression.model",
    "PerflexError": "perflex.errors",
    "PredictionInterval": "perflex.calibration.interval",
    "Promise": "perflex.search.pruning.promise",
    "Pruning": "perflex.search.pruning.pruned",
    "RankedVariant": "perflex.search.pruning.ranking",
    "Tuner": "perflex.search.tuning.tuner",
    "TuningResult": "perflex.search.tuning.tuning",
    "VariantSpace": "perflex.search.spaces.space",
    "annotate": "perflex.features",
    "calibrate": "perflex.calibration.calibrating",
    "calibrate_blocks": "perflex.analysis.blocks",
    "choose_block": "perflex.analysis.blocks",
    "described_scop": "perflex.search.described.scops",
    "diagnose": "perflex.calibration.diagnosis",
    "ecm_model": "perflex.analysis.ecm",
    "fit_capacity_curve": "perflex.features.gpu.refit",
    "fit_model": "perflex.fit.fitting",
    "gather_feature_values": "perflex.calibration.gathering",
    "in_core_cycles": "perflex.analysis.ecm",
    "load_description": "perflex.search.described.description_file",
    "load_machine": "perflex.machines",
    "prune": "perflex.search.pruning.pruning",
    "prune_described": "perflex.search.described.prune",
    "rank": "perflex.search.pruning.ranking",
    "scale_features_by_output": "perflex.fit.table",
    "tune": "perflex.search.tuning.tuning",
    "tune_described": "perflex.search.described.tuner",
    "using_machine": "perflex.machines",
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
