"""How the nasty kernels are written down: a table of texts and transformations, in a short notation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import loopy as lp
import numpy as np

from support.written_kernels import written

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


NASTY = {}


def nasty(
    name, domains, text, data, steps="", *, more=(), then=None, at=None, refused="", differs=None, why="", **options
):
    """Collect a kernel as of `written`, with `then` a function that transforms it further."""

    def make():
        made = written(domains, text, data, steps, more=more, name="nasty", **options)
        return made if then is None else then(made)

    assert name not in NASTY, name
    NASTY[name] = NastyKernel(name, make, {"n": 13} if at is None else at, refused, differs or {}, why)


def pointwise(name, text, data="x, y, z: float32[n+4]", **options):
    """Collect a kernel of one work-item per element of 13, in work-groups of 8."""
    nasty(name, "{[i]: 0<=i<n}", text, data, ELEMENTS, seq_dependencies=True, **options)


def local(name, *shape, **more):
    """Return an array in local memory."""
    return lp.TemporaryVariable(name, np.float32, shape=shape, address_space=lp.AddressSpace.LOCAL, **more)
