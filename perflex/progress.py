"""The progress bar: one for the command line and for whoever asks for it with ``progress=True``."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from rich.console import Console

# How often the bar is drawn anew.
_PAUSE_S = 0.5

# Is called with steps done, steps in all, and what is being done.
Progress: TypeAlias = "Callable[[int, int, str], None]"


@contextmanager
def progress_bar(title: str, console: Console, *, hidden: bool = False) -> Iterator[Progress]:
    """Show a bar while the block runs, drawn anew at reports only: a thread that draws would disturb kernels at work.

    Yields
    ------
    Callable
        To be called with steps done, steps in all, and what is being done.
    """
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    # Brackets in a kernel's label are no markup.
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    bar = Bar(*columns, TimeElapsedColumn(), console=console, transient=True, disable=hidden, auto_refresh=False)
    with bar:
        task = bar.add_task(title, total=None)
        drawn = float("-inf")

        def show(done: int, total: int, doing: str) -> None:
            nonlocal drawn
            now = time.monotonic()
            due = now - drawn >= _PAUSE_S
            drawn = now if due else drawn
            bar.update(task, completed=done, total=total, description=f"{title} {doing}".strip()[:60], refresh=due)

        yield show


@contextmanager
def progress_shown(progress: bool | Progress | None, title: str) -> Iterator[Progress | None]:
    """Yield what reports progress: a bar on standard error for True, nothing for False or None, else what was given."""
    if callable(progress):
        yield progress
    elif progress:
        from rich.console import Console

        with progress_bar(title, Console(stderr=True, highlight=False), hidden=not sys.stderr.isatty()) as show:
            yield show
    else:
        yield None


@dataclass(frozen=True)
class RunOptions:
    """Where kernels are counted, and who is told how far work is.

    Attributes
    ----------
    executor
        Where kernels are counted and their code is generated; a pool of processes uses all cores.
    progress
        True for a progress bar; or called with (done, total, what) as work proceeds.
    """

    executor: Executor | None = None
    progress: bool | Progress | None = None
