"""Small kernels with parameters, as functions of a module: worker processes can be sent them."""

import loopy as lp
import numpy as np

from perflex import VariantSpace


def scaled(*, lsize, repeats, dead=0):
    """Powers of an array's elements by `repeats` multiplications; `dead` changes nothing, or builds nothing."""
    if dead == 7:
        return None
    if dead == 8:
        msg = f"cannot make {repeats} of {lsize}"
        raise ValueError(msg)
    body = " * ".join(["x[i]"] * (repeats + 1))
    kernel = lp.make_kernel(
        "{[i]: 0 <= i < n}", f"y[i] = {body}",
        [lp.GlobalArg("x, y", np.float32, shape="n"), lp.ValueArg("n", np.int32)], name="scaled",
        lang_version=(2018, 2), target=lp.PyOpenCLTarget(),
    )  # fmt: skip
    kernel = lp.assume(kernel, f"n >= 1 and n mod {lsize} = 0")
    return lp.split_iname(kernel, "i", lsize, outer_tag="g.0", inner_tag="l.0")


def small_space(**more):
    """Nine variants."""
    return VariantSpace(scaled, {"lsize": (16, 32, 64), "repeats": (1, 2, 4), **more}, name="scaled")


def strided(*, lsize, stride):
    """Every `stride`-th element of an array: of large strides, an array that no device holds."""
    kernel = lp.make_kernel(
        "{[i]: 0 <= i < n}", f"y[{stride}*i] = 1",
        [lp.GlobalArg("y", np.float32, shape=f"{stride}*n"), lp.ValueArg("n", np.int32)], name="strided",
        lang_version=(2018, 2), target=lp.PyOpenCLTarget(),
    )  # fmt: skip
    kernel = lp.assume(kernel, f"n >= 1 and n mod {lsize} = 0")
    return lp.split_iname(kernel, "i", lsize, outer_tag="g.0", inner_tag="l.0")
