"""Kernels that are made where they are counted: a tuning space has hundreds, and each takes as long as its counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Later:
    """A kernel that is not made yet.

    Attributes
    ----------
    make
        Returns the kernel (loopy kernel or Scop).
    arguments
        What it is given.
    """

    make: Callable[..., Any]
    arguments: tuple[Any, ...]


def made(kernel: Any) -> Any:
    """Return a row's kernel, which is made now if it was not."""
    return kernel.make(*kernel.arguments) if isinstance(kernel, Later) else kernel
