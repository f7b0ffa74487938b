"""``perflex predict`` and ``perflex rank``: what a calibration says of kernels in Python files."""

from __future__ import annotations

import itertools
import math
import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.arguments import ArgumentError
from perflex.cli.json_output import print_json, stamped
from perflex.cli.launches import calibration_of_launch, launch_of, predicted_launch, rank_launch, refuse_for_launch
from perflex.cli.lines import LinesOption, lines_content, require_source, show_lines
from perflex.cli.options import KERNEL_FILES, CachesOption, JsonOption, LaunchesOption, MachineOption, TimeOption
from perflex.cli.terminal import sizes_text, terminal_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.calibration.calibration import Calibration
    from perflex.cli.terminal import Terminal
    from perflex.progress import Progress
    from perflex.search.pruning.ranking import RankedVariant
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
# Variants of a space.
_SHOWN = 20


def predict(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CALIBRATION] KERNEL [SIZES]...",
            help=f"A calibration file, unless --machine names a GPU; {KERNEL_FILES}; "
            "name=value or name=value,value,...",
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
    from perflex.cli.arguments import file_and_name, read_calibration
    from perflex.cli.kernel_files import load_kernel

    loaded, rest = read_calibration(words, machine, KERNEL_FILES)
    loaded = loaded.assuming(launches=launches, caches=caches)
    kernel, *sizes = rest
    unit = load_kernel(kernel)
    source = require_source(unit, kernel) if lines else None
    terminal = terminal_of(context)
    chosen = _combinations(sizes)
    # What the model leaves out is said for each size: accesses may depend on it.
    with terminal.warnings_shown():
        name = file_and_name(kernel)[1]
        if (launched := launch_of(unit)) is not None:
            refuse_for_launch(time=time, assumed=launches is not None or caches is not None)
            loaded = calibration_of_launch(loaded, machine, given=len(rest) < len(words))
            found = [predicted_launch(launched, each, loaded, confidence) for each in chosen]
        else:
            found = [_predicted(loaded, unit, name, each, confidence, machine) for each in chosen]
            terminal.warn_of_sizes(chosen[0], [unit], chosen[0])
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
    within = f" ({_time(entry['low_s'])} to {_time(entry['high_s'])})" if "low_s" in entry else ""
    mark = " (doubtful)" if entry["doubts"] else ""
    terminal.show(f"{at}: {_time(entry['predicted_s'])}{within}{mark}")
    for doubt in entry["doubts"]:
        terminal.show(f"  doubtful: {doubt}")
    if "measured_s" in entry:
        low, high = entry["measured_low_s"], entry["measured_high_s"]
        within = "" if math.isnan(low) else f" ({_time(low)} to {_time(high)})"
        mark = ", disturbed by other work" if entry["disturbed"] else ""
        terminal.show(f"  measured: {_time(entry['measured_s'])}{within} on {entry['measured_on']}{mark}")
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


def rank(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CALIBRATION] KERNEL... [SIZES]...",
            help=f"A calibration file, unless --machine names a GPU; "
            f"of each kernel {KERNEL_FILES}, or one file of a source with tunables; name=value of each size.",
        ),
    ],
    *,
    machine: MachineOption = None,
    launches: LaunchesOption = None,
    caches: CachesOption = None,
    compiled: Annotated[
        int,
        typer.Option(
            "--compile",
            metavar="N",
            min=0,
            help="Compile configurations of a Triton kernel until the N best are ordered by what their code takes.",
        ),
    ] = 0,
    time: TimeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Order variants by predicted run time, fastest first; with --time, by what is measured."""
    from perflex.calibration.device_match import timing_device
    from perflex.cli.arguments import is_space, read_calibration, read_kernels_and_sizes
    from perflex.cli.kernel_files import load_kernel, load_variants
    from perflex.search.pruning.ranking import Ranking
    from perflex.search.pruning.ranking import rank as ordered

    loaded, rest = read_calibration(words, machine, KERNEL_FILES)
    loaded = loaded.assuming(launches=launches, caches=caches)
    kernels, sizes = read_kernels_and_sizes(rest)
    alone = len(kernels) == 1 and is_space(kernels[0])
    variants = load_variants(kernels[0]) if alone else {word: load_kernel(word) for word in kernels}
    launched_ones = [launch_of(one) for one in variants.values()] if isinstance(variants, dict) else []
    if launched := next(filter(None, launched_ones), None):
        if len(launched_ones) > 1:
            msg = "a launch of a Triton kernel is ranked alone, for its configurations are; give one"
            raise ArgumentError(msg, word=kernels[1])
        refuse_for_launch(time=time, assumed=launches is not None or caches is not None)
        calibration = calibration_of_launch(loaded, machine, given=len(rest) < len(words))
        rank_launch(terminal_of(context), launched, sizes, calibration, compiled=compiled, as_json=as_json)
        return
    if compiled:
        msg = "--compile is for a function that launches a Triton kernel; leave it out"
        raise ArgumentError(msg)
    with terminal_of(context).warnings_shown(doubts=False):
        places = ordered(variants, loaded, sizes, machine=machine, time=time)
    ranked = list(variants.values()) if isinstance(variants, dict) else [variants.kernel(places[0].kernel)]
    own = {} if isinstance(variants, dict) else variants.sizes
    terminal_of(context).warn_of_sizes(sizes, ranked, {**own, **sizes})
    on = str(timing_device(loaded, machine=machine, kernels=ranked)) if time else ""
    left_out = [f"left out: {cause} ({count})" for cause, count in places.excluded.items()]
    if as_json:
        for line in left_out:
            terminal_of(context).remarks.print(line, markup=False, soft_wrap=True)
        print_json([_row(place, on) for place in places])
        return
    terminal = terminal_of(context)
    shown = Ranking(places[: _SHOWN if alone else None])
    for place in shown:
        said = f"{_time(place.predicted)} ({place.ratio:.2f} x)"
        if time:
            measured = f"measured {_time(place.measured)} ({place.ratio:.2f} x)"
            said = f"{'not measured' if math.isnan(place.measured) else measured}, predicted {_time(place.predicted)}"
        terminal.show(f"{place.rank}. {place.name}: {said}{' (doubtful)' if place.doubts else ''}")
    terminal.show(
        *left_out, *(f"doubtful: {line}" for line in shown.doubt_lines), *([f"measured on {on}"] if on else [])
    )
    if alone and len(places) > _SHOWN:
        terminal.show(f"and {len(places) - _SHOWN} more; --json prints all")


def _row(place: RankedVariant, on: str) -> dict[str, Any]:
    row = {"rank": place.rank, "name": place.name, "predicted_s": place.predicted, "ratio": place.ratio}
    row |= {"knowledge": place.knowledge, "doubts": list(place.doubts)}
    return row | ({"measured_s": place.measured, "measured_on": on} if on else {})


def _combinations(words: Sequence[str]) -> list[Mapping[str, int]]:
    """Return every combination of the values that ``name=value,value`` words give."""
    from perflex.cli.arguments import read_sizes

    choices = []
    for word in words:
        name, equals, text = word.partition("=")
        parts = text.split(",") if equals else [""]
        choices.append([f"{name}={part}" if equals else word for part in parts])
    return [read_sizes(combination) for combination in itertools.product(*choices)]


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if abs(seconds) * factor >= 1:
            return f"{seconds * factor:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"
