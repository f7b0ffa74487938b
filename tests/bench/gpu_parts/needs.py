"""What parts import late: a package that is missing is to show before time on a device is spent."""

from __future__ import annotations

from importlib import import_module

__all__ = ["missing"]

# The second needs Mako, which loopy asks for and imports only when it makes some kernels.
_NEEDED = ("perflex.isl", "loopy.library.random123", "pyopencl", "scipy.optimize", "sympy", "matplotlib.pyplot")


def missing(needed: tuple[str, ...] = _NEEDED) -> list[str]:
    """Return why modules that the study needs do not load, a line for each."""
    found = []
    for name in needed:
        try:
            import_module(name)
        except ImportError as error:
            found.append(str(error).splitlines()[0])
    return found
