"""``perflex calibrate`` and ``perflex transfer``: a calibration from measurements, tables of times, other devices'."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from perflex.child_process import process_pool
from perflex.cli.arguments import ArgumentError, read_pairs, read_seconds
from perflex.cli.cluster import cluster_named
from perflex.cli.completion import complete_model
from perflex.cli.json_output import as_json as as_plain
from perflex.cli.json_output import picked, print_json
from perflex.cli.kernel_files import load_kernels
from perflex.cli.options import (
    AcceptNoiseOption,
    DeviceOption,
    JsonOption,
    KernelsOption,
    MachineOption,
    NeededMachineOption,
    OnlyOption,
    OutFileOption,
)
from perflex.cli.terminal import Terminal, terminal_of
from perflex.features.target import using_machine
from perflex.file_io import require_writable
from perflex.machines.files import load_machine
from perflex.progress import RunOptions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from perflex.calibration.calibration import Calibration
    from perflex.calibration.times.table import TimesTable
    from perflex.expression.model import Model
    from perflex.fit.table import FeatureTable


def calibrate(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            autocompletion=complete_model,
            help="general (any kernel on this kind of device), the name of a shipped model, or a file.",
        ),
    ],
    *,
    out: OutFileOption,
    device: DeviceOption = "",
    machine: MachineOption = None,
    budget: Annotated[
        str, typer.Option(help="Time for timings, such as 30s: all kernels if it suffices, else those that tell most.")
    ] = "",
    undetermined: Annotated[
        Literal["error", "warn"] | None,
        typer.Option(help="Parameters that no kernel determines: an error, or 0 with a warning; default: the model's."),
    ] = None,
    times: Annotated[
        Path | None,
        typer.Option(
            help="CSV file of kernels and times measured elsewhere; no device is used. See docs/reference/times.md."
        ),
    ] = None,
    kernels: KernelsOption = None,
    only: OnlyOption = None,
    accept_noise: AcceptNoiseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Calibrate a model on a device: measure its kernels, fit its parameters, write both to a file.

    The model 'general' predicts any kernel on the same kind of device.

    With --times nothing is measured: the times come from a table, such as a cluster's log; see docs/reference/times.md.
    """
    from perflex.calibration.acceptance import require_acceptable
    from perflex.calibration.calibrating import calibrate as calibrated
    from perflex.calibration.calibrating import calibrate_ready
    from perflex.calibration.ready import described_model, ready_model, usual_fit
    from perflex.calibration.times.target import machine_for_times
    from perflex.studies.doctor import warn_before_measuring

    terminal = terminal_of(context)
    more: list[str] = []
    if times is None:
        refuse_options(context, "kernels", "only", why="only for tables; name one with --times")
    else:
        refuse_options(context, "budget", why="about measuring, which --times does not; leave one out")
    require_writable(out, regular=True)
    if times is not None:
        table = read_times(terminal, times, kernels or (), only or (), device)
        terminal.remark(f"times: {table}, {len(table)} rows; no device is opened")
        with terminal.warnings_shown(), terminal.progress("calibrate:") as progress, using_machine(machine):
            facts = machine_for_times(table)
            fit = usual_fit(described_model(model, None if facts is None else facts.kind), undetermined)
            found = calibrated(model, times=table, fit=fit, run=RunOptions(progress=progress))
    else:
        budget_s = read_seconds(budget, "--budget") if budget else None
        with terminal.warnings_shown(), using_machine(machine), cluster_named(device) as (cluster, words):
            # Checks the output feature, too; a device on the command line comes before the one in the file.
            ready = ready_model(model, words or None, cluster)
            terminal.remark(f"device: {ready.device}")
            warn_before_measuring(ready.device)
            fit = usual_fit(ready.description, undetermined)
            # A general model has so many kernels that processes of this machine count them; they have nothing to do
            # while kernels are timed. Not forked: drivers and their threads may be at work in this process.
            many = ready.description.general and cluster is None
            counters: AbstractContextManager[Executor | None] = (
                process_pool(importing="perflex.timing.launch.code") if many else nullcontext(cluster)
            )
            with counters as executor, terminal.progress("calibrate:") as progress:
                found = calibrate_ready(ready, budget_s=budget_s, fit=fit, run=RunOptions(executor, progress))
        if ready.scale != 1.0:
            more.append(f"sizes are scaled for a device {ready.scale:.2g} times as fast as the model file's")
    # Outside of what is recorded: a run that is begun again measures anew, and does not go on with disturbed times.
    if not accept_noise:
        require_acceptable(found, str(out))
    found.save(out)
    if as_json:
        print_json(_content(found, out))
        return
    _show(terminal, found, out, more)
    if times is None and ready.description.general and not terminal.quiet:
        # A machine that comes with perflex is found again by its name in the calibration.
        file = f" --machine {machine}" if machine and machine.endswith((".yaml", ".yml")) else ""
        words = f"perflex predict {out} KERNEL.py:function n=1024 --confidence 0.95{file}"
        terminal.show(f"next: {words} (or perflex rank, for variants)")


def refuse_options(context: typer.Context, *names: str, why: str) -> None:
    """Refuse options that are given."""
    if given := [f"--{name}" for name in names if context.params[name]]:
        raise ArgumentError(f"{', '.join(given)}: {why}")


def read_times(
    terminal: Terminal, path: Path, kernels: Sequence[Path], only: Sequence[str], device: str = ""
) -> TimesTable:
    """Return a table of times: kernels from Python and YAML files, rows that ``COLUMN=VALUE[,VALUE]`` words choose."""
    from perflex.calibration.times.csv_file import load_times

    chosen = {
        name: [value.strip() for value in values.split(",")]
        for name, values in read_pairs(only, "--only", "role=cal").items()
    }
    made = {name: kernel for place in kernels for name, kernel in load_kernels(str(place)).items()}
    with terminal.warnings_shown():
        return load_times(path, made, device=device, only=chosen)


def transfer(
    context: typer.Context,
    sources: Annotated[list[Path], typer.Argument(help="Files or names of one model's calibrations on other devices.")],
    *,
    machine: NeededMachineOption,
    out: OutFileOption,
    samples: Annotated[
        Path | None, typer.Option(help="CSV table of times of the device, as for 'calibrate --times'.")
    ] = None,
    kernels: KernelsOption = None,
    only: OnlyOption = None,
    device: DeviceOption = "",
    suggest: Annotated[
        int | None,
        typer.Option(min=1, help="Print this many of the candidates that are the most informative next samples."),
    ] = None,
    candidates: Annotated[
        Path | None, typer.Option(help="CSV table of kernels to choose from; its times are ignored.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Calibrate a device from calibrations of other devices and few or no samples of its own."""
    from perflex.calibration.calibration import Calibration
    from perflex.calibration.gathering import table_of_times
    from perflex.calibration.transfer.suggest import suggest_samples
    from perflex.calibration.transfer.transferring import transfer as transferred

    terminal = terminal_of(context)
    if (suggest is None) != (candidates is None):
        raise ArgumentError(
            "--suggest and --candidates go together: how many samples, and the table to choose them from"
        )
    if samples is None:
        refuse_options(
            context, "only", "device", why="only for a table of times; name one with --samples, or leave it out"
        )
    require_writable(out, regular=True)
    target = load_machine(machine)
    loaded = [Calibration.load(path) for path in sources]

    def read(model: Model, path: Path, only: Sequence[str] = (), device: str = "") -> FeatureTable:
        times = read_times(terminal, path, kernels or (), only, device)
        with terminal.progress("count:") as progress, using_machine(machine):
            return table_of_times(model, times, run=RunOptions(progress=progress))

    with terminal.warnings_shown():
        rows = None if samples is None else read(loaded[0].model, samples, only or (), device)
        found = transferred(loaded, rows, machine=target)
        found.save(out)
        chosen: Sequence[str] = ()
        if suggest is not None and candidates is not None:
            chosen = suggest_samples(found, read(found.model, candidates), suggest)
    if as_json:
        carried = picked(found.transferred, "sources", "samples", "weight")
        print_json({**_content(found, out), **carried, "take_next": chosen})
        return
    _show(terminal, found, out)
    terminal.show(*(f"next sample: {label}" for label in chosen))


def _show(terminal: Terminal, found: Calibration, out: Path, more: Sequence[str] = ()) -> None:
    from perflex.calibration.account import account

    if not terminal.quiet:
        terminal.show_result(found.fit.parameter_table(intervals=False))
        terminal.show(*account(found), *more)
    terminal.show_paths(out)


def _content(calibration: Calibration, out: Path) -> dict[str, Any]:
    """Return what ``--json`` says of a calibration that was written to a file."""
    fit = calibration.fit
    return {
        "path": out,
        **picked(calibration, "device", "machine", "date", "noise_floor", "dropped"),
        "expression": calibration.model.expression,
        "parameters": [{**as_plain(one), "flags": one.flags} for one in fit.parameters],
        **picked(fit, "kernels", "relative_errors", "geometric_mean_error", "residual_norm", "condition_number"),
        **picked(fit, "degrees_of_freedom", "undetermined", "no_overlap"),
        "valid": fit.status.valid,
    }
