"""Which samples others disturbed, from made-up reports of the system."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflex.timing.disturbance import disturbed, full_use, lacking_seconds, used_samples
from support.timing_samples import Sample, SystemActivity

# A kernel of 10 ms that has two processors to itself.
QUIET = SystemActivity(elapsed_s=0.01, processor_s=0.02, waited_s=0.0, stolen_s=0.0, others_s=0.0, switches=0)


def sample(activity, seconds=0.01, launches=1):
    return Sample(seconds, launches, 0.0, "s", 0, activity)


@pytest.mark.parametrize(
    ("changes", "lacking"),
    [
        ({"waited_s": 0.004}, 0.004),
        ({"stolen_s": 0.01}, 0.01),
        # One of two workers never ran, and so has not been reported to wait: 10 ms of one processor instead of two.
        ({"processor_s": 0.01}, 0.005),
        # The largest counts, not the sum: these tell of the same lack.
        ({"processor_s": 0.01, "waited_s": 0.003, "stolen_s": 0.004}, 0.005),
    ],
)
def test_samples_that_lacked_processors_are_disturbed(changes, lacking):
    poor = replace(QUIET, **changes)
    own = [sample(QUIET)] * 9 + [sample(poor)]
    assert lacking_seconds(own)[-1] == pytest.approx(lacking)
    assert lacking_seconds(own)[:-1].tolist() == [0] * 9
    assert disturbed(own).tolist() == [False] * 9 + [True]


def waited(seconds):
    return replace(QUIET, waited_s=seconds)


HOT, COLD = SystemActivity(throttled=True), SystemActivity(throttled=False)
SHORT = SystemActivity(elapsed_s=1e-4, processor_s=2e-4, waited_s=1e-4)


@pytest.mark.parametrize(
    ("activities", "shape", "expected"),
    [
        # A lack of a tenth is allowed, and what waking takes: 10 ms give 1 ms; 0.1 ms, and 0.02 ms for the launch.
        ([*[QUIET] * 8, waited(0.00111), waited(0.00113)], {}, [False] * 9 + [True]),
        # Waiting for 0.1 ms is not more than what waking threads takes.
        ([SHORT] * 5, {"seconds": 1e-4}, [False] * 5),
        # All launches of a sample count, and each wakes threads.
        ([waited(0.00129), waited(0.00131)], {"seconds": 0.001, "launches": 10}, [False, True]),
        # Other work elsewhere on the machine.
        ([*[QUIET] * 5, replace(QUIET, others_s=0.5, switches=7)], {}, [False] * 6),
        # A kernel that uses one processor only lacks none.
        ([replace(QUIET, processor_s=0.01)] * 10, {}, [False] * 10),
        # A lowered clock, with nothing else known; one that is mostly lowered is how the device runs.
        ([HOT, COLD, SystemActivity(), None], {}, [True, False, False, False]),
        ([HOT, COLD, HOT, COLD], {}, [True, False, True, False]),
        ([HOT, HOT, HOT, COLD], {}, [False] * 4),
        # What is not known.
        ([None, SystemActivity(), SystemActivity(elapsed_s=0.01), SystemActivity(processor_s=0.01)], {}, [False] * 4),
        ([None, QUIET, waited(0.005), None], {}, [False, False, True, False]),
        # No time at all has passed by a coarse clock.
        ([SystemActivity(elapsed_s=0.0, processor_s=0.0, waited_s=0.0)], {}, [False]),
        ([], {}, []),
    ],
)
def test_which_samples_are_disturbed(activities, shape, expected):
    assert disturbed([sample(activity, **shape) for activity in activities]).tolist() == expected


ACTIVITIES = st.builds(
    SystemActivity,
    elapsed_s=st.none() | st.floats(0, 0.1),
    processor_s=st.none() | st.floats(0, 0.4),
    waited_s=st.none() | st.floats(0, 0.1),
    stolen_s=st.none() | st.sampled_from([0.0, 0.01, 0.02]),
    throttled=st.none() | st.booleans(),
)
SAMPLES = st.lists(
    st.builds(sample, st.none() | ACTIVITIES, st.floats(1e-6, 0.1), st.integers(1, 5)), min_size=1, max_size=15
)


@given(SAMPLES, st.floats(1, 100))
def test_undisturbed_samples_would_be_so_if_they_were_longer(samples, factor):
    before = disturbed(samples)
    after = disturbed([replace(one, seconds=one.seconds * factor) for one in samples])
    assert not (after & ~before).any()
    # What the system reports is not changed by it.
    np.testing.assert_array_equal(
        lacking_seconds(samples), lacking_seconds([replace(one, seconds=one.seconds * factor) for one in samples])
    )


@given(SAMPLES, st.randoms(use_true_random=False))
def test_marks_do_not_depend_on_the_order(samples, order):
    places = list(range(len(samples)))
    order.shuffle(places)
    np.testing.assert_array_equal(disturbed([samples[i] for i in places]), disturbed(samples)[places])


@given(SAMPLES)
def test_three_undisturbed_samples_are_used_as_they_are(samples):
    used, poor = used_samples(samples, 2.0)
    clean = [one for one, bad in zip(samples, disturbed(samples), strict=True) if not bad]
    if len(clean) >= min(3, len(samples)):
        assert (used, poor) == (clean, False)
    else:
        assert poor
        assert used


@given(SAMPLES, st.floats(0.5, 8))
def test_no_sample_becomes_longer_or_nothing(samples, full):
    used, _ = used_samples(samples, full)
    before = {id(one.activity): one for one in samples}
    for one in used:
        assert 0 <= one.seconds <= before[id(one.activity)].seconds or one in samples


def used(seconds, processors, waited_s=0.0, **more):
    return sample(
        SystemActivity(elapsed_s=seconds, processor_s=processors * seconds, waited_s=waited_s, **more), seconds
    )


ALONE, CLOCKED = used(0.02, 1, stolen_s=0.01), [sample(HOT, 0.03), sample(waited(0.002))] * 2


@pytest.mark.parametrize(
    ("own", "full", "seconds"),
    [
        # Others use 2 of 2 processors; these got 1.6, 1.8 and 1.5, and one of their threads waited for it.
        ([used(0.02, use, 0.008) for use in (1.6, 1.8, 1.5)], 2.0, [0.016, 0.018, 0.015]),
        # One work-group uses one processor, and lacks none. Nobody waited but for the clock.
        ([ALONE] * 4, 2.0, [0.02] * 4),
        # Undisturbed once, which tells of two processors; a worker never ran in the others, and was not seen to wait.
        ([used(0.002, 2), *[used(0.004, 1)] * 3], math.nan, [0.002] * 4),
        # Those of a lowered clock count only where there are no others.
        (CLOCKED, 2.0, [0.01, 0.01]),
        # No time at all by the system's clock.
        ([sample(SystemActivity(elapsed_s=2e-313, processor_s=0.25, waited_s=0.0625), 0.0625)], 1.0, [0.0625]),
    ],
)
def test_where_all_are_disturbed_what_they_lacked_is_taken_off(own, full, seconds):
    found, poor = used_samples(own, full)
    assert poor
    assert [one.seconds for one in found] == pytest.approx(seconds)


def test_full_use_is_that_of_the_best_samples_of_long_kernels():
    def kernel(seconds, *uses):
        return [sample(SystemActivity(elapsed_s=seconds, processor_s=seconds * use), seconds) for use in uses]

    long = [kernel(0.01, 2.0, 2.0, 1.0), kernel(0.02, 1.9, 1.9, 1.2), kernel(0.01, 1.0, 1.0)]
    assert full_use([*long, kernel(1e-4, 4.0, 4.0)]) == pytest.approx(2.0, rel=0.03)
    assert math.isnan(full_use([kernel(1e-4, 2.0)]))
    assert math.isnan(full_use([[sample(None)]]))
