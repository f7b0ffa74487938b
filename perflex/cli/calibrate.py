"""``perflex calibrate`` and ``perflex transfer``: a calibration from measurements, tables of times, other devices'."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from perflex.child_process import process_pool
from perflex.cli.completion import complete_model
from perflex.cli.json_output import as_json as as_plain
from perflex.cli.json_output import picked, print_json
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
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor

    from perflex.calibration.calibration import Calibration
    from perflex.calibration.ready import ReadyModel
    from perflex.calibration.times.table import TimesTable
    from perflex.cli.terminal import Terminal
    from perflex.expression.model import Model
    from perflex.fit.options import FitOptions
    from perflex.fit.table import FeatureTable

# Options that say what a table's rows are, and those that say how a device measures.
_OF_TIMES = ("kernels", "only")
_OF_DEVICES = ("budget", "dask")


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
    dask: Annotated[
        str, typer.Option(help="Count and time on a Dask cluster: its scheduler's address, tcp://HOST:PORT.")
    ] = "",
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
    from perflex.calibration.calibrating import calibrate as run
    from perflex.calibration.ready import described_model, ready_model, usual_fit
    from perflex.calibration.times.target import machine_for_times
    from perflex.cli.arguments import read_seconds, require_writable_file
    from perflex.devices.device import identity
    from perflex.features.target import using_machine
    from perflex.progress import RunOptions
    from perflex.store.resume import recording
    from perflex.studies.doctor import warn_before_measuring

    terminal = terminal_of(context)
    _require_with_times(context, times)
    require_writable_file(out, regular=True)
    scale = 1.0
    if times is not None:
        table = read_times(terminal, times, kernels or (), only or (), device)
        terminal.remarks.print(f"times: {table}, {len(table)} rows; no device is opened", markup=False)
        with terminal.warnings_shown(), terminal.progress("calibrate:") as progress, using_machine(machine):
            facts = machine_for_times(table)
            usual = usual_fit(described_model(model, None if facts is None else facts.kind))
            calibration = run(model, times=table, fit=_fit(usual, undetermined), run=RunOptions(progress=progress))
    else:
        budget_s = read_seconds(budget, "--budget") if budget else None
        with terminal.warnings_shown(), using_machine(machine), _cluster(dask) as cluster:
            # Checks the output feature, too; a device on the command line comes before the one in the file.
            ready = ready_model(model, device or None, cluster)
            terminal.remarks.print(f"device: {ready.device}", markup=False)
            warn_before_measuring(None if dask else ready.device)  # its workers measure elsewhere
            work = [ready.description.name, ready.model.expression]
            # The sizes come from a measurement, too, which belongs to the run: going on, it has to find the same
            # kernels.
            with recording(identity(ready.device), work):
                scale = ready.scale()
                with _counting(cluster, ready) as executor, terminal.progress("calibrate:") as progress:
                    calibration = run(
                        ready.model,
                        ready.kernels(scale),
                        device=ready.device,
                        budget_s=budget_s,
                        timing=ready.timing,
                        fit=_fit(usual_fit(ready.description), undetermined),
                        run=RunOptions(executor, cluster, progress),
                    )
    # Outside of what is recorded: a run that is begun again measures anew, and does not go on with disturbed times.
    if not accept_noise:
        require_acceptable(calibration, str(out))
    calibration.save(out)
    if as_json:
        print_json(_content(calibration, out))
        return
    if not terminal.quiet:
        terminal.show_result(calibration.fit.parameter_table(intervals=False))
        terminal.show(*_remarks(calibration, scale))
    terminal.show_paths(out)
    if times is None and ready.description.general and not terminal.quiet:
        # A machine that comes with perflex is found again by its name in the calibration.
        file = f" --machine {machine}" if machine and machine.endswith((".yaml", ".yml")) else ""
        words = f"perflex predict {out} KERNEL.py:function n=1024 --confidence 0.95{file}"
        terminal.show(f"next: {words} (or perflex rank, for variants)")


def _fit(usual: FitOptions, undetermined: Literal["error", "warn"] | None) -> FitOptions:
    return usual if undetermined is None else replace(usual, on_undetermined=undetermined)


def _require_with_times(context: typer.Context, times: Path | None) -> None:
    """Refuse options that do not go with the given or missing option ``--times``."""
    from perflex.cli.arguments import ArgumentError

    given = [f"--{name}" for name in (_OF_TIMES if times is None else _OF_DEVICES) if context.params[name]]
    if given:
        why = "only for tables; name one with --times" if times is None else "about measuring, which --times does not"
        msg = f"{', '.join(given)}: {why}{'' if times is None else '; leave one out'}"
        raise ArgumentError(msg)


def read_times(
    terminal: Terminal, path: Path, kernels: Sequence[Path], only: Sequence[str], device: str = ""
) -> TimesTable:
    """Return a table of times: kernels from Python and YAML files, rows that ``COLUMN=VALUE[,VALUE]`` words choose."""
    from perflex.calibration.times.csv_file import load_times
    from perflex.cli.arguments import read_pairs
    from perflex.cli.kernel_files import load_kernels

    chosen = {
        name: [value.strip() for value in values.split(",")]
        for name, values in read_pairs(only, "--only", "role=cal").items()
    }
    made: dict[str, Any] = {}
    for place in kernels:
        made |= load_kernels(str(place))
    with terminal.warnings_shown():
        return load_times(path, made, device=device, only=chosen)


@contextmanager
def _cluster(address: str) -> Iterator[Executor | None]:
    """Give the Dask cluster at an address for the block, None without one."""
    if not address:
        yield None
        return
    from perflex.timing.executors.dask import dask_executor

    with dask_executor(address) as cluster:
        yield cluster


@contextmanager
def _counting(cluster: Executor | None, ready: ReadyModel) -> Iterator[Executor | None]:
    """Give where kernels are counted and their code is generated for the block: a cluster if there is one.

    A general model has so many kernels that processes of this machine count them; they have nothing to do while kernels
    are timed.
    """
    if cluster is None and ready.description.general:
        # Not forked: drivers and their threads may be at work in this process.
        with process_pool() as pool:
            yield pool
    else:
        yield cluster


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
    from perflex.calibration.transfer.transferring import transfer as run
    from perflex.cli.arguments import ArgumentError, require_writable_file
    from perflex.features.target import using_machine
    from perflex.machines.files import load_machine
    from perflex.progress import RunOptions

    terminal = terminal_of(context)
    if (suggest is None) != (candidates is None):
        msg = "--suggest and --candidates go together: how many samples, and the table to choose them from"
        raise ArgumentError(msg)
    unused = [f"--{name}" for name in ("only", "device") if context.params[name] and samples is None]
    if unused:
        msg = f"{', '.join(unused)}: only for a table of times; name one with --samples, or leave it out"
        raise ArgumentError(msg)
    require_writable_file(out, regular=True)
    target = load_machine(machine)
    loaded = [Calibration.load(path) for path in sources]

    def read(model: Model, path: Path, only: Sequence[str] = (), device: str = "") -> FeatureTable:
        times = read_times(terminal, path, kernels or (), only, device)
        with terminal.progress("count:") as progress, using_machine(machine):
            return table_of_times(model, times, run=RunOptions(progress=progress))

    with terminal.warnings_shown():
        rows = None if samples is None else read(loaded[0].model, samples, only or (), device)
        found = run(loaded, rows, machine=target)
        found.save(out)
        chosen: Sequence[str] = ()
        if suggest is not None and candidates is not None:
            chosen = suggest_samples(found, read(found.model, candidates), suggest)
    if as_json:
        print_json({**_content(found, out), **_carried(found), "take_next": chosen})
        return
    _show(terminal, found, out)
    for label in chosen:
        terminal.show(f"next sample: {label}")


def _carried(found: Calibration) -> dict[str, Any]:
    carried = found.transferred
    return {} if carried is None else picked(carried, "sources", "samples", "weight")


def _show(terminal: Terminal, found: Calibration, out: Path) -> None:
    carried = found.transferred
    if not terminal.quiet and carried is not None:
        terminal.show_result(found.fit.parameter_table(intervals=False))
        lines = [f"transferred from {len(carried.sources)} devices: {', '.join(carried.sources)}"]
        timed = f"{len(carried.kernels)} kernels of {len(carried.programs)} programs have been timed on them"
        lines.append(f"{carried.samples} samples of this device; {timed}")
        if carried.weight < 1 and any(term.log_time is not None for term in carried.kernels.values()):
            share = f"{100 * (1 - carried.weight):.0f} %"
            lines.append(
                f"for kernels timed there, {share} of the prediction is that time, scaled by one factor per device"
            )
        terminal.show(*lines)
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


def noise_floor_lines(calibration: Calibration) -> list[str]:
    """Return the line that tells the noise floor and what it is; none where it is not known."""
    from perflex.calibration.acceptance import median_repeatability

    if calibration.noise_floor is None:
        return []
    meaning = "by how much a kernel's time differs between measurements"
    if median_repeatability(calibration.table) is None:
        meaning = "median spread of single timings; there are too few to know the repeatability"
    return [f"noise floor: {100 * calibration.noise_floor:.1f} % ({meaning})"]


def _remarks(calibration: Calibration, scale: float) -> list[str]:
    from perflex.fit.result import describe_errors

    fit = calibration.fit
    overall = f"relative error in the fit: {describe_errors(fit.relative_errors)}"
    lines = [f"{len(fit.kernels)} measurement kernels, {overall}; residual {fit.residual_norm:.3g}"]
    if fit.no_overlap:
        lines.append(f"no overlap was found: all costs are added ({', '.join(fit.no_overlap)} = 0)")
    lines += [*_spending(calibration), *_timing(calibration), *noise_floor_lines(calibration)]
    if scale != 1.0:
        lines.append(f"sizes are scaled for a device {scale:.2g} times as fast as the model file's")
    return lines + [f"left out: {label}: {reason}" for label, reason in calibration.dropped]


def _timing(calibration: Calibration) -> list[str]:
    """Return what there is to say about how measuring went."""
    from perflex.calibration.acceptance import disturbance_of, kernels_timed

    timed, lines = calibration.timing, []
    if timed is not None:
        if timed.samples_resumed:
            lines.append(f"{timed.samples_resumed} samples are from a run of this calibration that was cut short")
        kernels, precision = len(calibration.fit.kernels), 100 * calibration.options["precision"]
        lines.append(f"median known to {precision:g} % for {timed.kernels_precise} of {kernels} kernels")
    disturbed, samples, used = disturbance_of(calibration)
    if disturbed:
        lines.append(
            f"disturbed (by other work on the machine, or a lowered clock): {disturbed} of {samples} samples "
            f"({100 * disturbed / samples:.0f} %), not used where there are enough others"
        )
    if used:
        lines.append(f"kernels timed with disturbed samples for lack of others: {used} of {kernels_timed(calibration)}")
    return lines


def _spending(calibration: Calibration) -> list[str]:
    """Return how a budget was spent; nothing without one."""
    facts = calibration.options
    budget = facts.get("device_time_budget_s")
    if budget is None:
        return []
    spent = f"{facts['device_time_spent_s']:.3g} s of device time spent"
    line = (
        f"chosen: {facts['chosen_kernels']} of {facts['pool_kernels']} kernels, in {facts['batches']} batches; "
        f"{spent} of {budget:.3g} s; {facts['ended']}"
    )
    if facts["choice"] == "everything":
        line = (
            f"everything fits into the budget of {budget:.3g} s: {facts['pool_kernels']} kernels timed in the ordinary "
            f"way (estimated {facts['everything_estimate_s']:.3g} s with building; {spent})"
        )
    return [line]
