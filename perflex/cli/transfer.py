"""``perflex transfer``: a calibration of a device from those of other devices and few samples, or none."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.calibration_report import calibration_content, show_parameters
from perflex.cli.completion import complete_machine
from perflex.cli.json_output import picked, print_json
from perflex.cli.options import JsonOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.calibration.calibration import Calibration
    from perflex.cli.terminal import Terminal
    from perflex.expression.model import Model
    from perflex.fit.table import FeatureTable


def transfer(  # noqa: PLR0913 - one parameter per option
    context: typer.Context,
    sources: Annotated[list[Path], typer.Argument(help="Calibrations of one model on other devices.")],
    *,
    machine: Annotated[
        str,
        typer.Option(
            "--machine",
            autocompletion=complete_machine,
            help="The device's machine: a name from 'perflex machine list', or a file.",
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Calibration file to write.")],
    samples: Annotated[
        Path | None, typer.Option("--samples", help="CSV table of times of the device, as for 'calibrate --times'.")
    ] = None,
    kernels: Annotated[
        list[Path] | None,
        typer.Option("--kernels", help="Python file with the functions, or a Scop's YAML file, that tables name."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Use rows of the samples with COLUMN=VALUE[,VALUE] only.")
    ] = None,
    device: Annotated[str, typer.Option("-D", "--device", help="The device's name in the samples' column.")] = "",
    suggest: Annotated[
        int | None,
        typer.Option(
            "--suggest", min=1, help="Print this many of the candidates that are the most informative next samples."
        ),
    ] = None,
    candidates: Annotated[
        Path | None,
        typer.Option("--candidates", help="CSV table of kernels to choose from; its times are ignored."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Calibrate a device from calibrations of other devices and few or no samples of its own."""
    from perflex.calibration.calibration import Calibration
    from perflex.calibration.transfer.suggest import suggest_samples
    from perflex.calibration.transfer.transferring import transfer as run
    from perflex.cli.arguments import ArgumentError, require_writable_file
    from perflex.machines.lookup import load_machine

    terminal = terminal_of(context)
    if (suggest is None) != (candidates is None):
        msg = "--suggest and --candidates go together: how many samples, and the table to choose them from"
        raise ArgumentError(msg)
    require_writable_file(out)
    target = load_machine(machine)
    loaded = [Calibration.load(path) for path in sources]
    read = _Reader(terminal, tuple(kernels or ()), machine)
    with terminal.warnings_shown():
        rows = None if samples is None else read.table(loaded[0].model, samples, tuple(only or ()), device)
        found = run(loaded, rows, machine=target)
        found.save(out)
        chosen: Sequence[str] = ()
        if suggest is not None and candidates is not None:
            chosen = suggest_samples(found, read.table(found.model, candidates), suggest)
    if as_json:
        print_json({**calibration_content(found, out), **_carried(found), "take_next": chosen})
        return
    _show(terminal, found, out)
    for label in chosen:
        terminal.show(f"next sample: {label}")


class _Reader:
    """Tables of times, whose features are counted for one machine."""

    def __init__(self, terminal: Terminal, kernels: tuple[Path, ...], machine: str) -> None:
        self._terminal, self._kernels, self._machine = terminal, kernels, machine

    def table(self, model: Model, path: Path, only: tuple[str, ...] = (), device: str = "") -> FeatureTable:
        """Return the features and times of a table's kernels."""
        from perflex.calibration.transfer.times import table_of_times
        from perflex.cli.calibrate_times import TimesChoice

        times = TimesChoice(path, self._kernels, only, device).table(self._terminal)
        with self._terminal.progress("count:") as progress:
            return table_of_times(model, times, machine=self._machine, progress=progress)


def _carried(found: Calibration) -> dict[str, Any]:
    carried = found.transferred
    return {} if carried is None else picked(carried, "sources", "samples", "weight")


def _show(terminal: Terminal, found: Calibration, out: Path) -> None:
    carried = found.transferred
    if not terminal.quiet and carried is not None:
        show_parameters(terminal, found)
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
