"""``perflex diff``: what a change of a kernel does, without running it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.json_output import picked, print_json, stamped
from perflex.cli.options import KERNEL_FILES, SERIES, JsonOption, takes_options
from perflex.cli.predictor import AskedToCompare
from perflex.cli.revisions import revision_of
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.analysis.comparison import Comparison
    from perflex.cli.terminal import Terminal

# Rows of a table that are shown.
_MOST = 30


@takes_options("asked", AskedToCompare)
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
    asked: AskedToCompare,
    as_json: JsonOption = False,
) -> None:
    """Compare two versions of a kernel: predicted times, their ratio, and the counts and lines that differ."""
    from perflex.analysis.comparison import compare
    from perflex.cli.arguments import ArgumentError
    from perflex.cli.kernel_files import load_kernel

    kernels, series, predictor = asked.read(words)
    first, last = kernels[0], kernels[-1]
    if len(kernels) != (1 if asked.against else 2):
        msg = f"give two versions of a kernel, or one and --against REV, not {', '.join(kernels)}"
        raise ArgumentError(msg)
    new = load_kernel(last)
    after = [predictor.version(new, each) for each in series]
    with revision_of(first, asked.against) if asked.against else nullcontext() as revision:
        old = load_kernel(first) if revision is None else revision.load(first)
        with nullcontext() if revision is None else revision.told():
            before = [predictor.version(old, each) for each in series]
        found = list(map(compare, before, after))
    if as_json:
        of = {"old": f"{asked.against}:{first}" if asked.against else first, "new": last, "machine": asked.machine}
        print_json([stamped("perflex-diff/1", of | _content(one)) for one in found])
    else:
        _show(terminal_of(context), found)


def _content(one: Comparison) -> dict[str, Any]:
    return {
        "sizes": one.new.sizes,
        "old_s": one.old.seconds,
        "new_s": one.new.seconds,
        **picked(one.change, "ratio", "low", "high", "confidence"),
        **picked(one, "verdict", "limiters"),
        "counts": one.counts.records(),
        "lines": one.lines.records(),
        "doubts": list(dict.fromkeys((*one.old.doubts, *one.new.doubts))),
    }


def _show(terminal: Terminal, found: Sequence[Comparison]) -> None:
    from perflex.analysis.comparison import change_table
    from perflex.calibration.prediction import doubt_lines

    terminal.show_result(change_table(found))
    terminal.show(*doubt_lines([one.new for one in found]))
    for one in found:
        if not (terminal.quiet or one.verdict == "no change"):
            terminal.show(f"limited at {one.new.at} by {' -> '.join(dict.fromkeys(one.limiters))}")
            for table in one.tables()[1:]:
                terminal.show_result(table, most=_MOST)
