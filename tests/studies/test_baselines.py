"""Trivial predictions, against values worked out by hand."""

from __future__ import annotations

import math

import loopy as lp
import numpy as np
import pytest

from perflex.errors import CalibrationError
from perflex.studies.baselines import (
    KNOWLEDGE,
    Peaks,
    Work,
    copy_bandwidth,
    knowledge_of,
    knows_no_more,
    scaled,
    work_of,
)
from perflex.studies.demo import demo_study
from perflex.studies.evaluation.plan import plan_of
from perflex.studies.evaluation.studies import STUDIES
from perflex.studies.evaluation.trivial import baseline_times
from tests.bench.any_kernel_parts.cases import cases_of
from tests.bench.any_kernel_parts.families import families
from tests.bench.any_kernel_parts.judging import judge
from tests.bench.any_kernel_parts.methods import AsEnumerated, Roofline


def updated_rows() -> lp.TranslationUnit:
    """Return a kernel that updates n rows of 3 elements in place, from one row: 2 operations and a division each."""
    kernel = lp.make_kernel(
        "{[i, j]: 0 <= i < n and 0 <= j < 3}",
        "a[i, j] = a[i, j]*b[j] + c[i]/b[j]",
        [
            lp.GlobalArg("a", np.float64, shape="n, 3"),
            lp.GlobalArg("b", np.float32, shape="3"),
            lp.GlobalArg("c", np.float64, shape="n"),
            lp.ValueArg("n", np.int32),
        ],
        target=lp.PyOpenCLTarget(),
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    return lp.split_iname(kernel, "i", 16, outer_tag="g.0", inner_tag="l.0")


def test_work_is_counted_over_all_work_items() -> None:
    work = work_of(updated_rows(), {"n": 64})
    assert work.items == 64
    # A multiply-add and a division for each of 64 * 3 elements.
    assert work.operations == 2 * 64 * 3
    # a is loaded and stored, b and c are loaded.
    assert work.bytes == 2 * 64 * 3 * 8 + 3 * 4 + 64 * 8
    # Work-items of a group that has no full rows count, for they are started; operations do not.
    assert work_of(updated_rows(), {"n": 65}).items == 80
    assert work_of(updated_rows(), {"n": 65}).operations == 2 * 65 * 3


def test_a_timing_is_scaled_by_one_count() -> None:
    small, large = Work(100, 1000, 1), Work(400, 8000, 1)
    assert scaled(2e-3, small, large, "items") == pytest.approx(8e-3)
    assert scaled(2e-3, small, large, "operations") == pytest.approx(16e-3)
    with pytest.raises(CalibrationError, match="has no operations, so its time cannot be scaled by them"):
        scaled(2e-3, Work(100, 0, 1), large, "operations")


def test_the_roofline_is_the_nearer_limit() -> None:
    peaks = Peaks(operations_per_s=1e9, bytes_per_s=1e8)
    assert peaks.roofline(Work(1, 1e6, 1e6)) == pytest.approx(1e-2)
    assert peaks.roofline(Work(1, 1e8, 1e6)) == pytest.approx(1e-1)
    # 16777216 elements of 4 bytes, loaded and stored.
    assert copy_bandwidth(0.5) == 2 * 2 * 4 * 16777216


def test_knowledge_is_ordered() -> None:
    assert [[knows_no_more(one, other) for other in KNOWLEDGE] for one in KNOWLEDGE] == [
        [True] * 4, [False] + [True] * 3, [False] * 2 + [True] * 2, [False] * 3 + [True],
    ]  # fmt: skip


@pytest.mark.parametrize("study", STUDIES)
def test_what_the_studies_models_have_seen(study: str) -> None:
    plan = plan_of(STUDIES[study], "f_cl_wall_time", 1.0)
    targets = list(plan.targets.values())
    found = {name: knowledge_of(kernels, targets) for name, kernels in plan.kernels.items()}
    # Finite differences are calibrated with the variants themselves; all else with parts of them.
    incore = "timing" if study == "fdiff" else "short launch"
    assert found == {"linear": "short launch", "overlap": "short launch", "partial": "short launch", "incore": incore}
    others = [kernel for kernel in plan.kernels["linear"] if not kernel.generator.endswith("_mem")]
    assert knowledge_of(others, targets) == "nothing"


@pytest.mark.parametrize("study", STUDIES)
def test_baselines_of_a_study_know_small_sizes_alone(study: str) -> None:
    plan = plan_of(STUDIES[study], "f_cl_wall_time", 1.0)
    trial, least = max(STUDIES[study].trial_sizes), min(STUDIES[study].sizes)
    assert {kernel.sizes[plan.study.size] for kernel in plan.small.values()} == {trial}
    seconds = {kernel.name: 1e-3 for kernel in plan.small.values()}
    cores = {variant: plan.confined(kernel) for variant, kernel in plan.small.items()}
    assert {core.generator for core in cores.values()} == {f"{plan.small[v].generator}_core" for v in cores}
    assert len({core.name for core in cores.values()}) == len(cores)
    seconds |= {core.name: 2e-3 for core in cores.values()}
    times = baseline_times(plan, seconds, Peaks(1e9, 1e9))
    assert times.keys() == plan.targets.keys()
    for (variant, size), made in times.items():
        target, small, core = plan.targets[variant, size], plan.small[variant], cores[variant]
        now, before, confined = (work_of(k.kernel, k.sizes) for k in (target, small, core))
        assert made == {
            "roofline": max(now.operations, now.bytes) / 1e9,
            "confined launch by operations": pytest.approx(2e-3 * now.operations / confined.operations),
            "scaled by work-items": pytest.approx(1e-3 * now.items / before.items),
            "scaled by operations": pytest.approx(1e-3 * now.operations / before.operations),
        }
        assert size >= least > trial
    # Where nothing was timed, nothing is scaled.
    assert all(made == {} for made in baseline_times(plan, {}, None).values())


def test_operations_of_matrix_multiplication() -> None:
    plan = plan_of(demo_study((96, 160)), "f_cl_wall_time", 1.0)
    assert {kernel.sizes["n"] for kernel in plan.small.values()} == {48}
    times = baseline_times(plan, {kernel.name: 1e-3 for kernel in plan.small.values()}, None)
    assert times["prefetch", 96] == {"scaled by work-items": 4e-3, "scaled by operations": 8e-3}
    assert plan.confined(plan.targets["prefetch", 96]) is None


def test_the_benchmark_refuses_and_counts_predictions_that_are_no_times() -> None:
    family = next(one for one in families("develop") if one.name == "mvt")
    times = dict.fromkeys(cases_of(family), 1e-3)
    # A roofline without limits takes no time at all, so that there is nothing to judge it by.
    rows, points = judge("device", [AsEnumerated(), Roofline(Peaks(math.inf, math.inf))], times)
    assert {row.method for row in rows} == {"order as enumerated"}
    assert {point["refused"] for point in points if point["method"] == "roofline"} == {"0 s is no time"}
