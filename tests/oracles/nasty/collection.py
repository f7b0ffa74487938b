"""How the nasty kernels are written down: a table of texts and transformations, in a short notation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np

from support.written_kernels import written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["ELEMENTS", "NASTY", "TILES", "NastyKernel", "local", "nasty", "pointwise"]

# One work-item per element, in work-groups that do not divide the size; tiles of the same kind.
ELEMENTS = "i/8: g.0, l.0"
TILES = "i/4: g.1, l.1; j/8: g.0, l.0"


@dataclass(frozen=True)
class NastyKernel:
    """A kernel that is hard to count, and what is known about it beforehand.

    It is refused with a message of a pattern, or counted. Rows in which the simulator sees something else differ:
    (counted, executed), and why, for one of the reasons in ``nasty.__init__``.
    """

    name: str
    make: Callable[[], Any]
    sizes: Mapping[str, int]
    refused: str = ""
    differs: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    why: str = ""


NASTY: dict[str, NastyKernel] = {}


def nasty(
    name: str,
    domains: str | list[str],
    text: Any,
    data: str,
    steps: str = "",
    *,
    more: Sequence[Any] = (),
    then: Callable[[Any], Any] | None = None,
    at: Mapping[str, int] | None = None,
    refused: str = "",
    differs: Mapping[str, tuple[int, int]] | None = None,
    why: str = "",
    **options: Any,
) -> None:
    """Collect a kernel as of `written`, with `then` a function that transforms it further."""

    def make() -> Any:
        made = written(domains, text, data, steps, more=more, name="nasty", **options)
        return made if then is None else then(made)

    assert name not in NASTY, name
    NASTY[name] = NastyKernel(name, make, {"n": 13} if at is None else at, refused, differs or {}, why)


def pointwise(name: str, text: str, data: str = "x, y, z: float32[n+4]", **options: Any) -> None:
    """Collect a kernel of one work-item per element of 13, in work-groups of 8."""
    nasty(name, "{[i]: 0<=i<n}", text, data, ELEMENTS, seq_dependencies=True, **options)


def local(name: str, *shape: int, **more: Any) -> lp.TemporaryVariable:
    """Return an array in local memory."""
    return lp.TemporaryVariable(name, np.float32, shape=shape, address_space=lp.AddressSpace.LOCAL, **more)
