"""How good answers are: per program, per GPU, and over all GPUs of a data set."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perflex import Accuracy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from .experiments import Study, Trial
    from .methods import Answer
    from .table import DataSet

    Array = NDArray[np.float64]

COLUMNS = (
    "data", "gpu", "program", "method", "samples", "seed", "median", "p90", "max", "geomean", "spearman", "choice_loss",
)  # fmt: skip
ALL = "all"


@dataclass(frozen=True)
class Prediction:
    """One row as one trial predicts it.

    Attributes
    ----------
    program, case, measured
        Of the row; the case with GPU and seed, for choices are among rows of one trial.
    predicted
        Seconds; nan where there is none.
    inside
        Whether the measured time lies in the interval; None where there is no interval.
    """

    program: str
    case: tuple[str, str, int | None]
    measured: float
    predicted: float
    inside: bool | None


@dataclass(frozen=True)
class Score:
    """How good a method is at some rows.

    Attributes
    ----------
    study, data, gpu, program, method, samples, knows
        What was tried; "all" for all GPUs, and for all programs.
    seed
        Of the draw; None where nothing was drawn, or for all draws together.
    accuracy
        Errors, order and losses of those that were predicted; None if none was.
    p90
        90th percentile of the relative errors (interpolated).
    missing
        Rows without a prediction.
    covered, intervals
        Share of rows inside their interval, and how many have one.
    reasons
        Why predictions or intervals are missing.
    """

    study: Study
    data: str
    gpu: str
    program: str
    method: str
    samples: str
    knows: str
    seed: int | None
    accuracy: Accuracy | None
    p90: float
    missing: int
    covered: float
    intervals: int
    reasons: tuple[str, ...] = ()


# Study, data, GPU, method, samples, and what the method knows.
_Group = tuple["Study", str, str, str, str, str]


def scores(sets: Sequence[DataSet], what: Sequence[Trial], said: Sequence[Answer]) -> list[Score]:
    """Score answers.

    Returns
    -------
    list of Score
        For each study, method and number of samples: per GPU, seed and program; per GPU and seed; per GPU; and over
        all GPUs of the data set.
    """
    pools: dict[_Group, dict[int | None, list[Prediction]]] = {}
    reasons: dict[_Group, list[str]] = {}
    for trial, answer in zip(what, said, strict=True):
        data = sets[trial.place]
        for gpu in (trial.question.gpu, ALL):
            group = (trial.study, data.name, gpu, trial.method.name, trial.samples, trial.knows)
            pools.setdefault(group, {}).setdefault(trial.seed, []).extend(_predictions(data, trial, answer))
            if answer.reason:
                reasons.setdefault(group, []).append(answer.reason)
    found: list[Score] = []
    for group, by_seed in pools.items():
        why = tuple(dict.fromkeys(reasons.get(group, ())))
        if group[2] != ALL:
            for seed, own in by_seed.items():
                by_program: dict[str, list[Prediction]] = {}
                for one in own:
                    by_program.setdefault(one.program, []).append(one)
                found += [_score(group, program, seed, rows) for program, rows in by_program.items()]
                if seed is not None:
                    found.append(_score(group, ALL, seed, own))
        found.append(_score(group, ALL, None, [one for own in by_seed.values() for one in own], why))
    return found


def _predictions(data: DataSet, trial: Trial, answer: Answer) -> list[Prediction]:
    found = []
    for place, number in enumerate(trial.question.judged):
        row, predicted, inside = data.rows[number], float(answer.seconds[place]), None
        # A time that is not positive and finite is no prediction.
        predicted = predicted if 0 < predicted < math.inf else math.nan
        if answer.low is not None and answer.high is not None and not math.isnan(predicted):
            inside = bool(answer.low[place] <= row.seconds <= answer.high[place])
        case = (row.gpu, row.case, trial.seed)
        found.append(Prediction(row.program, case, row.seconds, predicted, inside))
    return found


def _score(
    group: _Group, program: str, seed: int | None, rows: Sequence[Prediction], reasons: tuple[str, ...] = ()
) -> Score:
    made = [row for row in rows if not math.isnan(row.predicted)]
    known = [row.inside for row in made if row.inside is not None]
    accuracy, p90 = None, math.nan
    if made:
        predicted, measured = np.array([row.predicted for row in made]), np.array([row.measured for row in made])
        accuracy = Accuracy.of(predicted, measured, [row.case for row in made])
        p90 = float(np.percentile(np.abs(predicted / measured - 1), 90))
    study, data, gpu, method, samples, knows = group
    return Score(
        study,
        data,
        gpu,
        program,
        method,
        samples,
        knows,
        seed,
        accuracy,
        p90,
        len(rows) - len(made),
        sum(known) / len(known) if known else math.nan,
        len(known),
        reasons,
    )


def write_csv(path: Path, found: Sequence[Score]) -> None:
    """Write a line per score, with the columns `COLUMNS`.

    Errors and losses are fractions; ``choice_loss`` is the mean over cases, ``spearman`` that of rank correlations
    within cases. What does not exist is empty: no seed, no case of several rows, no prediction.
    """
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        for score in found:
            a = score.accuracy
            errors = [math.nan] * 6
            if a is not None:
                errors = [a.median, score.p90, a.maximum, a.geometric_mean, a.spearman, a.loss_mean]
            seed = "" if score.seed is None else score.seed
            cells = ["" if math.isnan(value) else f"{value:.6g}" for value in errors]
            writer.writerow([score.data, score.gpu, score.program, score.method, score.samples, seed, *cells])
