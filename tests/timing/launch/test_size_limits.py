"""Sizes that a fast device would get: limits of subscripts, and of how far sizes grow."""

from math import inf

import loopy as lp
import numpy as np
import pytest

from perflex.errors import MeasurementError
from perflex.models import SizeRule, load_model, model_names
from perflex.studies.evaluation.studies import STUDIES
from perflex.timing.launch.plan import plan_launch
from perflex.timing.launch.request import size_launch

# As many times as fast as the device that the shipped sizes suit: beyond any GPU there is.
FAST = 1000.0
MOST = 2**31 - 1


def _copy(index_dtype):
    kernel = lp.make_kernel(
        "{[g, l, j]: 0 <= l < 64 and 0 <= 64*g + l < n and 0 <= j < n}",
        "b[64*g + l, j] = a[64*g + l, j]",
        [lp.GlobalArg("a, b", np.float32, shape="n, n"), lp.ValueArg("n", np.int32)],
        index_dtype=index_dtype,
        lang_version=(2018, 2),
    )
    return lp.tag_inames(kernel, "g:g.0, l:l.0")


def test_arrays_beyond_the_reach_of_subscripts_are_refused():
    plan = plan_launch(_copy(np.int32))
    assert plan.most_elements == MOST
    largest = int(MOST**0.5)
    assert size_launch(plan, {"n": largest}, "copy").lengths["a"] == largest**2
    with pytest.raises(MeasurementError, match=rf"copy: array [ab] has {(largest + 1) ** 2} elements.*reach {MOST}"):
        size_launch(plan, {"n": largest + 1}, "copy")
    assert size_launch(plan_launch(_copy(np.int64)), {"n": 65536}, "copy").lengths["a"] == 2**32


@pytest.mark.parametrize("most", [1.0, 16.0, inf])
def test_sizes_grow_no_further_than_a_rule_says(most):
    rule = SizeRule(power=2, step=112, only_up=True, most=most)
    assert rule.sizes((2352, 5264), FAST) == rule.sizes((2352, 5264), min(FAST, most))
    assert rule.sizes((2352, 5264), 0.1) == rule.sizes((2352, 5264), 1.0) == (2352, 5264)


def test_studies_of_streamed_arrays_stay_within_subscripts_on_any_device():
    assert max(STUDIES["fdiff"].sizes_for(FAST)) ** 2 < MOST
    assert 3 * 64 * max(STUDIES["dg"].sizes_for(FAST)) < MOST


def test_rules_of_a_study_are_those_of_its_measurement_kernels():
    for study in ("fdiff", "dg"):
        own = STUDIES[study]
        for name in model_names():
            if name.startswith(f"{study}_"):
                for kernels in load_model(name).measurement_kernels:
                    if kernels.tags[0].startswith(study):
                        assert kernels.scale[own.size] == own.rule
