"""What is tried: programs left out, few samples, other data, and programs and GPUs left out at once."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .joint import is_general, own_rows
from .methods import DataSet, Predictor, Question

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perflex import Model

    from .rows import MeasuredRow

SAMPLES = (0, 5, 10, 20)
SEEDS = (0, 1, 2, 3, 4)
# Data of one or few programs, predicted from data of many.
_FEW_PROGRAMS = ("sgemm", "hub_convolution", "hub_pnpoly")
_MANY_PROGRAMS = ("nvbench", "gpuperf")
# All of these, of which programs and GPUs are left out at once; programs in so many portions, drawn by chance.
EVERYTHING, _PORTIONS = "everything", 6
_TOGETHER = {*_MANY_PROGRAMS, "sgemm", "small_kernels", "hecbench"}


@dataclass(frozen=True)
class Trial:
    """One predictor on one GPU with one choice of rows; `knows` is in the words of docs/explanation/judging.md."""

    study: str
    data: DataSet
    predictor: Predictor
    question: Question
    samples: str
    knows: str
    seed: int | None = None


def data_sets(
    rows: Sequence[MeasuredRow], short: Sequence[MeasuredRow], values: np.ndarray, roofline: np.ndarray, model: Model
) -> list[DataSet]:
    """Return the data sets among rows that could be counted, then those of few programs with all of many programs."""
    known = [i for i in range(len(rows)) if np.isfinite(values[i]).all()]

    def of(names: Sequence[str], title: str = "") -> DataSet:
        own = [i for name in names for i in known if rows[i].data == name]
        references: dict[str, dict[str, float]] = {}
        for row in (*short, *rows):
            if row.data in names:
                references.setdefault(row.gpu, {})[row.label] = row.seconds
        return DataSet(title or names[0], model, tuple(rows[i] for i in own), values[own], roofline[own], references)

    there = list(dict.fromkeys(rows[i].data for i in known))
    many = [name for name in there if name in _MANY_PROGRAMS]
    sets = [of([name]) for name in there] + [of([name, *many]) for name in there if many and name in _FEW_PROGRAMS]
    together = [name for name in there if name in _TOGETHER]
    return [*sets, _with_own(of(together, EVERYTHING))] if together and is_general(model) else sets


def _with_own(data: DataSet) -> DataSet:
    """Return a data set with perflex's own measurement kernels beside."""
    rows, values = own_rows(data.model)
    nothing = np.full(len(rows), np.nan)
    return replace(
        data,
        rows=(*data.rows, *rows),
        values=np.vstack([data.values, values]),
        roofline=np.concatenate([data.roofline, nothing]),
    )


def trials(sets: Sequence[DataSet], predictors: Sequence[Predictor], gpus: Sequence[str] = ()) -> Iterator[Trial]:
    for data in sets:
        for gpu in (gpu for gpu in data.gpus if not gpus or gpu in gpus):
            if data.name == EVERYTHING:
                yield from _both_left_out(data, gpu, predictors)
            elif any(row.data != data.name for row in data.rows):
                yield from _other_programs(data, gpu, predictors)
            else:
                yield from _as_it_comes(data, gpu, predictors)
                yield from _left_out(data, gpu, predictors)
                yield from _few_samples(data, gpu, predictors)


def _as_it_comes(data: DataSet, gpu: str, predictors: Sequence[Predictor]) -> Iterator[Trial]:
    """Yield trials of the calibration that comes with perflex on all rows, which it may have been made of."""
    for one in predictors if is_general(data.model) else ():
        if "comes" in one.studies:
            knows = _knows(one) if one.name == "one factor" else "nothing"
            yield Trial("as it comes", data, one, Question(gpu, (), data.of(gpu)), "sources of the calibration", knows)


def _left_out(data: DataSet, gpu: str, predictors: Sequence[Predictor]) -> Iterator[Trial]:
    own = data.of(gpu)
    for program in dict.fromkeys(data.rows[i].program for i in own):
        judged = tuple(i for i in own if data.rows[i].program == program)
        fitted = tuple(i for i in own if data.rows[i].program != program)
        for one in predictors if fitted else ():
            # Other GPUs have timed the very program: what learns from them knows more than this study allows. One
            # factor does, too, and is the baseline all the same.
            if "program" in one.studies:
                question = Question(gpu, fitted, judged)
                yield Trial("one program left out", data, one, question, "other programs", _knows(one))


def _both_left_out(data: DataSet, gpu: str, predictors: Sequence[Predictor]) -> Iterator[Trial]:
    """Yield trials that know neither the GPU nor the program: from other GPUs' times of other programs."""
    programs = list(dict.fromkeys(row.program for row in data.rows))
    order = np.random.default_rng(0).permutation(len(programs))
    for portion in range(_PORTIONS):
        left_out = {programs[i] for i in order[portion::_PORTIONS]}
        judged = tuple(i for i in data.of(gpu) if data.rows[i].program in left_out)
        there = tuple(i for i, row in enumerate(data.rows) if row.gpu != gpu and row.program not in left_out)
        for one in predictors if judged else ():
            if "both" in one.studies:
                question = Question(gpu, (), judged, there if one.elsewhere else ())
                knows = _knows(one) if one.name == "one factor" else "nothing"
                yield Trial("GPU and program left out", data, one, question, "other programs and GPUs", knows)


def _knows(predictor: Predictor, samples: int = 0) -> str:
    elsewhere = ["timing on other devices"] if predictor.elsewhere else []
    own = [f"{samples} samples"] if samples and predictor.uses_samples else []
    return ", ".join([*elsewhere, *own]) or "nothing"


def drawn(rows: Sequence[int], gpu: str, count: int, seed: int) -> tuple[int, ...]:
    """Return `count` of the rows, drawn at random; with the same seed fewer are the first of more."""
    order = np.random.default_rng([seed, zlib.crc32(gpu.encode())]).permutation(len(rows))
    return tuple(rows[i] for i in order[:count])


def _few_samples(data: DataSet, gpu: str, predictors: Sequence[Predictor]) -> Iterator[Trial]:
    rows = data.of(gpu)
    programs = {data.rows[i].program for i in rows}
    elsewhere = tuple(i for other in data.gpus if other != gpu for i in data.of(other))
    elsewhere = tuple(i for i in elsewhere if data.rows[i].program in programs)
    for count in SAMPLES:
        for seed in SEEDS if count else (None,):
            fitted = () if seed is None else drawn(rows, gpu, count, seed)
            judged = tuple(i for i in rows if i not in set(fitted))
            for one in predictors if judged else ():
                can = (fitted or not one.needs_samples) and (elsewhere or not one.elsewhere)
                if can and "samples" in one.studies:
                    question = Question(gpu, fitted, judged, elsewhere if one.elsewhere else ())
                    yield Trial("few samples", data, one, question, str(count), _knows(one, count), seed)


def _other_programs(data: DataSet, gpu: str, predictors: Sequence[Predictor]) -> Iterator[Trial]:
    """Yield trials in which all rows of a GPU are predicted from other programs, its own times of those first."""
    judged = tuple(i for i in data.of(gpu) if data.rows[i].data == data.name)
    others = [i for i, row in enumerate(data.rows) if row.data != data.name]
    here = tuple(i for i in others if data.rows[i].gpu == gpu)
    there = tuple(i for i in others if data.rows[i].gpu != gpu)
    samples = "other programs" if here else "other programs and GPUs"
    for one in predictors if judged else ():
        can = (here or not one.needs_samples) and (there or not one.elsewhere)
        if can and "others" in one.studies:
            question = Question(gpu, here, judged, there if one.elsewhere else ())
            # Other GPUs have timed these rows for one factor only.
            knows = _knows(one) if one.name == "one factor" else "nothing"
            yield Trial("other programs only", data, one, question, samples, knows)
