"""``perflex prune-table``: the few configurations worth measuring, of a tuner's measurements of some."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.completion import complete_description
from perflex.cli.json_output import print_json
from perflex.cli.options import JsonOption, MachineOption, OutFolderOption
from perflex.cli.prune import SHOWN, KeepOption, SeedOption, ms, read_keep
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from perflex.cli.terminal import Terminal
    from perflex.search.pruning import DescribedPruning


def prune_table(
    context: typer.Context,
    table: Annotated[
        Path, typer.Argument(help="Measured configurations: what Kernel Tuner, KTT or CLBlast wrote, or a table (CSV).")
    ],
    description: Annotated[
        str,
        typer.Argument(autocompletion=complete_description, help="Description of the kernel: a name, or a YAML file."),
    ],
    *,
    keep: KeepOption = "10%",
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="Use this many rows of TABLE as measurements, and the others to judge the result."),
    ] = None,
    device: Annotated[str, typer.Option(help="Name of the device; by default TABLE's.")] = "",
    seed: SeedOption = 0,
    machine: MachineOption = None,
    out: OutFolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the few configurations of a kernel that are worth measuring, from a tuner's measurements of some.

    The kernel need not be a loopy kernel: a description states its tunables, and formulas of its features.
    """
    import numpy as np

    from perflex.cli.arguments import require_writable_folder
    from perflex.machines.files import load_machine
    from perflex.search.described.space_file import load_described_space
    from perflex.search.promise import Promise
    from perflex.search.pruning import prune as pruned
    from perflex.search.pruning_picture import draw_times

    terminal, wanted = terminal_of(context), read_keep(keep)
    if out is not None:
        require_writable_folder(out, context)
    facts = load_machine(machine) if machine is not None else None
    with terminal.warnings_shown():
        space = load_described_space(table, description, device=device or None, machine=facts)
        # Without samples all of the file is the batch, and what it does not hold is what there is to choose from.
        batch = None if samples is None else space.sample(samples, seed)
        whole = space.complete() if samples is None else space
        pruning = pruned(whole, keep=wanted, measured=batch)
    promised = isinstance(wanted, Promise)
    if out is not None:
        pruning.to_csv(out / "pruning.csv")
        title = f"{len(pruning.kept)} of {len(whole)} configurations of {whole.description.name} kept"
        kept = np.isin(np.arange(len(whole)), pruning.decision.kept)
        draw_times(out / "pruning.png", 1e3 * pruning.predicted, 1e3 * whole.known, kept, title)
    if as_json:
        print_json(_table_content(pruning, promised=promised))
    else:
        _show_configurations(terminal, pruning, promised=promised)


def _table_content(pruning: DescribedPruning, *, promised: bool) -> dict[str, Any]:
    decision = pruning.decision
    return {
        "description": pruning.candidates.description.name,
        "facts": pruning.candidates.facts,
        "configurations": len(pruning.predicted),
        "batch": int(pruning.batch.sum()),
        "kept": len(pruning.kept),
        "explanation": decision.explanation if promised else None,
        "met": decision.met if promised else None,
        "covered": pruning.keeps_near_best,
        "errors": pruning.errors,
        "excluded": dict(pruning.excluded),
        "parameters": pruning.parameters,
        "table": pruning.table(),
    }


def _show_configurations(terminal: Terminal, pruning: DescribedPruning, *, promised: bool) -> None:
    from perflex.fit.result import describe_errors

    family, rows = pruning.candidates.description, pruning.table()[:SHOWN]
    names = pruning.candidates.told_apart_by
    varied = [name for name in names if len({row[name] for row in rows}) > 1]
    cells = [
        (
            str(rank),
            *(ms(row[name]) for name in ("predicted_s", "measured_s")),
            *(f"{row[name]:g}" for name in varied),
            ms(row["analytic_s"]),
            f"{row['dominates']} {100 * row['share']:.0f} %",
        )
        for rank, row in enumerate(rows, start=1)
    ]
    terminal.show_table(["", "predicted", "measured", *varied, "analytic", "dominates"], cells)
    lines = []
    if alike := ", ".join(f"{name} {rows[0][name]:g}" for name in names if rows and name not in varied):
        lines.append(f"the same in all rows: {alike}")
    kept, measured = len(pruning.kept), int(pruning.batch.sum())
    lines.append(f"{kept} of {len(pruning.predicted)} configurations of {family.name} kept, {measured} measured")
    lines.append(pruning.candidates.facts)
    if kept > SHOWN:
        lines.append(f"the first {SHOWN} are shown; --out writes all")
    if promised:
        lines.append(pruning.decision.explanation)
    lines += [f"{name}: {family.parameters[name].meaning}" for name in sorted({str(row["dominates"]) for row in rows})]
    lines += [f"left out: {cause} ({count})" for cause, count in pruning.excluded.items()]
    lines += [f"relative error, {name}: {describe_errors(errors)}" for name, errors in pruning.relative_errors.items()]
    near = pruning.keeps_near_best
    if near is not None:
        within = f"{100 * pruning.allowed_loss:.3g} %"
        lines.append(f"a configuration within {within} of the best known is {'' if near else 'not '}kept")
    terminal.show(*lines)
