"""``perflex predict``: what a calibration says of a kernel."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.json_output import print_json, stamped
from perflex.cli.launches import calibration_of_launch, launch_of, predicted_launch, refuse_for_launch
from perflex.cli.lines import LinesOption, lines_content, require_source, show_lines
from perflex.cli.options import (
    KERNEL_FILES,
    SERIES,
    CachesOption,
    JsonOption,
    LaunchesOption,
    MachineOption,
    TimeOption,
)
from perflex.cli.terminal import sizes_text, terminal_of, time_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.calibration.calibration import Calibration
    from perflex.cli.terminal import Terminal
    from perflex.progress import Progress
    from perflex.timing.launch.backend import TimedDevice

_TIMES_OF = {
    "gpu": "the GPU's own durations",
    "queued": "launches back to back",
    "host": "launches that the host waits for",
}
# Costs of a prediction that are shown by name.
_MOST_COSTS = 8
# Letters of a term that are shown: it may fill a page.
_LONGEST = 100


def predict(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CALIBRATION] KERNEL [SIZES]...",
            help=f"A calibration file, unless --machine names a GPU; {KERNEL_FILES}; {SERIES}.",
        ),
    ],
    *,
    machine: MachineOption = None,
    confidence: Annotated[
        float | None,
        typer.Option(min=0.01, max=0.999, help="Show the prediction interval of this confidence, such as 0.95."),
    ] = None,
    launches: LaunchesOption = None,
    caches: CachesOption = None,
    time: TimeOption = False,
    lines: LinesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Predict a kernel's run time at given sizes, and show the contribution of each term of the model."""
    from perflex.cli.arguments import file_and_name, read_calibration, read_series, require_known_sizes
    from perflex.cli.kernel_files import load_kernel

    loaded, rest = read_calibration(words, machine, KERNEL_FILES)
    loaded = loaded.assuming(launches=launches, caches=caches)
    kernel, *sizes = rest
    unit = load_kernel(kernel)
    source = require_source(unit, kernel) if lines else None
    terminal = terminal_of(context)
    chosen = read_series(sizes)
    require_known_sizes(chosen[0], [unit], chosen[0])
    # What the model leaves out is said for each size: accesses may depend on it.
    with terminal.warnings_shown():
        name = file_and_name(kernel)[1]
        if (launched := launch_of(unit)) is not None:
            refuse_for_launch(time=time, assumed=launches is not None or caches is not None)
            loaded = calibration_of_launch(loaded, machine, given=len(rest) < len(words))
            found = [predicted_launch(launched, each, loaded, confidence) for each in chosen]
        else:
            found = [_predicted(loaded, unit, name, each, confidence, machine) for each in chosen]
        for entry in found:
            if source is not None:
                from perflex.analysis.source_lines import source_lines

                entry["lines"] = source_lines(source, entry["sizes"], loaded, machine=machine)
        if time:
            from perflex.calibration.device_match import timing_device

            with terminal.progress("time:") as progress:
                _time_all(timing_device(loaded, machine=machine, kernels=[unit]), unit, found, progress)
    if as_json:
        print_json([_content(entry, kernel, loaded, machine) for entry in found])
        return
    for entry in found:
        _show(terminal, entry)
    if loaded.transferred is not None and loaded.transferred.launches is not None and not terminal.quiet:
        terminal.show(f"times: {_TIMES_OF[loaded.launches]}; L2 is {loaded.caches} (--launches, --caches)")


def _content(entry: dict[str, Any], kernel: str, loaded: Calibration, machine: str | None) -> dict[str, Any]:
    """Return what ``--json`` prints of a prediction, which says by itself what it is of."""
    from perflex.reports.json_files import PREDICTION

    lines = {"lines": lines_content(entry["lines"])} if "lines" in entry else {}
    of = {"kernel": kernel, "device": dict(loaded.device), "calibrated": loaded.date, "machine": machine}
    if loaded.transferred is not None and loaded.transferred.launches is not None:
        of |= {"launches": loaded.launches, "caches": loaded.caches}
    return stamped(PREDICTION, of | entry | lines)


def _predicted(
    loaded: Calibration, unit: Any, name: str, sizes: Mapping[str, int], confidence: float | None, machine: str | None
) -> dict[str, Any]:
    """Return what the model says of a kernel, as `predict` prints it; `name` is of the function that makes it."""
    from perflex.calibration.interval import interval_at
    from perflex.calibration.row_predictions import known_as, resting_on

    values = loaded.feature_values(unit, sizes, machine=machine)
    known = known_as(loaded.transferred, unit, sizes, name) if loaded.transferred is not None else []
    entry = {
        "sizes": sizes,
        "predicted_s": float(loaded.evaluate(values)),
        # The sizes are numbers, so that there is one label, or none.
        "knowledge": resting_on(loaded, [label for label, _ in known] or [""])[0],
        "doubts": list(loaded.doubts(unit, sizes, values, machine=machine)),
        "terms": {text: float(v) for text, v in loaded.model.terms(loaded.params, values).items()},
    }
    if loaded.transferred is not None:
        entry["predicted_s"] = float(interval_at(loaded, values, kernels=known).predicted)
    if confidence is not None:
        interval = interval_at(loaded, values, confidence, known)
        entry |= {"low_s": interval.low, "high_s": interval.high, "confidence": confidence}
        entry |= {"extrapolated": interval.extrapolated}
    return entry


def _time_all(device: TimedDevice, unit: Any, entries: Sequence[dict[str, Any]], progress: Progress | None) -> None:
    """Add to each entry what a timing says of the kernel at its sizes; an error where there is none at any."""
    from perflex.features.sized_kernel import sized_kernels
    from perflex.timing.measuring import measure
    from perflex.timing.results import Timing

    outcomes = measure(sized_kernels([(unit, entry["sizes"]) for entry in entries]), device, None, progress)
    for entry, outcome in zip(entries, outcomes, strict=True):
        if isinstance(outcome, Timing):
            low, high = outcome.interval
            entry |= {"measured_s": outcome.seconds, "measured_low_s": low, "measured_high_s": high}
            entry |= {"disturbed": outcome.disturbed, "measured_on": str(device)}
        elif len(entries) == 1:
            raise outcome.error
        else:
            entry["failure"] = outcome.reason


def _show(terminal: Terminal, entry: Mapping[str, Any]) -> None:
    at = sizes_text(entry["sizes"])
    within = f" ({time_text(entry['low_s'])} to {time_text(entry['high_s'])})" if "low_s" in entry else ""
    mark = " (doubtful)" if entry["doubts"] else ""
    terminal.show(f"{at}: {time_text(entry['predicted_s'])}{within}{mark}")
    for doubt in entry["doubts"]:
        terminal.show(f"  doubtful: {doubt}")
    if "measured_s" in entry:
        low, high = entry["measured_low_s"], entry["measured_high_s"]
        within = "" if math.isnan(low) else f" ({time_text(low)} to {time_text(high)})"
        mark = ", disturbed by other work" if entry["disturbed"] else ""
        terminal.show(f"  measured: {time_text(entry['measured_s'])}{within} on {entry['measured_on']}{mark}")
    elif "failure" in entry:
        terminal.show(f"  not measured: {entry['failure']}")
    if terminal.quiet:
        return
    costs = sorted(entry["terms"].items(), key=lambda item: -item[1])
    # A general model has dozens of costs, most of which a kernel does not have.
    told = costs[:_MOST_COSTS] if len(costs) > _MOST_COSTS + 1 else costs
    rest = costs[len(told) :]
    if rest:
        told.append((f"({len(rest)} other costs)", sum(seconds for _, seconds in rest)))
    for text, seconds in told:
        share = seconds / entry["predicted_s"] if entry["predicted_s"] else 0.0
        terminal.show(f"  {100 * share:5.1f} %  {textwrap.shorten(text, _LONGEST, placeholder='...')}")
    if "lines" in entry:
        show_lines(terminal, entry["lines"], indent=2)
