"""``perflex prune-table``: the few configurations worth measuring, of a tuner's measurements of some."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.completion import complete_description
from perflex.cli.json_output import print_json
from perflex.cli.options import JsonOption, MachineOption, OutFolderOption
from perflex.cli.rank import SHOWN, KeepOption, SeedOption, read_keep
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from perflex.cli.terminal import Terminal
    from perflex.search.described.pruning import DescribedPruning


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
    from perflex.cli.arguments import require_writable_folder
    from perflex.machines.files import load_machine
    from perflex.search.described.pruning import prune_described
    from perflex.search.described.space_file import load_described_space
    from perflex.search.promise import Promise

    terminal, wanted = terminal_of(context), read_keep(keep)
    if out is not None:
        require_writable_folder(out, context)
    facts = load_machine(machine) if machine is not None else None
    with terminal.warnings_shown():
        space = load_described_space(table, description, device=device or None, machine=facts)
        # Without samples all of the file is the batch, and what it does not hold is what there is to choose from.
        batch = None if samples is None else space.sample(samples, seed)
        pruning = prune_described(space.complete() if samples is None else space, keep=wanted, measured=batch)
    promised = isinstance(wanted, Promise)
    if out is not None:
        pruning.to_csv(out / "pruning.csv")
        pruning.draw(out / "pruning.png")
    if as_json:
        print_json(_content(pruning, promised=promised))
    else:
        _show(terminal, pruning, promised=promised)


def _content(pruning: DescribedPruning, *, promised: bool) -> dict[str, Any]:
    decision = pruning.decision
    return {
        "description": pruning.space.description.name,
        "facts": pruning.space.facts,
        "configurations": len(pruning.predicted),
        "batch": int(pruning.batch.sum()),
        "kept": len(decision.kept),
        "explanation": decision.explanation if promised else None,
        "met": decision.met if promised else None,
        "covered": pruning.keeps_near_best,
        "errors": pruning.errors,
        "excluded": dict(pruning.space.excluded),
        "parameters": pruning.parameters,
        "table": pruning.table().records(),
    }


def _show(terminal: Terminal, pruning: DescribedPruning, *, promised: bool) -> None:
    from perflex.fit.result import describe_errors

    table, space = pruning.table(), pruning.space
    terminal.show_result(table, most=SHOWN)
    names, rows = space.told_apart_by, table.records()
    lines = []
    if alike := [name for name in names if len({row[name] for row in rows}) == 1]:
        lines.append(f"the same in all rows: {', '.join(f'{name} {rows[0][name]:g}' for name in alike)}")
    measured, family = int(pruning.batch.sum()), space.description
    lines.append(f"{len(rows)} of {len(pruning.predicted)} configurations of {family.name} kept, {measured} measured")
    lines.append(space.facts)
    if promised:
        lines.append(pruning.decision.explanation)
    shown = sorted({row["dominates"] for row in rows[:SHOWN]})
    lines += [f"{name}: {family.parameters[name].meaning}" for name in shown]
    lines += [f"left out: {cause} ({count})" for cause, count in space.excluded.items()]
    lines += [f"relative error, {name}: {describe_errors(errors)}" for name, errors in pruning.relative_errors.items()]
    near = pruning.keeps_near_best
    if near is not None:
        within = f"{100 * pruning.allowed_loss:.3g} %"
        lines.append(f"a configuration within {within} of the best known is {'' if near else 'not '}kept")
    terminal.show(*lines)
