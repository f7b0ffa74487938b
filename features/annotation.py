"""What a user states about a kernel: how to count it, and what its description cannot tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from perflex.errors import UnsupportedKernelError
from perflex.features.scop.checks import read_fraction

# The stand-in of an access that may touch any element of its array.
ANYWHERE = "anywhere"


@dataclass(frozen=True)
class CountingOptions:
    """Stand-ins for what depends on a kernel's data; made by `annotate`.

    Attributes
    ----------
    trip_counts
        Average trip count of loops whose bounds depend on data: a number, or an affine expression in sizes.
    accesses
        Subscripts to count instead of indirect or non-affine ones, by access text, array name or ``tag:NAME``.
    """

    trip_counts: tuple[tuple[str, Fraction | str], ...] = ()
    accesses: tuple[tuple[str, str], ...] = ()


# Compared by identity: comparing and hashing loopy kernels by value is slow.
@dataclass(frozen=True, eq=False)
class AnnotatedKernel:
    """A loopy kernel with `CountingOptions`; taken wherever a kernel is.

    Attributes
    ----------
    translation_unit
        The loopy kernel.
    options
        How it is counted.
    """

    translation_unit: Any
    options: CountingOptions = field(default_factory=CountingOptions)

    @property
    def name(self) -> str:
        """The kernel's name."""
        return ",".join(sorted(self.translation_unit.entrypoints))

    @property
    def entrypoints(self) -> frozenset[str]:
        """Names of the kernel's entry points."""
        return frozenset(self.translation_unit.entrypoints)


def annotate(
    kernel: Any,
    *,
    trip_counts: Mapping[str, float | Fraction | str] | None = None,
    accesses: Mapping[str, str] | None = None,
) -> AnnotatedKernel:
    """State how a kernel is counted, and what stands for that which depends on its data.

    Parameters
    ----------
    kernel
        A loopy translation unit, or an annotated one, whose statements are kept unless made anew here.
    trip_counts
        Average trip count of loops whose bounds depend on data, e.g. ``{"j": 7.5}``, or an affine expression
        in sizes: ``{"j": "m + 1"}``.
    accesses
        Subscripts that stand for indirect or non-affine ones, e.g. ``{"x[idx[i]]": "4*i"}``. Keys are accesses
        as written or as messages print them, array names, or ``"tag:NAME"``; in values, names are loop variables
        (also those that were split since), sizes, or ``lid0, gid0, ...``. ``"anywhere"`` means any element of the
        array.

    Returns
    -------
    AnnotatedKernel
        To be used instead of the kernel: counted, timed, predicted. Counts that rest on a stand-in are
        marked as not exact.

    Raises
    ------
    UnsupportedKernelError
        A statement makes no sense by itself; whether it fits the kernel shows when the kernel is counted.
    """
    before = CountingOptions()
    if isinstance(kernel, AnnotatedKernel):
        kernel, before = kernel.translation_unit, kernel.options
    if not hasattr(kernel, "entrypoints"):
        msg = f"only a loopy kernel can be annotated, not a {type(kernel).__name__}"
        raise UnsupportedKernelError(msg)
    trips = {loop: _trips(loop, count) for loop, count in (trip_counts or {}).items()}
    # Blanks between words stay: ``x[i if i > 3 else 0]``.
    stand_ins = {re.sub(r"(?<!\w)\s+|\s+(?!\w)", "", key): str(value) for key, value in (accesses or {}).items()}
    options = CountingOptions(_merged(before.trip_counts, trips), _merged(before.accesses, stand_ins))
    return AnnotatedKernel(kernel, options)


def _merged(before: tuple[tuple[str, Any], ...], new: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    # Sorted: what is stated in another order is the same in the store.
    return tuple(sorted((dict(before) | dict(new)).items()))


def _trips(loop: str, count: float | Fraction | str) -> Fraction | str:
    number = read_fraction(str(count))
    if number is not None:
        return number
    if isinstance(count, str):
        try:
            float(count)
        except ValueError:  # an expression
            return count
    msg = f"the trip count of loop {loop!r} must be a number or an expression in sizes, and above zero, not {count!r}"
    raise UnsupportedKernelError(msg, loop=loop)
