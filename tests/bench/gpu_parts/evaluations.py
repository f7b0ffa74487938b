"""Part 4: the paper's three studies, one after the other, each written as soon as it is there."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perflex import TimingOptions
from perflex.errors import PerflexError
from perflex.studies.evaluation.files import write_evaluation
from perflex.studies.evaluation.measures import judgement
from perflex.studies.evaluation.run import evaluate_device
from perflex.studies.evaluation.studies import STUDIES

from .budget import TimeUpError
from .parts import Goal
from .workers import code_workers

if TYPE_CHECKING:
    from perflex.studies.evaluation.result import DeviceEvaluation, StudyResult

    from .budget import Allotted
    from .parts import PartRun, Setting

__all__ = ["evaluations"]

# Geometric means of the relative errors, from the paper's Sections 8.3 to 8.5.
ERRORS = {"matmul": 0.043, "dg": 0.075, "fdiff": 0.067}
# Times that differ by more than this are to be ranked right.
DIFFERENT = 0.05
CALIBRATION_S = 60.0
_WARMUPS = TimingOptions().warmups


def evaluations(setting: Setting, time: Allotted, run: PartRun) -> None:
    """Write ``evaluation/``: tables, pictures and calibrations, as ``perflex evaluate all`` does.

    Raises
    ------
    TimeUpError
        A study did not end in time. Its samples are in the store, and the next run with the same folder goes on there.
    """
    done: list[DeviceEvaluation] = []
    late = ""
    device_s = 0.0
    workers = code_workers(setting.workers) if setting.workers else nullcontext()
    with workers as pool:
        # Each may take all that is left: one study in full says more than three halves.
        for name, study in STUDIES.items():
            options = TimingOptions(trials=15, min_trials=5, budget_s=0.3 if setting.on_gpu else 0.1)
            before = _device_seconds()
            try:
                time.check()
                done.append(
                    evaluate_device(setting.device, [study], timing=options, progress=time.progress, executor=pool)
                )
            except TimeUpError as error:
                late = f"{late}; " if late else ""
                late += f"{name}: {error}"
                continue
            except PerflexError as error:
                run.goals.append(Goal(f"{name}: evaluation", "runs", error.message, met=False))
                continue
            finally:
                device_s += _device_seconds() - before
            _write(setting, done, run)
            _judge(done[-1].studies[0], run)
    if done:
        run.goals.append(_device_time(device_s, late))
    if late:
        raise TimeUpError(late)


def _write(setting: Setting, done: list[DeviceEvaluation], run: PartRun) -> None:
    folder = setting.folder / "evaluation"
    folder.mkdir(exist_ok=True)
    write_evaluation([merged(done)], folder)
    words = "Tables, pictures and calibrations in `evaluation/`, its `report.md` first."
    if words not in run.notes:
        run.notes.append(words)


def merged(parts: list[DeviceEvaluation]) -> DeviceEvaluation:
    """Return the evaluation of all studies together, of those of each."""
    drifts = [part.drift for part in parts if part.drift is not None]
    return replace(
        parts[0],
        studies=tuple(study for part in parts for study in part.studies),
        skipped=tuple(dict.fromkeys(entry for part in parts for entry in part.skipped)),
        drift=max(drifts, key=abs) if drifts else None,
        overlap=next((part.overlap for part in parts if part.overlap), ()),
    )


def _judge(result: StudyResult, run: PartRun) -> None:
    name, goal = result.study.name, ERRORS[result.study.name]
    if not result.points:
        run.goals.append(Goal(f"{name}: errors", "some", "none of the variants could be timed", met=False))
        return
    accuracy = result.accuracy(result.model)
    error = accuracy.geometric_mean
    run.goals.append(
        Goal(
            what=f"{name}: geometric mean of the relative error, model {result.model} (chosen by calibration data)",
            goal=f"at most {100 * goal:.1f} %",
            reached=(
                f"{100 * error:.1f} %, median {100 * accuracy.median:.1f} %, rms {100 * accuracy.rms:.1f} %, maximum "
                f"{100 * accuracy.maximum:.1f} % (noise floor {100 * result.noise_floor:.1f} %)"
            ),
            met=math.isfinite(error) and error <= goal,
        )
    )
    total, right = ranked(result, DIFFERENT)
    run.goals.append(
        Goal(
            what=f"{name}: pairs of variants whose times differ by more than {100 * DIFFERENT:.0f} % ranked right",
            goal="all",
            reached=f"{right} of {total}",
            met=right == total,
        )
    )
    rms = ", ".join(f"{method} {100 * result.accuracy(method).rms:.1f} %" for method in result.methods)
    run.notes.append(f"{name}: rms by model and baseline: {rms}.")
    if judged := judgement(result):
        run.notes.append(f"{name}: {judged}")


def ranked(result: StudyResult, different: float) -> tuple[int, int]:
    """Return pairs of variants of one size whose times differ by more than a fraction, and those ranked right."""
    total = right = 0
    for number, one in enumerate(result.points):
        for two in result.points[number + 1 :]:
            fast, slow = sorted((one, two), key=lambda point: point.measured_s)
            if one.size == two.size and slow.measured_s > (1 + different) * fast.measured_s:
                total += 1
                right += fast.predicted_s[result.model] < slow.predicted_s[result.model]
    return total, right


def _device_time(seconds: float, late: str) -> Goal:
    return Goal(
        what="device time of the evaluations: calibration, choice of a model and the variants themselves"
        + (" (not all of them)" if late else ""),
        goal=f"calibration for all three under {CALIBRATION_S:.0f} s",
        reached=f"{seconds:.1f} s",
        met=not late and seconds < CALIBRATION_S,
    )


def _device_seconds() -> float:
    """Return the device time of all samples in the store, their warm-ups included, in seconds."""
    from perflex.store.samples import MeasurementStore
    from perflex.store.store import current_store

    if current_store() is None:
        return 0.0

    def fetch(connection: Any) -> float:
        rows = connection.execute("SELECT seconds, launches FROM samples")
        return math.fsum(seconds * (launches + _WARMUPS) for seconds, launches in rows)

    return MeasurementStore().use(fetch)
