"""``perflex calibrate --times``: a calibration from a table of times that others measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.cli.calibration_report import show_calibration

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import typer

    from perflex.calibration.times.table import TimesTable
    from perflex.cli.terminal import Terminal

# Options that say what a table's rows are, and those that say how a device measures.
_OF_TIMES = ("kernels_of", "only", "sub_group_size", "weights")
_OF_DEVICES = (
    "trials", "precision", "budget", "per_kernel", "dask", "retry_failures", "isolate", "statistic", "fixed_sizes",
    "cycles",
)  # fmt: skip


def require_with_times(context: typer.Context, times: Path | None) -> None:
    """Refuse options that do not go with the given or missing option ``--times``.

    Raises
    ------
    ArgumentError
        One was given.
    """
    from perflex.cli.arguments import ArgumentError

    names = _OF_TIMES if times is None else _OF_DEVICES
    option = {one.name: one.opts[0] for one in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in names}
    # By name: typer may bring a click of its own.
    given = [option[name] for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if given:
        words = ", ".join(given)
        why = "only for tables; name one with --times" if times is None else "about measuring, which --times does not"
        msg = f"{words}: {why}{'' if times is None else '; leave one out'}"
        raise ArgumentError(msg)


@dataclass(frozen=True)
class TimesChoice:
    """What a command line says of a table of times.

    Attributes
    ----------
    path
        The table.
    kernels
        Python files with functions that make kernels, and YAML files of Scops.
    only
        Words ``COLUMN=VALUE[,VALUE]``.
    device
        Name of the device whose rows are taken, or that the rows are of.
    """

    path: Path
    kernels: tuple[Path, ...] = ()
    only: tuple[str, ...] = ()
    device: str = ""

    def table(self, terminal: Terminal) -> TimesTable:
        """Return the table.

        Raises
        ------
        ArgumentError
            An option cannot be read, or a file has no kernels.
        FileFormatError
            As `load_times`.
        """
        from perflex.calibration.times.read_times import load_times
        from perflex.cli.arguments import load_kernels, read_pairs

        chosen = {
            name: [value.strip() for value in values.split(",")]
            for name, values in read_pairs(self.only, "--only", "role=cal").items()
        }
        kernels: dict[str, Any] = {}
        for path in self.kernels:
            kernels |= load_kernels(str(path))
        with terminal.warnings_shown():
            return load_times(self.path, kernels, device=self.device, only=chosen)


def write_calibration(
    terminal: Terminal,
    model: str,
    table: TimesTable,
    out: Path,
    choices: Mapping[str, Any],
    *,
    accept_noise: bool,
    as_json: bool,
) -> None:
    """Calibrate a model from a table, write the file and print it; `choices` are keywords of `calibrate`."""
    from perflex.calibration.acceptance import require_repeatable
    from perflex.calibration.calibrating import calibrate

    terminal.remarks.print(f"times: {table}, {len(table)} rows; no device is opened", markup=False)
    with terminal.warnings_shown(), terminal.progress("calibrate:") as progress:
        found = calibrate(model, times=table, progress=progress, **choices)
    if not accept_noise:
        require_repeatable(found, str(out))
    found.save(out)
    show_calibration(terminal, found, out, as_json=as_json)
