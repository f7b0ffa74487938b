"""Judging a fit: what its parameters rest on, and what its predictions are worth."""

from perflex.calibration.diagnosis.compare import ModelComparison, aicc, aicc_differences, compare_models
from perflex.calibration.diagnosis.held_out import HeldOut, held_out_by_generator
from perflex.calibration.diagnosis.judge import diagnose
from perflex.calibration.diagnosis.pictures import draw_diagnosis
from perflex.calibration.diagnosis.result import (
    CorrelatedPair,
    Diagnosis,
    Finding,
    GeneratorDiagnosis,
    Informant,
    KernelDiagnosis,
    ParameterDiagnosis,
)

__all__ = [
    "CorrelatedPair",
    "Diagnosis",
    "Finding",
    "GeneratorDiagnosis",
    "HeldOut",
    "Informant",
    "KernelDiagnosis",
    "ModelComparison",
    "ParameterDiagnosis",
    "aicc",
    "aicc_differences",
    "compare_models",
    "diagnose",
    "draw_diagnosis",
    "held_out_by_generator",
]
