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
from perflex.cli.completion import complete_device, complete_model
from perflex.cli.options import AcceptNoiseOption, CyclesName, CyclesOption, JsonOption, MachineOption
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    from perflex.calibration.ready import ReadyModel
    from perflex.timing.options import TimingOptions


class StatisticName(StrEnum):
    """Statistic of a kernel's timings that is its time."""

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


class WeightsName(StrEnum):
    """What counts alike in a fit."""

    ROWS = "rows"
    GENERATORS = "generators"


def calibrate(  # noqa: PLR0913 - one parameter per option
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            autocompletion=complete_model,
            help="general (any kernel on this kind of device), the name of a shipped model, or a file.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", help="Calibration file to write.")],
    device: Annotated[
        str, typer.Option("-D", "--device", autocompletion=complete_device, help="Parts of a device's name.")
    ] = "",
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            min=1,
            help="Maximum number of undisturbed timings of one kernel; default: the model's, else 60.",
        ),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            "--precision",
            min=0.0,
            help="Relative half-width of a time's interval at which timing stops; default: the model's, else 0.02.",
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            help="Time for timings, such as 30s: all kernels if it suffices, else those that tell most.",
        ),
    ] = "",
    per_kernel: Annotated[
        float | None,
        typer.Option(
            "--budget-per-kernel", min=0.001, help="Device time of one kernel in s; default: the model's, else 0.5."
        ),
    ] = None,
    store: Annotated[
        str,
        typer.Option(
            "--store", help="File that keeps the samples, or 'off'; default: PERFLEX_STORE, else a file in the cache."
        ),
    ] = "",
    dask: Annotated[
        str, typer.Option("--dask", help="Count and time on a Dask cluster: its scheduler's address, tcp://HOST:PORT.")
    ] = "",
    retry_failures: Annotated[
        bool, typer.Option("--retry-failures", help="When a run is resumed: try kernels again that crashed or hung.")
    ] = False,
    isolate: Annotated[bool, typer.Option("--isolate/--no-isolate", help="Run kernels in a separate process.")] = True,
    statistic: Annotated[
        StatisticName, typer.Option("--statistic", help="Statistic of a kernel's timings that is its time.")
    ] = StatisticName.median,
    allow_negative: Annotated[bool, typer.Option("--allow-negative", help="Let costs become negative.")] = False,
    loss: Annotated[
        LossName | None,
        typer.Option(
            "--loss", help="Loss of the fit: squared, or soft_l1, which is robust to outliers; default: the model's."
        ),
    ] = None,
    undetermined: Annotated[
        UndeterminedName | None,
        typer.Option(
            "--undetermined",
            help="Parameters that no kernel determines: an error, or 0 with a warning; default: the model's.",
        ),
    ] = None,
    fixed_sizes: Annotated[
        bool,
        typer.Option(
            "--fixed-sizes", help="Use the model file's sizes; by default sizes are scaled to the device's speed."
        ),
    ] = False,
    learn: Annotated[
        bool,
        typer.Option(
            "--learn",
            help="Learn the residuals (scikit-learn); used only if left-out generators are predicted better.",
        ),
    ] = False,
    accept_noise: AcceptNoiseOption = False,
    machine: MachineOption = None,
    cycles: CyclesOption = CyclesName.PORTS,
    as_json: JsonOption = False,
    times: Annotated[
        Path | None,
        typer.Option(
            "--times",
            help="CSV file of kernels and times measured elsewhere; no device is used. See docs/reference/times.md.",
        ),
    ] = None,
    kernels_of: Annotated[
        list[Path] | None,
        typer.Option(
            "--kernels", help="With --times: Python file of functions that make the kernels; may be repeated."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="With --times: rows with COLUMN=VALUE[,VALUE]."),
    ] = None,
    sub_group_size: Annotated[
        int | None,
        typer.Option(
            "--sub-group-size", min=1, help="With --times: work-items per sub-group; default: the machine's, or 32."
        ),
    ] = None,
    weights: Annotated[
        WeightsName,
        typer.Option("--weights", help="With --times: what counts alike in the fit, rows, or generators (functions)."),
    ] = WeightsName.ROWS,
) -> None:
    """Calibrate a model on a device: measure its kernels, fit its parameters, write both to a file.

    The model 'general' predicts any kernel on the same kind of device; --learn needs pip install 'perflex[learn]'.

    With --times nothing is measured: the times come from a table, such as a cluster's log; see docs/reference/times.md.
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
        fitting |= {"on_undetermined": undetermined.value if undetermined else None, "weights": weights.value}
        counting = {"machine": machine, "sub_group_size": sub_group_size, "store": store or None}
        choices = {**fitting, **counting}
        write_calibration(terminal, model, table, out, choices, accept_noise=accept_noise, as_json=as_json)
        return
    budget_s = read_seconds(budget, "--budget") if budget else None
    # Checks the output feature, too; a device on the command line comes before the one in the file.
    ready = ready_model(model, device or None)
    where, fitted, usual = ready.device, ready.model, ready.description.fit
    terminal.remarks.print(f"device: {where}", markup=False)
    with terminal.warnings_shown():
        warn_before_measuring(None if dask else where)  # its workers measure elsewhere
    timing = _timing_options(ready, trials, precision, per_kernel)
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
                cycles=cycles.value,
            )
    # Outside of what is recorded: a run that is begun again measures anew, and does not go on with disturbed times.
    if not accept_noise:
        require_repeatable(calibration, str(out))
    calibration.save(out)
    show_calibration(terminal, calibration, out, scale, as_json=as_json)
    if ready.description.general and not (terminal.quiet or as_json):
        words = f"perflex predict {out} KERNEL.py:function n=1024 --confidence 0.95"
        terminal.show(f"next: {words} (or perflex rank, for variants)")


def _timing_options(
    ready: ReadyModel, trials: int | None, precision: float | None, per_kernel: float | None
) -> TimingOptions:
    """Return how kernels are timed: as the command line says, else as suits the model."""
    from perflex.timing.options import TimingOptions

    usual = ready.timing(TimingOptions(budget_s=0.5))
    trials = usual.trials if trials is None else trials
    return replace(
        usual,
        trials=trials,
        min_trials=min(5, trials),
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
