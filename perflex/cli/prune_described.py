"""``perflex prune --description``: the configurations of a kernel from elsewhere that are worth being measured."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from perflex.cli.terminal import Terminal
    from perflex.search.described.prune import DescribedPruning
    from perflex.search.pruning.keep import Keep

__all__ = ["prune_description"]

_SHOWN = 20


def prune_description(  # noqa: PLR0913 - what the command was given
    session: Terminal,
    description: str,
    space: Path,
    keep: Keep,
    *,
    samples: int | None,
    learned: bool,
    device: str | None,
    machine: str | None,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Prune the configurations of a described kernel, and show or write what is kept."""
    from perflex.machines import load_machine
    from perflex.search.described.prune import prune_described
    from perflex.search.pruning.report import draw_times

    facts = load_machine(machine) if machine is not None else None
    with session.warnings_shown():
        pruning = prune_described(
            space, description, samples=samples, keep=keep, device=device, machine=facts, learned=learned, seed=seed
        )
    if out is not None:
        pruning.to_csv(out / "pruning.csv")
        title = f"{len(pruning.kept)} of {len(pruning.predicted)} configurations of {pruning.description.name} kept"
        kept = _is_kept(pruning)
        draw_times(out / "pruning.png", pruning.predicted, pruning.known, kept, title)
    if as_json:
        typer.echo(json.dumps(_content(pruning), indent=2))
    else:
        _show(session, pruning)


def _is_kept(pruning: DescribedPruning) -> Any:
    import numpy as np

    return np.isin(np.arange(len(pruning.predicted)), pruning.kept)


def _content(pruning: DescribedPruning) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    decision = pruning.decision
    return {
        "description": pruning.description.name,
        "configurations": len(pruning.predicted),
        "batch": int((~_missing(pruning.measured)).sum()),
        "kept": len(pruning.kept),
        "explanation": decision.explanation if decision is not None else None,
        "met": decision.met if decision is not None else None,
        "covered": pruning.covered,
        "errors": pruning.errors,
        "excluded": dict(pruning.excluded),
        "weights": dict(pruning.weights),
        "parameters": dict(pruning.parameters),
        "table": [{name: plain(value) for name, value in row.items()} for row in pruning.table(len(pruning.kept))],
    }


def _missing(column: Any) -> Any:
    import numpy as np

    return np.isnan(column)


def _show(session: Terminal, pruning: DescribedPruning) -> None:
    from rich.table import Table

    tunables = list(pruning.description.tunables)
    table = Table("", *tunables)
    for head in ("predicted", "analytic", "dominates", "measured"):
        table.add_column(head, no_wrap=True)
    for rank, row in enumerate(pruning.table(_SHOWN), start=1):
        times = [_ms(row[name]) for name in ("predicted_ms", "analytic_ms", "measured_ms")]
        dominates = f"{row['dominates']} {100 * float(row['share']):.0f} %"
        table.add_row(str(rank), *(f"{row[name]:g}" for name in tunables), *times[:2], dominates, times[2])
    session.output.print(table)
    for line in _lines(pruning):
        session.output.print(line, markup=False, soft_wrap=True)


def _lines(pruning: DescribedPruning) -> list[str]:
    lines = [f"{pruning!r}".strip("<>")]
    if len(pruning.kept) > _SHOWN:
        lines.append(f"the first {_SHOWN} are shown; --out writes all")
    if pruning.decision is not None:
        lines.append(pruning.decision.explanation)
    shown = {str(row["dominates"]) for row in pruning.table(_SHOWN)}
    lines += [f"{name}: {pruning.description.parameters[name].meaning}" for name in sorted(shown)]
    lines += [f"left out: {cause} ({count})" for cause, count in pruning.excluded.items()]
    lines += [f"geometric mean error, {name}: {100 * error:.3g} %" for name, error in pruning.errors.items()]
    if pruning.covered is not None:
        lines.append(f"a configuration within 5 % of the best known is {'' if pruning.covered else 'not '}kept")
    return lines


def _ms(time: float | str) -> str:
    return "" if isinstance(time, float) and math.isnan(time) else f"{time:.4g} ms"
