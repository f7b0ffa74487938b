"""What commands print to, and how much: results, remarks, warnings and progress."""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TextIO

    import typer
    from rich.console import Console

# Files and pipes have no width to keep to.
_PIPE_WIDTH = 150


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

        console = Console(highlight=False)
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console.width = _PIPE_WIDTH
        return console

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
