"""``perflex diff``: what a change of a kernel does, without running it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.json_output import picked, print_json, stamped
from perflex.cli.launches import predictor_of
from perflex.cli.options import KERNEL_FILES, SERIES, CachesOption, JsonOption, LaunchesOption, MachineOption
from perflex.cli.revisions import AgainstOption
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.analysis.comparison import Comparison
    from perflex.cli.terminal import Terminal

# Rows of a table that are shown.
_MOST = 30


def diff(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CALIBRATION] OLD [NEW] [SIZES]...",
            help=f"A calibration file, unless --machine names a GPU; two versions of a kernel, or with --against one; "
            f"of each {KERNEL_FILES}; {SERIES}.",
        ),
    ],
    *,
    against: AgainstOption = "",
    machine: MachineOption = None,
    confidence: Annotated[float, typer.Option(min=0.01, max=0.999, help="Of the intervals of ratios.")] = 0.95,
    launches: LaunchesOption = None,
    caches: CachesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two versions of a kernel: predicted times, their ratio, and the counts and lines that differ."""
    from perflex.analysis.comparison import Version, compare
    from perflex.cli.arguments import ArgumentError, read_calibration, read_series, require_known_sizes, split_words
    from perflex.cli.kernel_files import load_kernel
    from perflex.cli.revisions import revision_of

    terminal = terminal_of(context)
    loaded, rest = read_calibration(words, machine, KERNEL_FILES)
    kernels, sizes = split_words(rest)
    if len(kernels) != (1 if against else 2):
        wanted = "one kernel with --against REV" if against else "two versions of a kernel, or one and --against REV"
        raise ArgumentError(f"give {wanted}, not {len(kernels)}: {', '.join(kernels)}")
    series, found = read_series(sizes), []
    with ExitStack() as stack:
        new = load_kernel(kernels[-1])
        require_known_sizes(series[0], [new], series[0])
        given, assumed = len(rest) < len(words), launches is not None or caches is not None
        loaded = predictor_of(new, loaded, machine, given=given, time=False, assumed=assumed)
        loaded = loaded.assuming(launches=launches, caches=caches)
        if against:
            revision = stack.enter_context(revision_of(kernels[0], against))
            old = revision.load(kernels[0])
            stack.enter_context(revision.told())
        else:
            old = load_kernel(kernels[0])
        for each in series:
            pair = (Version(kernel, each, loaded, machine, confidence) for kernel in (old, new))
            found.append(compare(*pair))
    if as_json:
        of = {"old": f"{against}:{kernels[0]}" if against else kernels[0], "new": kernels[-1], "machine": machine}
        print_json([stamped("perflex-diff/1", of | _content(one)) for one in found])
    else:
        _show(terminal, found)


def _content(one: Comparison) -> dict[str, Any]:
    return {
        "sizes": one.new.sizes,
        "old_s": one.old.seconds,
        "new_s": one.new.seconds,
        **picked(one.change, "ratio", "low", "high", "confidence"),
        **picked(one, "verdict", "limiters", "counts", "lines"),
        "doubts": list(dict.fromkeys((*one.old.doubts, *one.new.doubts))),
    }


def _show(terminal: Terminal, found: Sequence[Comparison]) -> None:
    from perflex.analysis.comparison import change_table
    from perflex.calibration.prediction import doubt_lines

    terminal.show_result(change_table(found))
    terminal.show(*doubt_lines([one.new for one in found]))
    for one in found:
        if terminal.quiet or one.verdict == "no change":
            continue
        old, new = one.limiters
        terminal.show(f"largest cost at {one.new.at}: {old}" + (f"; now {new}" if new != old else ""))
        for table in (one.count_table(), one.line_table()):
            if table.rows:
                terminal.show_result(table.first(_MOST))
