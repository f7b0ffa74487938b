"""What commands print to, and how much: results, remarks, warnings and progress."""

from __future__ import annotations

import io
import os
import sys
import textwrap
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import TextIO

    import typer
    from rich.console import Console

    from perflex.tables import Table

# On narrower terminals lines are broken by the terminal.
_LEAST_WIDTH = 40


@dataclass
class Terminal:
    """Where one run of the command line prints, by the options that hold for every command."""

    # Show tracebacks of perflex's own errors.
    debug: bool = False
    # Show results only: no progress, no remarks.
    quiet: bool = False

    @property
    def output(self) -> Console:
        """Where results go: standard output."""
        from rich.console import Console

        return Console(highlight=False)

    @property
    def width(self) -> int | None:
        """Characters in a line of results: the terminal's, or those of COLUMNS; None for other pipes and files."""
        output = self.output
        # What reads a pipe (grep, say) wants each row in one line.
        known = output.is_terminal or os.environ.get("COLUMNS", "").isdigit()
        return max(output.width, _LEAST_WIDTH) if known else None

    def show(self, *lines: str, style: str | None = None, bold: int = 0) -> None:
        """Print lines of a result, wrapped to the width; the first `bold` characters stand out."""
        from rich.text import Text

        if not lines:
            return
        text = Text("\n".join(self._wrapped(part) for line in lines for part in line.split("\n")))
        if style is not None:
            text.stylize(style)
        text.stylize("bold", 0, bold)
        self.output.print(text, soft_wrap=True)

    def _wrapped(self, line: str) -> str:
        if self.width is None or len(line) <= self.width:
            return line
        start = line[: len(line) - len(line.lstrip(" "))]
        return textwrap.fill(line, self.width, subsequent_indent=f"{start}    ", break_on_hyphens=False)

    def show_paths(self, *paths: Path) -> None:
        """Print the files that were written, each in one line, however long: they are there to be copied."""
        for path in paths:
            self.output.print(str(path), markup=False, soft_wrap=True)

    def show_result(self, table: Table, *, most: int | None = None, indent: int = 0, listed: bool = False) -> None:
        """Print a result's table under its caption, of which at most so many rows.

        Numbers end at the right edge of their column; where the terminal is narrow, texts take several lines, and cells
        stand below each other (in a terminal always if `listed`).
        """
        if table.caption:
            self.show(f"{' ' * indent}{table.caption}", style="bold")
        shown = replace(table, rows=table.rows[:most]).seen("everywhere")
        room = None if self.width is None else self.width - indent
        if room is None:
            lines = str(shown)
        elif shown.least_width() <= room and not listed:
            lines = self._folded(shown, room)
        else:
            # Numbers that are broken are not read.
            lines = shown.listed(room)
        self.output.file.write(
            textwrap.indent("".join(f"{line.rstrip()}\n" for line in lines.splitlines()), " " * indent)
        )
        if most is not None and len(table.rows) > most:
            self.show(f"{' ' * indent}and {len(table.rows) - most} more; --json prints all")

    def _folded(self, table: Table, width: int) -> str:
        """Return a table in so many columns of letters."""
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column, heading in zip(table.columns, table.headings(), strict=True):
            right = column.write is not None
            # Headings of numbers are longer than these.
            words = heading.replace(" ", "\n") if right else heading
            grid.add_column(Text(words), justify="right" if right else "left", overflow="fold", no_wrap=right)
        for row in table.texts():
            grid.add_row(*map(Text, row))
        output = self.output
        output.width = width
        with output.capture() as captured:
            output.print(grid)
        return captured.get()

    @property
    def remarks(self) -> Console:
        """Where remarks and progress go: standard error, or nowhere when quiet."""
        from rich.console import Console

        return Console(stderr=True, highlight=False, quiet=self.quiet)

    def remark(self, text: str, style: str | None = None) -> None:
        """Print a remark, in one line."""
        self.remarks.print(text, style=style, markup=False, soft_wrap=True)

    @contextmanager
    def warnings_shown(self, *, doubts: bool = True) -> Iterator[None]:
        """Show perflex's warnings of the block on standard error, each once and in one line.

        Not `doubts` about predictions where the result has them.
        """
        import warnings

        from perflex.errors import DoubtfulPredictionWarning, PerflexWarning

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PerflexWarning)
            if not doubts:
                warnings.simplefilter("ignore", DoubtfulPredictionWarning)
            try:
                yield
            finally:
                # Also before an error: a kernel that was left out may be why a fit has too little to go by.
                for text in dict.fromkeys(str(entry.message) for entry in caught):
                    self.remark(f"warning: {text}", style="yellow")

    @contextmanager
    def progress(self, title: str) -> Iterator[Callable[[int, int, str], None]]:
        """Show a progress bar on standard error while the block runs, unless quiet or not a terminal."""
        from perflex.progress import progress_bar

        with progress_bar(title, self.remarks, hidden=self.quiet or not sys.stderr.isatty()) as show:
            yield show


@contextmanager
def printable() -> Iterator[None]:
    """Let standard output and error take any text in the block: what their encoding lacks is written as escapes."""
    # A process that was started without one has none.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for the rest of the process
    changed = [
        (stream, stream.errors)
        for stream in (sys.stdout, sys.stderr)
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict"
    ]
    for stream, _ in changed:
        stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        # Where this is not the process's end, as in tests. To a full disk it cannot be, for that writes.
        for stream, errors in changed:
            with suppress(OSError):
                stream.reconfigure(errors=errors)


def discard_full_errors() -> None:
    """Write nothing to standard error any more if it takes no more: Python would end with a code of its own."""
    try:
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Write nothing to a stream any more, not even at the process's end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def sizes_text(sizes: Mapping[str, object]) -> str:
    """Return sizes as results are headed by them: ``n=1024, m=2``, or that there are none."""
    return ", ".join(f"{name}={value}" for name, value in sizes.items()) or "no sizes"


def terminal_of(context: typer.Context) -> Terminal:
    """Return the terminal that a command prints to."""
    terminal = context.find_object(Terminal)
    return Terminal() if terminal is None else terminal
