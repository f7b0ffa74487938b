"""``perflex gate``: conditions on kernels and their changes, for continuous integration."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.json_output import print_json, stamped
from perflex.cli.options import KERNEL_FILES, SERIES, JsonOption, takes_options
from perflex.cli.predictor import AskedToCompare
from perflex.cli.revisions import revision_of
from perflex.cli.terminal import terminal_of
from perflex.errors import PerflexError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.analysis.comparison import Version
    from perflex.analysis.gate import Judgement, Recorded

BASELINE = Path("perflex-baseline.yaml")
"""Where the baseline is, unless another file is named."""


@takes_options("asked", AskedToCompare)
def gate(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CALIBRATION] KERNEL... [SIZES]... CONDITIONS",
            help=f"A calibration file, unless --machine names a GPU; of each kernel {KERNEL_FILES}; {SERIES}; "
            "conditions, such as 'time<=1.03, dram_bytes<=64MiB, spills==0, exact'.",
        ),
    ],
    *,
    asked: AskedToCompare,
    baseline: Annotated[Path, typer.Option(help="File of what kernels took before.")] = BASELINE,
    update: Annotated[bool, typer.Option("--update", help="Write the baseline, and judge nothing.")] = False,
    markdown: Annotated[Path | None, typer.Option(help="File for the table, for a pull request.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge kernels by conditions, most of them on what changed; exit with 1 where one is broken.

    A condition limits the ratio to the baseline or the revision (time<=1.03), or with a unit an amount (time<=2ms).
    Where it cannot be told whether one holds, and for bad input, the exit code is 2.
    """
    from perflex.analysis.gate import MARK, gate_table
    from perflex.cli.arguments import ArgumentError
    from perflex.file_io import saving

    terminal = terminal_of(context)
    try:
        found, wrong = _judged(words, asked, baseline, update=update)
        table = gate_table(found)
        if markdown is not None:
            with saving(markdown) as stream:
                stream.write(f"{MARK}\n{table.markdown()}")
    # The exit code 1 is that of a condition that is broken.
    except PerflexError as error:
        raise ArgumentError(error.message) from error
    if as_json:
        content = {"machine": asked.machine, "conditions": found, "errors": wrong}
        print_json(stamped("perflex-gate/1", content))
    elif update and not wrong:
        terminal.show_paths(baseline)
    elif found:
        terminal.show_result(table)
    for each in wrong:
        sys.stderr.write(f"perflex: error: {' '.join(each.split())}\n")
    verdicts = {one.verdict for one in found}
    raise typer.Exit(2 if wrong else 1 if "broken" in verdicts else 2 if "cannot tell" in verdicts else 0)


def _judged(
    words: Sequence[str], asked: AskedToCompare, baseline: Path, *, update: bool
) -> tuple[list[Judgement], list[str]]:
    """Return what became of each condition, and what is wrong; or write the baseline, if nothing is."""
    from perflex.analysis.gate import entry_of, judge, read_baseline, read_conditions, recorded, write_baseline
    from perflex.cli.arguments import ArgumentError
    from perflex.cli.kernel_files import load_kernel

    conditions = read_conditions(words[-1])
    if len(words) == 1 or (update and asked.against):
        msg = "name a kernel before the conditions; and of --update and --against, which contradict, one at most"
        raise ArgumentError(msg)
    kernels, series, predictor = asked.read(words[:-1])
    changes = any(each.changes for each in conditions)
    before = read_baseline(baseline) if changes and not (update or asked.against) else []
    found, entries, wrong = list[Any](), list[Any](), list[str]()
    with revision_of(kernels[0], asked.against) if asked.against else nullcontext() as revision:
        for word in kernels:
            # What is wrong with one kernel leaves the others to be judged.
            try:
                olds: list[Version | Recorded | None] = []
                versions = [predictor.version(load_kernel(word), each) for each in series]
                if update:
                    entries += [entry_of(word, each, conditions) for each in versions]
                elif revision is not None:
                    kernel = revision.load(word)
                    with revision.told():
                        olds = [predictor.version(kernel, each) for each in series]
                else:
                    olds = [recorded(before, word, each) if changes else None for each in versions]
                # None of a baseline that is to be written.
                for new, old in zip(versions, olds, strict=False):
                    found += [judge(word, condition, new, old) for condition in conditions]
            except PerflexError as error:
                wrong.append(f"{word}: {error.message}")
    if update and not wrong:
        write_baseline(baseline, entries)
    return found, wrong
