"""``perflex rank``: variants by predicted time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.arguments import ArgumentError
from perflex.cli.json_output import print_json
from perflex.cli.launches import calibration_of_launch, launch_of, rank_launch, refuse_for_launch
from perflex.cli.options import KERNEL_FILES, CachesOption, JsonOption, LaunchesOption, MachineOption, TimeOption
from perflex.cli.terminal import terminal_of, time_text

if TYPE_CHECKING:
    from perflex.search.pruning.ranking import RankedVariant

# Variants of a space.
_SHOWN = 20


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
    from perflex.cli.arguments import is_space, read_calibration, read_kernels_and_sizes, require_known_sizes
    from perflex.cli.kernel_files import load_kernel, load_variants, require_sizes_of
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
    if isinstance(variants, dict):
        require_known_sizes(sizes, variants.values(), sizes)
    else:
        require_sizes_of(variants, sizes)
    with terminal_of(context).warnings_shown(doubts=False):
        places = ordered(variants, loaded, sizes, machine=machine, time=time)
    ranked = list(variants.values()) if isinstance(variants, dict) else [variants.kernel(places[0].kernel)]
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
        said = f"{time_text(place.predicted)} ({place.ratio:.2f} x)"
        if time:
            measured = f"measured {time_text(place.measured)} ({place.ratio:.2f} x)"
            said = (
                f"{'not measured' if math.isnan(place.measured) else measured}, predicted {time_text(place.predicted)}"
            )
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
