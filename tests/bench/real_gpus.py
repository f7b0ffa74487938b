"""Times that others measured on real GPUs, predicted: ``python tests/bench/real_gpus.py --data DIR --out FILE.csv``.

DIR holds any of the folders ``nvbench``, ``gpuperf``, ``sgemm_variants``, ``hub``, ``small_kernels`` and
``hecbench_rtx3080`` (``--sets`` names some). Of each tuning space of ``hub`` ``--configurations`` are drawn; a folder
``gpu_tuning`` in DIR or beside it has their times on further GPUs, ``kernel_sources`` the sources. Rows below 20 us
are left out of the first four. For each GPU (``--gpu``, all of the data if not given) `general_gpu` predicts:

* one program after another, from a fit to the GPU's other programs;
* all rows but 0, 5, 10 and 20 random ones (seeds 0 to 4) from those, with the other GPUs' times and without;
* data of few programs (``sgemm_variants``, ``hub``) from the programs of ``nvbench`` and ``gpuperf``, of the same GPU
  or of the others;
* of all but ``hub`` and perflex's own measurement kernels on an H100 together, each program on each GPU from other
  programs on other GPUs, by one fit: what the calibration `general_gpu` that comes with perflex knows of a kernel
  (``--calibration`` writes it);
* all rows as that calibration does: data that it was not made of judge it.

Beside it stand in the same run: one factor per device on the same configuration's time on the nearest other GPU
(nearest by the sum of what the logarithms of DRAM bandwidth and single-precision peak differ by); a roofline of the
machine file's peaks; the median of all times; and extremely randomised trees on the same features and rows.
``--method`` names some: perflex, joint, shipped, transfer, factor, roofline, median, trees, trees_elsewhere.

Counts are kept in the store. It prints tables in Markdown; ``--out`` has a line per method and predicted row.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import zlib
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judging import HEADINGS, Method, refusals, row_of, table, write_cases
from real_gpus_parts import streaming
from real_gpus_parts.counting import count
from real_gpus_parts.methods import PREDICTORS, answer, general_calibration
from real_gpus_parts.rows import CONFIGURATIONS, choose, read_rows
from real_gpus_parts.trials import EVERYTHING, SEEDS, data_sets, trials

from perflex import PerflexError, load_model
from perflex.progress import progress_shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from real_gpus_parts.methods import Answer, DataSet
    from real_gpus_parts.rows import MeasuredRow
    from real_gpus_parts.trials import Trial

    from perflex.progress import Progress


class Case(NamedTuple):
    """A row that is predicted: in which study, from what, and which; choices are among rows of one group and seed."""

    study: str
    data: str
    gpu: str
    samples: str
    seed: int | None
    group: str
    program: str
    label: str


# What forked workers take from their parent: it is too large to be sent with each trial.
_TRIALS: list[Trial] = []


def _answer(number: int) -> Answer:
    trial = _TRIALS[number]
    return answer(trial.predictor, trial.data, trial.question)


def answers(
    what: Sequence[Trial], workers: int = 2, progress: Progress | None = None
) -> tuple[list[Method], Mapping[Case, float]]:
    """Return what each predictor with each knowledge said of all cases, and the measured times."""
    _TRIALS[:] = what
    # Here once, not in each worker: it takes long to load.
    import_module("scipy.optimize")
    # One thread each: the processes fill the processors.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    methods: dict[tuple[str, str], Method] = {}
    measured: dict[Case, float] = {}
    with ExitStack() as stack:
        run = map
        if workers > 1:
            run = stack.enter_context(ProcessPoolExecutor(workers, mp_context=get_context("fork"))).map
        for number, found in enumerate(run(_answer, range(len(what)))):
            trial = what[number]
            name = (trial.predictor.name, trial.knows)
            method = methods.setdefault(name, Method(*name))
            for place, row_number in enumerate(trial.question.judged):
                row = trial.data.rows[row_number]
                case = Case(trial.study, row.data, row.gpu, trial.samples, trial.seed, row.case, row.program, row.label)
                measured[case] = row.seconds
                # A time that is not positive and finite is no prediction.
                if not 0 < found.seconds[place] < math.inf:
                    method.refused[case] = found.reason or "not positive and finite"
                    continue
                method.seconds[case] = float(found.seconds[place])
                if found.low is not None and found.high is not None:
                    method.limits[case] = float(found.low[place]), float(found.high[place])
            if progress is not None:
                progress(number + 1, len(what), f"{trial.question.gpu}, {trial.predictor.name}, {trial.study}")
    return list(methods.values()), measured


def counted_sets(
    rows: Sequence[MeasuredRow],
    gpus: Sequence[str] = (),
    model: str = "general_gpu",
    workers: int = 2,
    progress: Progress | None = None,
) -> list[DataSet]:
    made = load_model(model).model()
    chosen, short = choose(rows, gpus)
    values, roofline = count(chosen, tuple(made.input_features()), workers, progress)
    return data_sets(chosen, short, values, roofline, made)


def predictions(
    rows: Sequence[MeasuredRow],
    gpus: Sequence[str] = (),
    names: Sequence[str] = (),
    model: str = "general_gpu",
    draws: int = len(SEEDS),
    workers: int = 2,
    progress: Progress | None = None,
) -> tuple[list[Method], Mapping[Case, float]]:
    """Count and predict, and return what `answers` does.

    Raises
    ------
    PerflexError
        A GPU is not in the data or has no machine file, or there is no such method.
    """
    for name in names:
        if name not in PREDICTORS:
            msg = f"no method is called {name!r}; there are {', '.join(PREDICTORS)}"
            raise PerflexError(msg)
    sets = counted_sets(rows, gpus, model, workers, progress)
    what = [
        trial
        for trial in trials(sets, [PREDICTORS[name] for name in names or PREDICTORS], gpus)
        if trial.seed is None or trial.seed < draws
    ]
    return answers(what, workers, progress)


def report(methods: Sequence[Method], measured: Mapping[Case, float]) -> str:
    text = "# Times of real GPUs, predicted\n"
    for study, data in dict.fromkeys((case.study, case.data) for case in measured):
        own = {case: seconds for case, seconds in measured.items() if (case.study, case.data) == (study, data)}
        text += f"\n## {data}: {study}\n\n{table(('GPU', 'samples', *HEADINGS), _lines(methods, own))}"
        if data == "small_kernels":
            text += _cells(methods, own)
    return text


def _cells(methods: Sequence[Method], measured: Mapping[Case, float]) -> str:
    """Return tables of predicted over measured, geometric means by numbers of elements and work-items."""
    text = ""
    for method in methods:
        for gpu in dict.fromkeys(case.gpu for case in measured):
            own = {case: seconds for case, seconds in measured.items() if case.gpu == gpu and case in method.seconds}
            ratios = {case.label: method.seconds[case] / seconds for case, seconds in own.items()}
            if ratios:
                heads = (f"{method.name}, {gpu}: predicted / measured", *streaming.columns(list(ratios)))
                text += f"\n{table(heads, streaming.means(ratios))}"
    return text


def _lines(methods: Sequence[Method], measured: Mapping[Case, float]) -> Iterator[list[str]]:
    for gpu in ("all", *dict.fromkeys(case.gpu for case in measured)):
        for samples in dict.fromkeys(case.samples for case in measured if gpu in {"all", case.gpu}):
            part = {c: s for c, s in measured.items() if c.samples == samples and gpu in {"all", c.gpu}}
            for method in methods:
                if not part.keys().isdisjoint(method.seconds) or not part.keys().isdisjoint(method.refused):
                    yield [gpu, samples, *row_of(method, part, lambda case: (case.gpu, case.group, case.seed))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--gpu", nargs="*", default=[], help="as in the data")
    parser.add_argument("--sets", default="", help="folders, separated by commas; all that are there if not given")
    parser.add_argument("--method", nargs="*", default=[])
    parser.add_argument("--draws", type=int, default=len(SEEDS), help="of samples; the first seeds")
    parser.add_argument("--configurations", type=int, default=CONFIGURATIONS, help="drawn of each tuning space")
    parser.add_argument("--every", type=int, default=1, help="of nvbench, each N-th configuration, by its label")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--calibration", type=Path, help="write the calibration that comes with perflex, and stop")
    given = parser.parse_args()
    try:
        rows = read_rows(given.data, [name for name in given.sets.split(",") if name], given.configurations)
        # On all GPUs the same ones.
        rows = [row for row in rows if row.data != "nvbench" or zlib.crc32(row.label.encode()) % given.every == 0]
        with progress_shown(True, "predict:") as progress:
            if given.calibration is not None:
                sets = counted_sets(rows, workers=given.workers, progress=progress)
                general_calibration(next(one for one in sets if one.name == EVERYTHING)).save(given.calibration)
                return 0
            methods, measured = predictions(
                rows, given.gpu, given.method, draws=given.draws, workers=given.workers, progress=progress
            )
    except PerflexError as error:
        print(error, file=sys.stderr)
        return 1
    print(report(methods, measured))
    print(refusals(methods))
    if given.out is not None:
        write_cases(given.out, methods, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
