"""Symbols for quantities that derivatives may hold fixed: numpy computes them, sympy takes them for constants.

The scale of a smooth maximum cancels, so that its own derivative adds nothing; whether a number is zero changes nowhere
else. Written out, both would leave steps and impulses in the derivatives.
"""

from __future__ import annotations

from typing import Any

import sympy


# sympy has no types.
class _Held(sympy.Function):  # type: ignore[misc]
    is_real = True

    def fdiff(self, argindex: int = 1) -> Any:  # noqa: ARG002 - sympy passes the argument to differentiate by
        """Return the derivative by an argument: none."""
        return sympy.Integer(0)


class largest(_Held):  # noqa: N801 - written so by sympy's printers, and read so by numpy's functions
    """The largest of its arguments."""


class is_zero(_Held):  # noqa: N801
    """1 where its argument is zero, else 0."""

    nargs = 1

    @classmethod
    def eval(cls, value: Any) -> Any:
        """Return its value where that is known already."""
        return sympy.Integer(int(value == 0)) if value.is_number else None
