"""How numbers of measurements are said."""

from __future__ import annotations

__all__ = ["together"]


def together(samples: int, failures: int, nameless: int = 0) -> str:
    """Return numbers as words, such as ``1 sample and 0 failures``.

    `nameless` are measurements whose kernel's name was lost to damage; they are mentioned where there are any.
    """
    text = f"{samples} sample{'s'[: samples != 1]} and {failures} failure{'s'[: failures != 1]}"
    return text + (f" (kernels without their names: {nameless})" if nameless else "")
