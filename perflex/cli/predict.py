"""``perflex predict`` and ``perflex rank``: what a calibration says of kernels in Python files."""

from __future__ import annotations

import itertools
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.columns import shortened
from perflex.cli.json_output import print_json
from perflex.cli.options import JsonOption, MachineOption, ProbeOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.calibration.calibration import Calibration
    from perflex.cli.terminal import Terminal
    from perflex.search.pruning.ranking import RankedVariant

# Costs of a prediction that are shown by name.
_MOST_COSTS = 8
# Letters of a line: terms of a model may fill a page.
_LONGEST = 111
_FILE = typer.Argument(help="A calibration file.")


def predict(
    context: typer.Context,
    calibration: Annotated[Path, _FILE],
    kernel: Annotated[str, typer.Argument(help="KERNEL.py:function; the function returns a loopy kernel.")],
    sizes: Annotated[list[str] | None, typer.Argument(help="name=value, or name=value,value,...")] = None,
    *,
    machine: MachineOption = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            "--confidence", min=0.01, max=0.999, help="Show the prediction interval of this confidence, such as 0.95."
        ),
    ] = None,
    probe: ProbeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Predict a kernel's run time at given sizes, and show the contribution of each term of the model."""
    from perflex.calibration.calibration import Calibration
    from perflex.cli.arguments import load_kernel

    loaded = Calibration.load(calibration)
    unit = load_kernel(kernel)
    terminal = terminal_of(context)
    chosen = _combinations(sizes or ())
    if probe:
        found = _probed(loaded, unit, chosen, confidence, machine)
    else:
        # What the model leaves out is said for each size: accesses may depend on it.
        with terminal.warnings_shown():
            name = kernel.rpartition(":")[2]
            found = [_predicted(loaded, unit, name, each, confidence, machine) for each in chosen]
    if as_json:
        print_json(found)
        return
    for entry in found:
        _show(terminal, entry)


def _predicted(
    loaded: Calibration, unit: Any, name: str, sizes: Mapping[str, int], confidence: float | None, machine: str | None
) -> dict[str, Any]:
    """Return what the model says of a kernel, as `predict` prints it; `name` is of the function that makes it."""
    from perflex.calibration.interval import interval_at
    from perflex.calibration.row_predictions import known_as, resting_on

    values = loaded.feature_values(unit, sizes, machine=machine)
    factor = loaded.correction(values)
    known = known_as(loaded, unit, sizes, name) if loaded.transferred is not None else []
    entry = {
        "sizes": sizes,
        "predicted_s": float(loaded.evaluate(values)),
        # The sizes are numbers, so that there is one label, or none.
        "knowledge": resting_on(loaded, [label for label, _ in known] or [""])[0],
        "doubts": list(loaded.doubts(unit, sizes, values, machine=machine)),
        "terms": {text: float(v * factor) for text, v in loaded.model.terms(loaded.params, values).items()},
    }
    if loaded.transferred is not None:
        entry["predicted_s"] = float(interval_at(loaded, values, kernels=known).predicted)
    if confidence is not None:
        interval = interval_at(loaded, values, confidence, known)
        entry |= {"low_s": interval.low, "high_s": interval.high, "confidence": confidence}
        entry |= {"extrapolated": interval.extrapolated}
    return entry


def _probed(
    loaded: Calibration, unit: Any, sizes: Sequence[Mapping[str, int]], confidence: float | None, machine: str | None
) -> list[dict[str, Any]]:
    """Return what short launches say of a kernel at some sizes, as `predict` prints it."""
    from perflex.calibration.probed import probed_interval, probing_device
    from perflex.cli.arguments import ArgumentError
    from perflex.features.sized_kernel import sized_kernels
    from perflex.timing.short_launch import ShortLauncher

    if machine is not None:
        msg = "--probe launches the kernel and evaluates no model, so that --machine has no effect; leave one out"
        raise ArgumentError(msg)
    found: list[dict[str, Any]] = []
    with ShortLauncher(probing_device(loaded, probe=True)) as launcher:
        for job in sized_kernels([(unit, each) for each in sizes]):
            probe = launcher.probe(job)
            entry: dict[str, Any] = {"sizes": dict(job.sizes), "predicted_s": probe.seconds, "doubts": [], "terms": {}}
            entry |= {"knowledge": probe.knowledge, "device_s": probe.device_s, "cost_s": probe.cost_s}
            if confidence is not None:
                interval = probed_interval(probe, confidence)
                entry |= {"low_s": interval.low, "high_s": interval.high, "confidence": confidence}
                entry |= {"extrapolated": False}
            found.append(entry)
    return found


def _show(terminal: Terminal, entry: Mapping[str, Any]) -> None:
    at = ", ".join(f"{name}={value}" for name, value in entry["sizes"].items()) or "no sizes"
    within = f" ({_time(entry['low_s'])} to {_time(entry['high_s'])})" if "low_s" in entry else ""
    mark = " (doubtful)" if entry["doubts"] else ""
    terminal.show(f"{at}: {_time(entry['predicted_s'])}{within}{mark}")
    for doubt in entry["doubts"]:
        terminal.show(f"  doubtful: {doubt}")
    if terminal.quiet:
        return
    if "cost_s" in entry:
        cost = f"{_time(entry['cost_s'])} in all, {_time(entry['device_s'])} of it on the device"
        terminal.show(f"  by a {entry['knowledge']}: {cost}")
    text_width = min(terminal.width or _LONGEST, _LONGEST) - 11
    costs = sorted(entry["terms"].items(), key=lambda item: -item[1])
    # A general model has dozens of costs, most of which a kernel does not have.
    told = costs[:_MOST_COSTS] if len(costs) > _MOST_COSTS + 1 else costs
    rest = costs[len(told) :]
    rows = [(" ".join(text.split()), seconds) for text, seconds in told]
    if rest:
        rows.append((f"({len(rest)} other costs)", sum(seconds for _, seconds in rest)))
    for text, seconds in rows:
        share = seconds / entry["predicted_s"] if entry["predicted_s"] else 0.0
        terminal.show(f"  {100 * share:5.1f} %  {shortened(text, text_width)}")


def rank(
    context: typer.Context,
    calibration: Annotated[Path, _FILE],
    words: Annotated[list[str], typer.Argument(help="KERNEL.py:function of each variant, then name=value sizes.")],
    *,
    machine: MachineOption = None,
    probe: ProbeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Order variants by predicted run time, fastest first."""
    from perflex.calibration.calibration import Calibration
    from perflex.cli.arguments import ArgumentError, load_kernel, read_sizes
    from perflex.search.pruning.ranking import rank as ordered

    if not any(map(_is_kernel, words)):
        msg = "there is no variant to rank; name variants as KERNEL.py:function before the sizes"
        raise ArgumentError(msg)
    variants = {word: load_kernel(word) for word in words if _is_kernel(word)}
    sizes = read_sizes(word for word in words if not _is_kernel(word))
    with terminal_of(context).warnings_shown():
        places = ordered(variants, Calibration.load(calibration), sizes, machine=machine, probe=probe)
    if as_json:
        print_json([_row(place) for place in places])
        return
    terminal = terminal_of(context)
    for place in places:
        line = f"{place.rank}. {place.name}: {_time(place.predicted)} ({place.ratio:.2f} x)"
        if place.failure:
            line = f"{place.rank}. {place.name}: not known, its short launch failed: {place.failure}"
        elif probe:
            line = f"{line}, by a {place.knowledge}"
        terminal.show(line)


def _row(place: RankedVariant) -> dict[str, Any]:
    row = {"rank": place.rank, "name": place.name, "predicted_s": place.predicted, "ratio": place.ratio}
    row |= {"knowledge": place.knowledge}
    return row | ({"failure": place.failure} if place.failure else {})


def _is_kernel(word: str) -> bool:
    # A path may hold an equals sign: what follows the last colon decides.
    return ":" in word and "=" not in word.rpartition(":")[2]


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
