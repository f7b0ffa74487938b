"""A small evaluation: one study, two models, one baseline, two variants at two sizes; nothing runs."""

from functools import cache

from perflex import Calibration
from perflex.studies.evaluation.overlap import OverlapChoice
from perflex.studies.evaluation.result import DeviceEvaluation, Point, StudyResult
from perflex.studies.evaluation.studies import STUDIES

# By what predicted and measured times differ.
ERRORS = {"linear": 0.2, "overlap": 0.1, "roofline": 0.3}
MEASURED = {("16x16", 32): 2e-3, ("16x16", 64): 4e-3, ("18x18", 32): 3e-3, ("18x18", 64): 6e-3}


@cache
def small_evaluation(name="a device"):
    """Return it; the linear model, which is used, takes the slower variant for the faster one."""
    made = Calibration.load("matmul_sq_amd_epyc_4cores_pocl")

    def predicted(method, variant, seconds):
        slip = (0.4 if variant == "16x16" else -0.3) if method == "linear" else 0.0
        return (1 + ERRORS[method] + slip) * seconds

    points = tuple(
        Point(
            variant, size, seconds, 0.01, {method: predicted(method, variant, seconds) for method in ERRORS}, 0.02,
            (variant, size) == ("18x18", 64),
        )
        for (variant, size), seconds in MEASURED.items()
    )  # fmt: skip
    knowledge = {"linear": "reduced kernels", "overlap": "reduced kernels", "roofline": "nothing"}
    calibrations = {"linear": made, "overlap": made}
    choice = OverlapChoice("linear", "lowest", ())
    result = StudyResult(STUDIES["fdiff"], choice, "linear", calibrations, points, knowledge, "timing")
    return DeviceEvaluation(name, (result,), (("some kernel", name),), 0.3, seconds=100.0)
