"""How the nasty kernels are written down: a decorator that collects them, and a short notation for their arrays."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "F4", "I4", "NASTY", "NastyKernel", "arrays", "kernel", "nasty", "per_element", "pointwise",
    "pointwise_kernel",
]  # fmt: skip

# Arrays that many kernels have.
F4 = "x, y, z: float32[n+4]"
I4 = "p, q: int32[n+4]; out: int32[n]"
# One work-item per element, in work-groups that do not divide the size.
ONE_PER_ELEMENT = 8


@dataclass(frozen=True)
class NastyKernel:
    """A kernel that is hard to count, and what is known about it beforehand.

    Attributes
    ----------
    name
        The function that makes it.
    make
        Makes the kernel.
    sizes
        Value of each size parameter.
    refused
        Pattern of the message with which counting refuses it; empty if it is counted.
    differs
        Rows in which the simulator sees something else: (counted, executed), for one of the reasons in
        ``nasty.__init__``.
    why
        The reason.
    """

    name: str
    make: Callable[[], Any]
    sizes: Mapping[str, int]
    refused: str = ""
    differs: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    why: str = ""


NASTY: dict[str, NastyKernel] = {}


def nasty(
    *, refused: str = "", differs: Mapping[str, tuple[int, int]] | None = None, why: str = "", **sizes: int
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Collect a kernel under its function's name."""

    def collect(make: Callable[[], Any]) -> Callable[[], Any]:
        name = make.__name__
        if name in NASTY:
            msg = f"two nasty kernels are called {name}"
            raise ValueError(msg)
        NASTY[name] = NastyKernel(name, make, sizes, refused, differs or {}, why)
        return make

    return collect


def arrays(text: str, order: str = "C") -> list[Any]:
    """Return arguments from lines such as ``x, y: float32[n + 1, 4]``, ``s: int32`` (a value)."""
    found: list[Any] = []
    for line in filter(None, (part.strip() for part in re.split(r"[;\n]", text))):
        names, _, kind = line.partition(":")
        dtype, bracket, shape = kind.strip().partition("[")
        for name in (word.strip() for word in names.split(",")):
            if bracket:
                extents = tuple(extent.strip() for extent in shape.rstrip("]").split(","))
                found.append(lp.GlobalArg(name, np.dtype(dtype), shape=extents, order=order))
            else:
                found.append(lp.ValueArg(name, np.dtype(dtype)))
    return found


def kernel(
    domains: str | list[str], text: Any, data: str, *more: Any, assume: str = "n >= 1", **options: Any
) -> lp.TranslationUnit:
    """Make a kernel; integers ``n`` and ``m`` are declared where they are used."""
    declared = arrays(data)
    known = {argument.name for argument in (*declared, *more) if hasattr(argument, "name")}
    used = set(re.findall(r"\b[nm]\b", f"{domains} {text} {data} {assume}"))
    sizes = [lp.ValueArg(name, np.int32) for name in sorted(used - known)]
    return lp.make_kernel(
        domains,
        text,
        [*declared, *more, *sizes],
        assumptions=assume,
        lang_version=(2018, 2),
        name="nasty",
        **options,
    )


def per_element(t_unit: lp.TranslationUnit, iname: str = "i", size: int = ONE_PER_ELEMENT) -> lp.TranslationUnit:
    """Give each iteration of a loop a work-item."""
    return lp.split_iname(t_unit, iname, size, outer_tag="g.0", inner_tag="l.0")


def pointwise(text: str, data: str = F4, **options: Any) -> lp.TranslationUnit:
    """One work-item per element of 13, in work-groups of 8."""
    return per_element(kernel("{[i]: 0<=i<n}", text, data, seq_dependencies=True, **options))


def pointwise_kernel(
    name: str,
    text: str,
    data: str = F4,
    *,
    refused: str = "",
    differs: Mapping[str, tuple[int, int]] | None = None,
    why: str = "",
    n: int = 13,
    **options: Any,
) -> None:
    """Collect a kernel of `pointwise`."""

    def make() -> lp.TranslationUnit:
        return pointwise(text, data, **options)

    make.__name__ = name
    nasty(refused=refused, differs=differs, why=why, n=n)(make)
