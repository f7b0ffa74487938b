"""The paper's three studies on any device: calibrate, predict, measure, report (paper Section 8)."""

from __future__ import annotations

from perflex.studies.evaluation.files import write_evaluation
from perflex.studies.evaluation.overlap import Candidate, OverlapChoice, choose_overlap
from perflex.studies.evaluation.run import DeviceEvaluation, Point, StudyResult, evaluate_device
from perflex.studies.evaluation.studies import STUDIES, Study

__all__ = [
    "STUDIES",
    "Candidate",
    "DeviceEvaluation",
    "OverlapChoice",
    "Point",
    "Study",
    "StudyResult",
    "choose_overlap",
    "evaluate_device",
    "write_evaluation",
]
