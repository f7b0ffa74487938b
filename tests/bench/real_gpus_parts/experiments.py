"""What is tried: programs left out, few samples, other data, simulated GPUs from microbenchmarks, and unseen GPUs."""

from __future__ import annotations

import os
import zlib
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from typing import TYPE_CHECKING, Literal

import numpy as np

from .methods import Question
from .table import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .methods import Answer, Method
    from .table import DataSet

Study = Literal["one program left out", "few samples", "other programs only", "microbenchmarks only", "unseen GPU"]
SAMPLES = (0, 5, 10, 20)
SEEDS = (0, 1, 2, 3, 4)
UNSEEN_SAMPLES = (0, 5)
# Programs of "neusight" that are no element-wise operators begin so.
_NOT_ELEMENT_WISE = ("softmax", "layer_norm", "layernorm", "bmm", "linear")
# Roles of "simulated": what a study's kernels are predicted from. Those for finite differences are too few alone.
_ROLES = {"study": ("cal",), "study_fdiff": ("cal", "cal_fdiff")}

# Data of one or few programs, predicted from data of many.
_FEW_PROGRAMS = ("sgemm", "hub_convolution", "hub_pnpoly")
_MANY_PROGRAMS = ("nvbench", "gpuperf")


@dataclass(frozen=True)
class Trial:
    """One method on one GPU with one choice of rows.

    Attributes
    ----------
    study
        What is tried.
    place
        Number of the data set.
    method
        The method.
    question
        What it is given, and what it predicts.
    samples
        How many of the GPU's own times it is given, or which, in words.
    knows
        What it has seen of what it predicts, in the words of docs/explanation/judging.md.
    seed
        Of the draw of samples; None where nothing is drawn.
    """

    study: Study
    place: int
    method: Method
    question: Question
    samples: str
    knows: str
    seed: int | None = None


def trials(sets: Sequence[DataSet], methods: Sequence[Method], gpus: Sequence[str] = ()) -> list[Trial]:
    """Return all trials.

    Parameters
    ----------
    sets
        The data; those of `with_other_programs` may follow.
    methods
        To be tried.
    gpus
        GPUs to judge; all if empty. Times of the others are used all the same.
    """
    found: list[Trial] = []
    for place, data in enumerate(sets):
        for gpu in data.gpus:
            if gpus and gpu not in gpus:
                continue
            if any(row.data != data.name for row in data.rows):
                found += _other_programs(place, data, gpu, methods)
                continue
            if data.name == "simulated":
                found += _simulated(place, data, gpu, methods)
                continue
            found += _left_out(place, data, gpu, methods)
            found += _few(place, data, gpu, methods)
            if data.name == "neusight":
                found += _unseen(place, data, gpu, methods)
    return found


def _left_out(place: int, data: DataSet, gpu: str, methods: Sequence[Method]) -> Iterator[Trial]:
    own = data.of(gpu)
    programs = dict.fromkeys(data.rows[i].program for i in own)
    # A single program leaves nothing to fit to; what needs nothing is judged beside few samples.
    for program in programs if len(programs) > 1 else ():
        judged = data.of(gpu, (program,))
        fitted = tuple(i for i in own if data.rows[i].program != program)
        for method in methods:
            # Other GPUs have timed the very program: what learns from them knows more than this study allows. One
            # factor does, too, and is the baseline all the same.
            if method.elsewhere and method.name != "one factor":
                continue
            if fitted or not method.needs_samples:
                question = Question(gpu, fitted, judged)
                yield Trial("one program left out", place, method, question, "other programs", _knows(method))


def _knows(method: Method, samples: int = 0) -> str:
    own = f"{samples} samples" if samples and method.uses_samples else ""
    return ", ".join(part for part in ("timing on other devices" if method.elsewhere else "", own) if part) or "nothing"


def drawn(rows: Sequence[int], gpu: str, count: int, seed: int) -> tuple[int, ...]:
    """Return `count` of the rows, drawn at random; with the same seed fewer are the first of more."""
    order = np.random.default_rng([seed, zlib.crc32(gpu.encode())]).permutation(len(rows))
    return tuple(rows[i] for i in order[:count])


def _sampled(
    study: Study,
    place: int,
    data: DataSet,
    gpu: str,
    methods: Sequence[Method],
    rows: Sequence[int],
    counts: Sequence[int],
) -> Iterator[Trial]:
    """Yield trials in which some of the rows are given and the rest is predicted."""
    programs = tuple(dict.fromkeys(data.rows[i].program for i in rows))
    elsewhere = tuple(i for other in data.gpus if other != gpu for i in data.of(other, programs))
    for count in counts:
        for seed in SEEDS if count else (None,):
            fitted = () if seed is None else drawn(rows, gpu, count, seed)
            judged = tuple(i for i in rows if i not in set(fitted))
            if not judged:
                continue
            for method in methods:
                if (fitted or not method.needs_samples) and (elsewhere or not method.elsewhere):
                    given = elsewhere if method.elsewhere else ()
                    question = Question(gpu, fitted, judged, given)
                    yield Trial(study, place, method, question, str(count), _knows(method, count), seed)


def _few(place: int, data: DataSet, gpu: str, methods: Sequence[Method]) -> Iterator[Trial]:
    return _sampled("few samples", place, data, gpu, methods, data.of(gpu), SAMPLES)


def _unseen(place: int, data: DataSet, gpu: str, methods: Sequence[Method]) -> Iterator[Trial]:
    rows = [i for i in data.of(gpu) if not data.rows[i].program.startswith(_NOT_ELEMENT_WISE)]
    return _sampled("unseen GPU", place, data, gpu, methods, rows, UNSEEN_SAMPLES)


def with_other_programs(sets: Sequence[DataSet]) -> list[DataSet]:
    """Return each data set of few programs with the rows of all those of many; none if there are none of either."""
    many = [data for data in sets if data.name in _MANY_PROGRAMS]
    return [joined([data, *many]) for data in sets if many and data.name in _FEW_PROGRAMS]


def _other_programs(place: int, data: DataSet, gpu: str, methods: Sequence[Method]) -> Iterator[Trial]:
    """Yield trials in which all rows of a GPU are predicted from other programs, its own times of those first."""
    judged = tuple(i for i in data.of(gpu) if data.rows[i].data == data.name)
    others = [i for i, row in enumerate(data.rows) if row.data != data.name]
    here = tuple(i for i in others if data.rows[i].gpu == gpu)
    there = tuple(i for i in others if data.rows[i].gpu != gpu)
    samples = "other programs" if here else "other programs and GPUs"
    for method in methods if judged else ():
        if (here or not method.needs_samples) and (there or not method.elsewhere):
            question = Question(gpu, here, judged, there if method.elsewhere else ())
            # Other GPUs have timed these rows for one factor only.
            knows = _knows(method) if method.name == "one factor" else "nothing"
            yield Trial("other programs only", place, method, question, samples, knows)


def _simulated(place: int, data: DataSet, gpu: str, methods: Sequence[Method]) -> Iterator[Trial]:
    own = data.of(gpu)
    for study, roles in _ROLES.items():
        judged = tuple(i for i in own if data.rows[i].note == study)
        variants = {data.rows[i].program for i in judged}
        fitted = tuple(i for i in own if data.rows[i].note in roles)
        # Kernels made of the variants, such as their accesses without the work, tell of them what a short launch does.
        apart = tuple(i for i in fitted if not data.rows[i].program.startswith(tuple(variants)))
        for title, rows, knows in (("all", fitted, "short launch"), ("of other kernels", apart, "nothing")):
            for method in methods:
                if judged and (not method.elsewhere or method.name == "one factor"):
                    seen = knows if method.needs_samples else _knows(method)
                    samples = f"{' and '.join(roles)}, {title}"
                    yield Trial("microbenchmarks only", place, method, Question(gpu, rows, judged), samples, seen)


# What forked workers take from their parent: it is too large to be sent with each trial.
_SETS: list[DataSet] = []


def _answer(trial: Trial) -> Answer:
    return trial.method.answer(_SETS[trial.place], trial.question)


def answers(
    sets: Sequence[DataSet],
    what: Sequence[Trial],
    workers: int = 2,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Answer]:
    """Return the answer of each trial.

    Parameters
    ----------
    sets
        The data.
    what
        The trials.
    workers
        Processes.
    progress
        Called with (done, total, what) as work proceeds.
    """
    _SETS[:] = sets
    for data in sets:
        # Here once, not in each worker: sympy and scipy take long to load.
        _ = data.model.compiled.jacobian
    import_module("scipy.optimize")
    # One thread each: the processes fill the processors.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found: list[Answer] = []
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        for trial, answer in zip(what, pool.map(_answer, what, chunksize=4), strict=True):
            found.append(answer)
            if progress is not None:
                progress(len(found), len(what), f"{trial.question.gpu}, {trial.method.name}, {trial.study}")
    return found
