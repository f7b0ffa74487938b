"""The whole benchmark: reads, counts, tries and scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .counting import Counting, count
from .experiments import SEEDS, answers, trials, with_other_programs
from .methods import methods_named
from .reading import choose, machines_of
from .scoring import scores, write_csv
from .table import data_sets
from .tables import report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from perflex import Model

    from .reading import Chosen
    from .row import MeasuredRow

# So many labels of rows stand after a reason; the rest is counted.
_SHOWN = 5
_BY_HOST = "f_host_launch"


@dataclass(frozen=True)
class Options:
    """What to run and how.

    Attributes
    ----------
    model
        Whose features are counted and whose parameters are fitted.
    gpus, methods
        To judge, and by name; all if empty.
    intervals
        Whether the model fitted to the GPU alone is to say how far off measurements may lie, which takes long.
    most
        Rows of each program and GPU; 0 for all.
    draws
        Of samples: those of the first seeds.
    machines, cache
        Folder of machine files, and file of counts; None for none.
    workers, limit_s
        Processes, and seconds after which counting a row is given up.
    host_cost
        Whether launches that were timed with host code have a cost of their own, where the data have such rows.
    programs_alike
        Whether each program counts as much as any other in fits.
    progress
        Called with (done, total, what) as work proceeds.
    """

    model: Model
    gpus: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    intervals: bool = False
    most: int = 0
    draws: int = len(SEEDS)
    machines: Path | None = None
    cache: Path | None = None
    workers: int = 2
    limit_s: float = 60.0
    progress: Callable[[int, int, str], None] | None = None
    host_cost: bool = False
    programs_alike: bool = False


def run(rows: Sequence[MeasuredRow], options: Options, out: Path) -> str:
    """Write the CSV, and return the tables in Markdown.

    Raises
    ------
    PerflexError
        A GPU is not in the data or has no machine file, or there is no such method.
    """
    methods = methods_named(options.methods, intervals=options.intervals)
    chosen = choose(rows, options.gpus, options.most)
    model = options.model
    if options.host_cost and any(row.host_code for row in chosen.rows):
        model = with_host_code(model)
    machines = machines_of(rows, options.machines)
    how = Counting(
        tuple(model.input_features()),
        machines,
        options.cache,
        options.workers,
        options.limit_s,
        options.progress,
    )
    counted = count(chosen.rows, how)
    sets = data_sets(chosen.rows, chosen.short, counted, model, machines, options.machines)
    sets = [replace(data, programs_alike=options.programs_alike) for data in sets]
    sets += with_other_programs(sets)
    wanted = trials(sets, methods, options.gpus)
    what = [trial for trial in wanted if trial.seed is None or trial.seed < options.draws]
    found = scores(sets, what, answers(sets, what, options.workers, options.progress))
    write_csv(out, found)
    return report(found, _notes(chosen, counted.refused, counted.work_refused))


def with_host_code(model: Model) -> Model:
    """Return a model with a cost of launches that were timed with host code, `p_host`, unless it has that feature.

    Sets without such rows leave the cost undetermined, which makes it zero.
    """
    if _BY_HOST in model.input_features():
        return model
    return replace(model, expression=f"p_host * {_BY_HOST} + {model.expression}")


def _notes(chosen: Chosen, refused: dict[int, str], work_refused: dict[int, str]) -> list[str]:
    """Return a line for each thing that was left out."""
    lines = []
    if chosen.short:
        lines.append(f"{len(chosen.short)} rows are shorter than 20 us")
    if chosen.repeats:
        lines.append(f"{chosen.repeats} rows repeat another one")
    if chosen.thinned:
        lines.append(f"{chosen.thinned} rows of programs with more than are asked for (--most)")
    for title, reasons in (("refused", refused), ("no roofline", work_refused)):
        groups: dict[tuple[str, str, str], list[str]] = {}
        for number, reason in reasons.items():
            row = chosen.rows[number]
            groups.setdefault((row.data, row.program, reason), []).append(f"{row.gpu} {row.label}")
        for (data, program, reason), labels in groups.items():
            more = f" and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else ""
            lines.append(f"{title}: {data}, {program}: {reason}: {', '.join(labels[:_SHOWN])}{more}")
    return lines
