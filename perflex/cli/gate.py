"""``perflex gate``: conditions on kernels and their changes, for continuous integration."""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.json_output import print_json, stamped
from perflex.cli.launches import predictor_of
from perflex.cli.options import KERNEL_FILES, SERIES, CachesOption, JsonOption, LaunchesOption, MachineOption
from perflex.cli.revisions import AgainstOption
from perflex.cli.terminal import terminal_of
from perflex.errors import PerflexError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perflex.analysis.comparison import Version
    from perflex.analysis.gate import Condition, Entry, Judgement
    from perflex.calibration.calibration import Calibration

BASELINE = Path("perflex-baseline.yaml")
"""Where the baseline is, unless another file is named."""


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
    against: AgainstOption = "",
    baseline: Annotated[Path, typer.Option(help="File of what kernels took before.")] = BASELINE,
    update: Annotated[bool, typer.Option("--update", help="Write the baseline, and judge nothing.")] = False,
    machine: MachineOption = None,
    confidence: Annotated[float, typer.Option(min=0.01, max=0.999, help="Of the intervals of times.")] = 0.95,
    caches: CachesOption = None,
    launches: LaunchesOption = None,
    markdown: Annotated[Path | None, typer.Option(help="File for the table, for a pull request.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge kernels by conditions, most of them on what changed; exit with 1 where one is broken.

    A condition limits the ratio to the baseline or the revision (time<=1.03), or with a unit an amount (time<=2ms).
    Where it cannot be told whether one holds, and for bad input, the exit code is 2.
    """
    with _as_bad_input():
        from perflex.analysis.gate import MARK, gate_table, read_conditions
        from perflex.cli.arguments import ArgumentError, read_calibration, read_series, split_words
        from perflex.file_io import saving

        if update and against:
            raise ArgumentError("--update writes what kernels take now, --against asks what they took; leave one out")
        *others, last = words
        conditions = read_conditions(last)
        if not others:
            raise ArgumentError("there is no kernel; name one before the conditions")
        loaded, rest = read_calibration(others, machine, KERNEL_FILES)
        kernels, sizes = split_words(rest)
        given = len(rest) < len(others)
        asked = _Asked(read_series(sizes), conditions, loaded, machine, confidence, (launches, caches), given=given)
        if update:
            found, wrong = [], _update(asked, kernels, baseline)
        else:
            found, wrong = _judged(asked, kernels, against, baseline)
        table, terminal = gate_table(found), terminal_of(context)
        if markdown is not None:
            with saving(markdown) as stream:
                stream.write(f"{MARK}\n{table.markdown()}")
        if update and not wrong:
            terminal.show_paths(baseline)
        elif as_json:
            print_json(stamped("perflex-gate/1", {"machine": machine, "conditions": found, "errors": wrong}))
        elif found:
            terminal.show_result(table)
    for each in wrong:
        sys.stderr.write(f"perflex: error: {' '.join(each.split())}\n")
    verdicts = {one.verdict for one in found}
    raise typer.Exit(2 if wrong else 1 if "broken" in verdicts else 2 if "cannot tell" in verdicts else 0)


@dataclass(frozen=True)
class _Asked:
    """What kernels are judged by."""

    series: Sequence[Mapping[str, int]]
    conditions: Sequence[Condition]
    calibration: Calibration
    machine: str | None
    confidence: float
    # Launches and caches.
    assumed: tuple[str | None, str | None]
    given: bool

    def version(self, kernel: Any, sizes: Mapping[str, int]) -> Version:
        """Return a version of a kernel at sizes, which can be described."""
        from perflex.analysis.comparison import Version
        from perflex.cli.arguments import described

        described(kernel, sizes)
        (launches, caches), assumed = self.assumed, any(self.assumed)
        found = predictor_of(kernel, self.calibration, self.machine, given=self.given, time=False, assumed=assumed)
        return Version(kernel, sizes, found.assuming(launches=launches, caches=caches), self.machine, self.confidence)


def _update(asked: _Asked, kernels: Sequence[str], baseline: Path) -> list[str]:
    """Write what kernels take now; return what is wrong, in which case nothing is written."""
    from perflex.analysis.gate import entry_of, write_baseline
    from perflex.cli.kernel_files import load_kernel

    entries, wrong = list["Entry"](), list[str]()
    for word in kernels:
        with _noting(word, wrong):
            kernel = load_kernel(word)
            entries += [entry_of(word, asked.version(kernel, each), asked.conditions) for each in asked.series]
    if not wrong:
        write_baseline(baseline, entries)
    return wrong


def _judged(asked: _Asked, kernels: Sequence[str], against: str, baseline: Path) -> tuple[list[Judgement], list[str]]:
    """Return what became of each condition, and what is wrong."""
    from perflex.analysis.gate import judge, read_baseline, recorded
    from perflex.cli.kernel_files import load_kernel
    from perflex.cli.revisions import revision_of

    changes = any(each.changes for each in asked.conditions)
    entries = read_baseline(baseline) if changes and not against else []
    found, wrong = list["Judgement"](), list[str]()
    with revision_of(kernels[0], against) if against else nullcontext() as revision:
        for word in kernels:
            with _noting(word, wrong):
                kernel = load_kernel(word)
                before = None if revision is None else revision.load(word)
                for each in asked.series:
                    new, old = asked.version(kernel, each), None
                    if revision is not None:
                        with revision.told():
                            old = asked.version(before, each)
                    elif changes:
                        old = recorded(entries, word, new)
                    found += [judge(word, condition, new, old) for condition in asked.conditions]
    return found, wrong


@contextmanager
def _noting(word: str, wrong: list[str]) -> Iterator[None]:
    """Note what is wrong with a kernel, so that the others are judged all the same."""
    try:
        yield
    except PerflexError as error:
        wrong.append(f"{word}: {error.message}")


@contextmanager
def _as_bad_input() -> Iterator[None]:
    """Say of any error of perflex that the input is bad: the exit code 1 is that of a condition that is broken."""
    from perflex.cli.arguments import ArgumentError

    try:
        yield
    except PerflexError as error:
        raise ArgumentError(error.message) from error
