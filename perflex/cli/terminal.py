"""What commands print to, and how much: results, remarks, warnings and progress."""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import TextIO

    import typer
    from rich.console import Console

    from perflex.cli.columns import Column

# On narrower terminals lines are broken by the terminal.
_LEAST_WIDTH = 40


@dataclass
class Terminal:
    """Where one run of the command line prints, by the options that hold for every command.

    Attributes
    ----------
    debug
        Show tracebacks of perflex's own errors.
    quiet
        Show results only: no progress, no remarks.
    """

    debug: bool = False
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
        """Print lines of a result, wrapped to the width.

        Parameters
        ----------
        lines
            Lines, or texts of several.
        style
            Style of all, as rich has it.
        bold
            So many characters at the beginning are bold.
        """
        from rich.text import Text

        from perflex.cli.columns import wrapped

        width = self.width
        text = Text("\n".join(one for line in lines for part in line.split("\n") for one in wrapped(part, width)))
        if style is not None:
            text.stylize(style)
        text.stylize("bold", 0, bold)
        self.output.print(text, soft_wrap=True)

    def show_paths(self, *paths: Path) -> None:
        """Print the files that were written, each in one line, however long: they are there to be copied."""
        self.output.print("\n".join(map(str, paths)), markup=False, soft_wrap=True)

    def show_table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
        """Print a table of a result, as `fitted_table` makes it, below its title."""
        from perflex.cli.columns import fitted_table

        if title:
            self.show(title, style="bold")
        self.output.print("\n".join(fitted_table(columns, rows, self.width)), markup=False, soft_wrap=True)

    @property
    def remarks(self) -> Console:
        """Where remarks and progress go: standard error, or nowhere when quiet."""
        from rich.console import Console

        return Console(stderr=True, highlight=False, quiet=self.quiet)

    def warn_of_unknown_sizes(self, given: Iterable[str], known: Iterable[str]) -> None:
        """Remark on sizes that no kernel has, which are of no effect."""
        there = tuple(dict.fromkeys(known))
        unknown = [name for name in given if name not in there]
        if unknown:
            names = f"its sizes are {', '.join(there)}" if there else "it has no sizes"
            text = f"warning: the kernel has no size {', '.join(unknown)}; {names}"
            self.remarks.print(text, style="yellow", markup=False, soft_wrap=True)

    @contextmanager
    def warnings_shown(self) -> Iterator[None]:
        """Show perflex's warnings of the block on standard error, each once and in one line."""
        import warnings

        from perflex.errors import PerflexWarning

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PerflexWarning)
            try:
                yield
            finally:
                # Also before an error: a kernel that was left out may be why a fit has too little to go by.
                for text in dict.fromkeys(str(entry.message) for entry in caught):
                    self.remarks.print(f"warning: {text}", style="yellow", markup=False, soft_wrap=True)

    @contextmanager
    def progress(self, title: str) -> Iterator[Callable[[int, int, str], None]]:
        """Show a progress bar on standard error while the block runs, unless quiet or not a terminal.

        Yields
        ------
        Callable
            To be called with steps done, steps in all, and what is being done: what `measure` expects.
        """
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


def discard_output() -> None:
    """Write nothing to standard output any more, not even at the process's end."""
    _discard(sys.stdout)


def discard_full_errors() -> None:
    """Write nothing to standard error any more if it takes no more: Python would end with a code of its own."""
    try:
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def terminal_of(context: typer.Context) -> Terminal:
    """Return the terminal that a command prints to."""
    terminal = context.find_object(Terminal)
    return Terminal() if terminal is None else terminal
