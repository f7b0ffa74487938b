"""Kernels that do what drivers suffer from: no end, a crash, code that no compiler takes.

They are counted like any other kernel, for what is wrong with them is in a macro that loopy knows nothing of.
"""

import loopy as lp
import numpy as np

__all__ = ["crashing", "endless", "good", "not_compiling"]


def good(factor=2.0, name="good"):
    kernel = lp.make_kernel(
        "{[i]: 0<=i<n}", f"b[i] = {factor}*a[i] + sqrt(a[i])", assumptions="n>=1", lang_version=(2018, 2), name=name
    )
    kernel = lp.add_dtypes(kernel, {"a": np.float32, "b": np.float32})
    return lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0")


def _no_end(_):
    yield "root", "int no_end(void) { volatile int go = 1; while (go) { } return 0; }\n#define sqrt(x) (x + no_end())"


def _wild_pointer(_):
    yield "root", "#define sqrt(x) ((*(volatile __global int *)8 = 1), x)"


def _unknown_function(_):
    yield "root", "#define sqrt(x) no_such_function(x)(2)"


def endless():
    return lp.register_preamble_generators(good(name="endless"), [_no_end])


def crashing():
    """Write to an address that no process has."""
    return lp.register_preamble_generators(good(name="crashing"), [_wild_pointer])


def not_compiling():
    return lp.register_preamble_generators(good(name="not_compiling"), [_unknown_function])
