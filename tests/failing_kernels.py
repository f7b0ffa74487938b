"""Kernels that do what drivers suffer from: no end, a crash, code that no compiler takes."""

from __future__ import annotations

import loopy as lp
import numpy as np

__all__ = ["crashing", "endless", "good", "not_compiling"]


def good(factor: float = 2.0, name: str = "good") -> lp.TranslationUnit:
    kernel = lp.make_kernel(
        "{[i]: 0<=i<n}", f"b[i] = {factor}*a[i] + sqrt(a[i])", assumptions="n>=1", lang_version=(2018, 2), name=name
    )
    kernel = lp.add_dtypes(kernel, {"a": np.float32, "b": np.float32})
    return lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0")


def _with_code(code: str, name: str) -> lp.TranslationUnit:
    kernel = lp.make_kernel(
        "{[i]: 0<=i<n}",
        [lp.CInstruction(("i",), code, assignees=("b[i]",))],
        [lp.GlobalArg("b", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        assumptions="n>=1",
        lang_version=(2018, 2),
        name=name,
    )
    return lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0")


def endless() -> lp.TranslationUnit:
    return _with_code("volatile int go = 1; while (go) { }", "endless")


def crashing() -> lp.TranslationUnit:
    """Write to an address that no process has."""
    return _with_code("*(volatile __global int *)8 = 1;", "crashing")


def not_compiling() -> lp.TranslationUnit:
    return _with_code("no_such_function(1)(2);", "not_compiling")
