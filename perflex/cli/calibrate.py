"""``perflex calibrate``: measure a model's kernels on a device and write the calibration."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from multiprocessing import get_context
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.calibrate_times import TimesChoice, require_with_times, write_calibration
from perflex.cli.calibration_report import show_calibration
from perflex.cli.options import AcceptNoiseOption, MachineOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    from perflex.calibration.ready import ReadyModel
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


class UndeterminedName(StrEnum):
    """What happens where kernels do not determine a parameter."""

    ERROR = "error"
    WARN = "warn"


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
    undetermined: Annotated[
        UndeterminedName | None,
        typer.Option(
            "--undetermined",
            help="Parameters that no kernel determines: an error, or zero and a warning; default: the model's.",
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
    times: Annotated[
        Path | None,
        typer.Option(
            "--times", help="CSV of kernels and times that others measured; no device is opened. docs/times.md"
        ),
    ] = None,
    kernels_of: Annotated[
        list[Path] | None,
        typer.Option("--kernels", help="With --times: Python file of functions that make the kernels; repeatable."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="With --times: rows with COLUMN=VALUE[,VALUE]; repeatable.")
    ] = None,
    sub_group_size: Annotated[
        int | None,
        typer.Option("--sub-group-size", min=1, help="With --times: work-items; default: the machine's, or 32."),
    ] = None,
) -> None:
    """Calibrate a model on a device: measure its kernels, fit its parameters, write both to a file.

    Examples: perflex calibrate general -o general.yaml; with learned residuals (pip install 'perflex[learn]'):
    perflex calibrate general --learn -o general.yaml

    With --times nothing is measured: the times are those of a table, from a cluster's log or another laboratory:

    perflex calibrate mine.yaml --times log.csv --kernels my.py --machine V100 -o v100.yaml
    """
    from perflex.calibration.acceptance import require_repeatable
    from perflex.calibration.calibrating import calibrate as run
    from perflex.calibration.ready import ready_model
    from perflex.cli.arguments import read_seconds, require_writable_file
    from perflex.store.resume import recording
    from perflex.store.store import using_store
    from perflex.studies.doctor.examine import warn_before_measuring

    terminal = terminal_of(context)
    require_with_times(context, times)
    require_writable_file(out)
    if times is not None:
        table = TimesChoice(times, tuple(kernels_of or ()), tuple(only or ()), device).table(terminal)
        fitting: dict[str, Any] = {"nonnegative": not allow_negative, "loss": loss.value if loss else None}
        fitting["on_undetermined"] = undetermined.value if undetermined else None
        counting = {"machine": machine, "sub_group_size": sub_group_size, "store": store or None}
        write_calibration(terminal, model, table, out, {**fitting, **counting}, accept_noise=accept_noise)
        return
    budget_s = read_seconds(budget, "--budget") if budget else None
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
                on_undetermined=undetermined.value if undetermined else usual.on_undetermined,
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
    show_calibration(terminal, calibration, out, scale)
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
