"""The one place that imports islpy: checks that it can count, and gives isl objects without noise."""

from __future__ import annotations

import islpy as isl

from perflex.errors import EnvironmentSetupError

__all__ = ["isl"]


def _check() -> None:
    if not hasattr(isl.Set, "card"):
        msg = (
            "the installed islpy cannot count (plain islpy shadows islpy-barvinok); mend it with: "
            "uv pip uninstall islpy islpy-barvinok && uv pip install --no-deps islpy-barvinok"
        )
        raise EnvironmentSetupError(msg)


_check()
