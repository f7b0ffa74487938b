"""``perflex calibrate``: measure a model's kernels on a device and write the calibration."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from multiprocessing import get_context
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from perflex.cli.noise_floor import noise_floor_lines
from perflex.cli.options import AcceptNoiseOption, MachineOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    from rich.table import Table

    from perflex.calibration.calibration import Calibration
    from perflex.calibration.ready import ReadyModel
    from perflex.cli.terminal import Terminal
    from perflex.timing.options import TimingOptions


class StatisticName(StrEnum):
    """What a kernel's time is of its timings."""

    median = "median"
    mean = "mean"
    lower_quartile = "lower_quartile"
    minimum = "minimum"


class LossName(StrEnum):
    """What a fit minimises."""

    SQUARED = "squared"
    SOFT_L1 = "soft_l1"


def calibrate(  # noqa: PLR0913 - one parameter per option
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(help="general (any kernel on this kind of device), the name of a shipped model, or a file.")
    ],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", help="Calibration file to write.")],
    device: Annotated[str, typer.Option("-D", "--device", help="Parts of a device's name.")] = "",
    trials: Annotated[
        int | None,
        typer.Option("--trials", min=1, help="Most undisturbed timings of one kernel; default: the model's, else 60."),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            "--precision", min=0.0, help="A kernel's time is known well enough; default: the model's, else 0.02 (2 %)."
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option("--budget", help="Device time for all timings, such as 30s or 2min; the kernels that tell most."),
    ] = "",
    per_kernel: Annotated[
        float | None,
        typer.Option("--budget-per-kernel", min=0.001, help="Device time in s; default: the model's, else 0.5."),
    ] = None,
    store: Annotated[
        str, typer.Option("--store", help="File that keeps the samples, or off; default: PERFLEX_STORE, or the cache.")
    ] = "",
    dask: Annotated[
        str, typer.Option("--dask", help="Count and time on a Dask cluster: its scheduler's address, tcp://HOST:PORT.")
    ] = "",
    retry_failures: Annotated[
        bool, typer.Option("--retry-failures", help="Going on: try kernels again that crashed or hung.")
    ] = False,
    isolate: Annotated[
        bool, typer.Option("--isolate/--no-isolate", help="Run kernels in a process of their own.")
    ] = True,
    statistic: Annotated[
        StatisticName, typer.Option("--statistic", help="What a kernel's time is of its timings.")
    ] = StatisticName.median,
    allow_negative: Annotated[bool, typer.Option("--allow-negative", help="Let costs become negative.")] = False,
    loss: Annotated[
        LossName | None,
        typer.Option(
            "--loss", help="What the fit minimises: squared, or soft_l1 that few bad rows move; default: the model's."
        ),
    ] = None,
    fixed_sizes: Annotated[
        bool, typer.Option("--fixed-sizes", help="Take the file's sizes as they are; else they suit the device.")
    ] = False,
    learn: Annotated[
        bool,
        typer.Option("--learn", help="Learn what the model leaves out; used if it helps left-out generators."),
    ] = False,
    accept_noise: AcceptNoiseOption = False,
    machine: MachineOption = None,
) -> None:
    """Calibrate a model on a device: measure its kernels, fit its parameters, write both to a file.

    Examples: perflex calibrate general -o general.yaml; with learned residuals (pip install 'perflex[learn]'):
    perflex calibrate general --learn -o general.yaml
    """
    from perflex.calibration.acceptance import require_repeatable
    from perflex.calibration.calibrating import calibrate as run
    from perflex.calibration.ready import ready_model
    from perflex.cli.arguments import read_seconds, require_writable_file
    from perflex.store.resume import recording
    from perflex.store.store import using_store
    from perflex.studies.doctor.examine import warn_before_measuring

    terminal = terminal_of(context)
    budget_s = read_seconds(budget, "--budget") if budget else None
    require_writable_file(out)
    # Checks the output feature, too; a device on the command line comes before the one in the file.
    ready = ready_model(model, device or None)
    where, fitted, usual = ready.device, ready.model, ready.description.fit
    terminal.remarks.print(f"device: {where}", markup=False)
    with terminal.warnings_shown():
        warn_before_measuring(None if dask else where)  # its workers measure elsewhere
    timing = _timing_options(ready, trials, precision, per_kernel, budgeted=bool(budget))
    timing = replace(timing, statistic=statistic.value, isolate=isolate, retry_failures=retry_failures)
    work = [ready.description.name, fitted.expression, str(fixed_sizes)]
    # The sizes come from a measurement, too, which belongs to the run: going on, it has to find the same kernels.
    with using_store(store or None), terminal.warnings_shown(), recording(str(where), work) as recorder:
        scale = 1.0 if fixed_sizes else ready.scale(recorder)
        kernels = ready.kernels(scale)
        with _workers(dask, ready) as (workers, cluster), terminal.progress("calibrate:") as progress:
            calibration = run(
                fitted,
                kernels,
                device=where,
                timing=timing,
                nonnegative=not allow_negative,
                loss=loss.value if loss else usual.loss,
                on_undetermined=usual.on_undetermined,
                machine=machine,
                progress=progress,
                budget_s=budget_s,
                recorder=recorder,
                executor=workers,
                measure_executor=cluster,
                learn=learn,
            )
    # Outside of what is recorded: a run that is begun again measures anew, and does not go on with disturbed times.
    if not accept_noise:
        require_repeatable(calibration, str(out))
    calibration.save(out)
    _show(terminal, calibration, scale, out)
    if ready.description.general and not terminal.quiet:
        words = (
            "next: perflex predict {out} KERNEL.py:function n=1024 --confidence 0.95 (or perflex rank, for variants)"
        )
        terminal.output.print(words.format(out=out), markup=False, soft_wrap=True)


def _timing_options(
    ready: ReadyModel, trials: int | None, precision: float | None, per_kernel: float | None, *, budgeted: bool
) -> TimingOptions:
    """Return how kernels are timed: as the command line says, else as suits the model."""
    from perflex.timing.options import TimingOptions

    usual = ready.timing(TimingOptions(budget_s=0.5))
    trials = usual.trials if trials is None else trials
    return replace(
        usual,
        trials=trials,
        # With a budget, kernels of their own tell more than further trials, up to a point that the design finds.
        min_trials=min(3 if budgeted else 5, trials),
        precision=usual.precision if precision is None else precision,
        budget_s=usual.budget_s if per_kernel is None else per_kernel,
    )


def _show(terminal: Terminal, calibration: Calibration, scale: float, out: Path) -> None:
    if not terminal.quiet:
        terminal.output.print(_parameters(calibration))
        terminal.output.print("\n".join(_remarks(calibration, scale)), markup=False, soft_wrap=True)
    terminal.output.print(str(out), markup=False, soft_wrap=True)


@contextmanager
def _workers(address: str, ready: ReadyModel) -> Iterator[tuple[Executor | None, Executor | None]]:
    """Give where kernels are counted and their code is generated, and where they are timed, for the block.

    Both are a Dask cluster where there is an address. A general model has so many kernels that processes of this
    machine count them; they have nothing to do while kernels are timed.
    """
    if address:
        from perflex.timing.executors.dask import dask_executor

        with dask_executor(address) as cluster:
            yield cluster, cluster
    elif ready.description.general:
        # Not forked: drivers and their threads may be at work in this process.
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            yield pool, None
    else:
        yield None, None


def _parameters(calibration: Calibration) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Parameters")
    for heading in ("parameter", "value", "std. error", "unit", "rate", ""):
        table.add_column(heading, justify="right" if heading in {"value", "std. error", "rate"} else "left")
    for p in calibration.fit.parameters:
        rate = "" if p.rate is None else f"{p.rate:.3g} {p.rate_unit}"
        table.add_row(p.name, f"{p.value:.4g}", f"{p.standard_error:.2g}", escape(p.unit or "?"), rate, p.flags)
    return table


def _remarks(calibration: Calibration, scale: float) -> list[str]:
    from perflex.fit.result import describe_errors

    fit = calibration.fit
    overall = f"relative error in the fit: {describe_errors(fit.relative_errors)}"
    lines = [f"{len(fit.kernels)} measurement kernels, {overall}; residual {fit.residual_norm:.3g}"]
    if fit.loss != "squared":
        lines.append(f"loss {fit.loss}: rows that are off by more than {100 * (fit.loss_scale or 0):.2g} % count less")
    if fit.no_overlap:
        lines.append(f"no overlap was found: nothing is hidden, the costs are added ({', '.join(fit.no_overlap)} = 0)")
    by_generator: dict[str, list[float]] = {}
    for kernel, error in zip(fit.kernels, fit.relative_errors, strict=True):
        by_generator.setdefault(kernel.partition("(")[0], []).append(error)
    for generator, errors in by_generator.items():
        worst = max(errors, key=abs)
        mean = sum(map(abs, errors)) / len(errors)
        lines.append(f"  {generator}: {len(errors)} kernels, mean error {100 * mean:.1f} %, worst {100 * worst:+.1f} %")
    if calibration.options.get("device_time_budget_s") is not None:
        lines.append(_spending(calibration))
    lines += _timing(calibration)
    lines += noise_floor_lines(calibration)
    if calibration.learned is not None:
        lines.append(str(calibration.learned))
    if scale != 1.0:
        lines.append(f"sizes suit a device {scale:.2g} times as fast as the model file's (--fixed-sizes keeps them)")
    lines += [f"left out: {label}: {reason}" for label, reason in calibration.dropped]
    return lines


def _timing(calibration: Calibration) -> list[str]:
    """Return what there is to say about how measuring went."""
    timed, lines = calibration.timing, []
    if affinity := calibration.options.get("affinity"):
        lines.append(f"workers' processors: {affinity}")
    if timed is None:
        return [*lines, *_disturbance(calibration)]
    if timed.samples_resumed:
        lines.append(f"{timed.samples_resumed} samples are from a run of this calibration that was cut short")
    kernels, precision = len(calibration.fit.kernels), 100 * calibration.options["precision"]
    statistic = str(calibration.options["statistic"]).replace("_", " ")
    lines.append(f"{statistic} known to {precision:g} % for {timed.kernels_precise} of {kernels} kernels")
    lines += _disturbance(calibration)
    if timed.stray_samples:
        lines.append(f"stray samples: {timed.stray_samples}")
    if timed.drift_ratio != 1.0:
        done = "corrected" if timed.drift_corrected else "not corrected, for that would not narrow the spread"
        lines.append(f"drift: reference kernels varied by {100 * (timed.drift_ratio - 1):.1f} % over time; {done}")
    return lines


def _disturbance(calibration: Calibration) -> list[str]:
    from perflex.calibration.acceptance import kernels_timed

    disturbed, samples, used = (
        calibration.options.get(name) or 0 for name in ("disturbed_samples", "samples", "kernels_disturbed")
    )
    lines = []
    if disturbed:
        lines.append(
            f"disturbed (by other work on the machine, or a lowered clock): {disturbed} of {samples} samples "
            f"({100 * disturbed / samples:.0f} %), not used where there are enough others"
        )
    if used:
        lines.append(f"kernels for which disturbed samples had to be used: {used} of {kernels_timed(calibration)}")
    return lines


def _spending(calibration: Calibration) -> str:
    facts = calibration.options
    return (
        f"chosen: {facts['chosen_kernels']} of {facts['pool_kernels']} kernels, in {facts['batches']} batches; "
        f"{facts['device_time_spent_s']:.3g} s of device time spent of {facts['device_time_budget_s']:.3g} s; "
        f"{facts['ended']}"
    )
