"""``perflex prune-table``: the configurations in a tuner's file that are worth being measured."""

from __future__ import annotations

import math
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.columns import Column
from perflex.cli.completion import complete_description
from perflex.cli.json_output import print_json
from perflex.cli.options import JsonOption, MachineOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.prune import (  # typer reads the annotations
    SHOWN,
    KeepOption,
    OutOption,
    SeedOption,
    read_keep,
)
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.cli.terminal import Terminal
    from perflex.search.pruning.described_pruning import DescribedPruning


def prune_table(  # noqa: PLR0913 - one parameter per option
    context: typer.Context,
    table: Annotated[
        Path, typer.Argument(help="Measured configurations: Kernel Tuner's cache, a T4 file, or a table (CSV).")
    ],
    description: Annotated[
        str,
        typer.Argument(autocompletion=complete_description, help="Description of the kernel: a name, or a YAML file."),
    ],
    *,
    keep: KeepOption = "10%",
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples", min=1, help="Use this many rows of TABLE as measurements, and the others to judge the result."
        ),
    ] = None,
    analytic: Annotated[
        bool, typer.Option("--analytic", help="Use the analytic model only, without a learned correction.")
    ] = False,
    device: Annotated[str | None, typer.Option("--device", help="Name of the device; by default TABLE's.")] = None,
    seed: SeedOption = 0,
    machine: MachineOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the few configurations of a kernel that are worth measuring, from a tuner's measurements of some.

    The kernel need not be a loopy kernel: a description states its tunables, and formulas of its features.
    """
    import numpy as np

    from perflex.cli.arguments import require_writable_folder
    from perflex.machines.lookup import load_machine
    from perflex.search.described.hybrid import HybridPredictor
    from perflex.search.described.space_file import load_described_space
    from perflex.search.pruning.promise import Promise
    from perflex.search.pruning.pruning import prune as pruned
    from perflex.search.pruning.report import draw_times

    terminal, wanted = terminal_of(context), read_keep(keep)
    if out is not None:
        require_writable_folder(out)
    facts = load_machine(machine) if machine is not None else None
    with terminal.warnings_shown():
        space = load_described_space(table, description, device=device, machine=facts)
        # Without samples all of the file is the batch, and what it does not hold is what there is to choose from.
        batch = None if samples is None else space.sample(samples, seed)
        whole = space.complete() if samples is None else space
        pruning = pruned(
            whole, keep=wanted, measured=batch, predictor=HybridPredictor(whole, seed, learned=not analytic)
        )
    promised = isinstance(wanted, Promise)
    if out is not None:
        pruning.to_csv(out / "pruning.csv")
        title = f"{len(pruning.kept)} of {len(whole)} configurations of {whole.description.name} kept"
        kept = np.isin(np.arange(len(whole)), pruning.decision.kept)
        draw_times(out / "pruning.png", pruning.prediction.predicted, whole.known, kept, title)
    if as_json:
        print_json(_content(pruning, promised=promised))
    else:
        _show(terminal, pruning, promised=promised)


def _content(pruning: DescribedPruning, *, promised: bool) -> dict[str, Any]:
    decision = pruning.decision
    return {
        "description": pruning.candidates.description.name,
        "configurations": len(pruning.predicted),
        "batch": int(pruning.batch.sum()),
        "kept": len(pruning.kept),
        "explanation": decision.explanation if promised else None,
        "met": decision.met if promised else None,
        "covered": pruning.keeps_near_best,
        "errors": pruning.errors,
        "excluded": dict(pruning.excluded),
        "weights": dict(pruning.prediction.weights),
        "parameters": pruning.parameters,
        "table": [_in_seconds(row) for row in pruning.table()],
    }


def _in_seconds(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its times, which tuners' files have in milliseconds, in seconds."""
    return {
        (f"{name.removesuffix('_ms')}_s" if name.endswith("_ms") else name): (
            value / 1e3 if name.endswith("_ms") else value
        )
        for name, value in row.items()
    }


def _show(terminal: Terminal, pruning: DescribedPruning, *, promised: bool) -> None:
    rows = pruning.table()[:SHOWN]
    tunables = list(pruning.candidates.description.tunables)
    varied = [name for name in tunables if len({row[name] for row in rows}) > 1]
    columns = [Column("predicted"), Column("measured"), *(Column(name, spare=3) for name in varied)]
    columns = [Column(""), *columns, Column("analytic", spare=1), Column("dominates", left=True, spare=2)]
    cells = []
    for rank, row in enumerate(rows, start=1):
        times = [_ms(row[name]) for name in ("predicted_ms", "analytic_ms", "measured_ms")]
        dominates = f"{row['dominates']} {100 * row['share']:.0f} %"
        settings = [f"{row[name]:g}" for name in varied]
        cells.append((str(rank), times[0], times[2], *settings, times[1], dominates))
    terminal.show_table(columns, cells)
    if alike := ", ".join(f"{name} {rows[0][name]:g}" for name in tunables if rows and name not in varied):
        terminal.show(f"the same in all rows: {alike}")
    for line in _lines(pruning, {str(row["dominates"]) for row in rows}, promised=promised):
        terminal.show(line)


def _lines(pruning: DescribedPruning, dominating: set[str], *, promised: bool) -> list[str]:
    from perflex.fit.result import describe_errors

    family, kept = pruning.candidates.description, len(pruning.kept)
    measured = int(pruning.batch.sum())
    lines = [f"{kept} of {len(pruning.predicted)} configurations of {family.name} kept, {measured} measured"]
    if kept > SHOWN:
        lines.append(f"the first {SHOWN} are shown; --out writes all")
    if promised:
        lines.append(pruning.decision.explanation)
    lines += [f"{name}: {family.parameters[name].meaning}" for name in sorted(dominating)]
    lines += [f"left out: {cause} ({count})" for cause, count in pruning.excluded.items()]
    lines += [f"relative error, {name}: {describe_errors(errors)}" for name, errors in pruning.relative_errors.items()]
    near = pruning.keeps_near_best
    if near is not None:
        within = f"{100 * pruning.allowed_loss:.3g} %"
        lines.append(f"a configuration within {within} of the best known is {'' if near else 'not '}kept")
    return lines


# Milliseconds already, as in tuners' files; prunings of loopy kernels have seconds.
def _ms(time: float) -> str:
    return "" if math.isnan(time) else f"{time:.4g} ms"
