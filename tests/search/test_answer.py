"""Variants that compute something else than the others, or than what is expected, are not among the results."""

import math
import re

import loopy as lp
import numpy as np
import pytest

from perflex import SearchOptions, TimingOptions, VariantSpace, tune
from perflex.errors import CalibrationError, MeasurementError
from perflex.testing import FakeDevice
from support.spaces_for_tests import small_space

QUICK = TimingOptions(trials=3, min_trials=2, budget_s=0.05)


def updated(*, lsize, factor, staged=0):
    """An array that is updated; with one more argument, and in another order."""
    statements = f"y[i] = y[i] + {factor} * s * x[i]"
    arguments = [lp.GlobalArg("x, y", np.float32, shape="n"), lp.ValueArg("s", np.float32), lp.ValueArg("n", np.int32)]
    if staged:
        arguments = [lp.GlobalArg("w", np.float32, shape="n"), *reversed(arguments)]
        statements = f"y[i] = y[i] + {factor} * s * x[i] + 0 * w[i]"
    kernel = lp.make_kernel(
        "{[i]: 0 <= i < n}", statements, arguments, name="updated", lang_version=(2018, 2), target=lp.PyOpenCLTarget()
    )
    kernel = lp.assume(kernel, f"n >= 1 and n mod {lsize} = 0")
    return lp.split_iname(kernel, "i", lsize, outer_tag="g.0", inner_tag="l.0")


def some(*, lsize, every):
    """Every element, or every second one: the others stay as they were."""
    kernel = lp.make_kernel(
        f"{{[i]: 0 <= i < n and i mod {every} = 0}}", "y[i] = x[i] + 1",
        [lp.GlobalArg("x, y", np.float32, shape="n"), lp.ValueArg("n", np.int32)], name="some",
        lang_version=(2018, 2), target=lp.PyOpenCLTarget(),
    )  # fmt: skip
    kernel = lp.assume(kernel, f"n >= 1 and n mod {lsize} = 0")
    return lp.split_iname(kernel, "i", lsize, outer_tag="g.0", inner_tag="l.0")


def searched(space, device, answer, **more):
    options = SearchOptions(8, promise=False, timing=QUICK, answer=answer, **more)
    return tune(space, {"n": 1024}, device=device, options=options)


@pytest.mark.parametrize("isolate", [True, False])
def test_what_differs_from_the_first_fails(default_device, isolate):
    space = VariantSpace(updated, {"lsize": (16, 32), "factor": (3, "3.0001f"), "staged": (0, 1)})
    timing = TimingOptions(trials=3, min_trials=2, budget_s=0.05, isolate=isolate)
    options = SearchOptions(8, promise=False, timing=timing, answer=True)
    # The same data under the same names, whatever else a variant takes; rounding alone is nothing.
    assert not tune(space, {"n": 1024}, device=default_device, options=options).failures
    space = VariantSpace(some, {"lsize": (16, 32), "every": (1, 2)})
    found = tune(space, {"n": 1024}, device=default_device, options=options)
    assert sum(found.failures.values()) == 2
    assert all(cause.startswith("wrong result: y differs by ") for cause in found.failures)
    assert {step.settings["every"] for step in found.history if not math.isnan(step.seconds)} == {
        found.best.settings["every"]
    }


def test_a_function_says_what_to_expect(default_device):
    space = VariantSpace(updated, {"lsize": (16, 32), "factor": (3, 4)})
    found = searched(space, default_device, lambda given: {"y": given["y"] + 3 * given["s"] * given["x"]})
    assert {step.settings["factor"] for step in found.history if not math.isnan(step.seconds)} == {3}
    ((cause, count),) = found.failures.items()
    # 0.75 x / (y + 2.25 x), each between 0.5 and 1.5.
    assert re.fullmatch(r"wrong result: y differs by [23]\.\de-01 from the answer", cause)
    assert count == 2
    assert not searched(space, default_device, lambda given: {"y": 4.3 * given["y"]}, tolerance=10).failures


def counted(*, lsize, first):
    """Whole numbers, of which those of variants differ by one in 10,000."""
    arguments = [lp.GlobalArg("y", np.int32, shape="n"), lp.ValueArg("n", np.int32)]
    kernel = lp.make_kernel(
        "{[i]: 0 <= i < n}", f"y[i] = {first} + i", arguments, lang_version=(2018, 2), target=lp.PyOpenCLTarget()
    )
    kernel = lp.assume(kernel, f"n >= 1 and n mod {lsize} = 0")
    return lp.split_iname(kernel, "i", lsize, outer_tag="g.0", inner_tag="l.0")


def test_whole_numbers_must_be_equal(default_device):
    found = searched(VariantSpace(counted, {"lsize": (16,), "first": (10_000, 10_001)}), default_device, True)
    assert sum(found.failures.values()) == 1


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (lambda _: {}, CalibrationError, "nothing to compare, but {}"),
        (lambda _: None, CalibrationError, "nothing to compare, but None"),
        (lambda _: {"z": np.ones(3)}, MeasurementError, "wrong result: z has 0 elements, not 3 as the answer"),
        (lambda _: {"y": np.ones(2000)}, MeasurementError, "wrong result: y has 1024 elements, not 2000"),
    ],
)
def test_what_is_no_answer(default_device, answer, error, text):
    with pytest.raises(error, match=text):
        searched(VariantSpace(some, {"lsize": (16, 32), "every": (1,)}), default_device, answer)


def test_where_there_is_nothing_to_compare():
    with pytest.raises(CalibrationError, match="this device tells no results"):
        searched(small_space(), FakeDevice(lambda *_: 1e-3), True)
    with pytest.raises(CalibrationError, match="your own function times variants"):
        tune(small_space(), {"n": 1024}, measure=lambda _: 1.0, options=SearchOptions(answer=True))
