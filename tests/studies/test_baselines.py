"""Trivial predictions, against values worked out by hand."""

from types import SimpleNamespace

import loopy as lp
import numpy as np
import pytest

from perflex.errors import CalibrationError, UnsupportedKernelError
from perflex.studies.evaluation.baselines import (
    KNOWLEDGE,
    Peaks,
    Work,
    baseline_times,
    copy_bandwidth,
    distinct_bytes_of,
    knowledge_of,
    knows_no_more,
    scaled,
    work_of,
)
from perflex.studies.evaluation.studies import STUDIES, plan_of
from tests.bench.judging import Method, by_part, judged, write_cases
from uipick import ALL_GENERATORS, KernelCollection


def updated_rows():
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


def test_work_is_counted_over_all_work_items():
    work = work_of(updated_rows(), {"n": 64})
    assert work.items == 64
    # A multiply-add and a division for each of 64 * 3 elements.
    assert work.operations == 2 * 64 * 3
    # a is loaded and stored, b and c are loaded.
    assert distinct_bytes_of(updated_rows(), {"n": 64}) == 2 * 64 * 3 * 8 + 3 * 4 + 64 * 8
    # Work-items of a group that has no full rows count, for they are started; operations do not.
    assert work_of(updated_rows(), {"n": 65}).items == 80
    assert work_of(updated_rows(), {"n": 65}).operations == 2 * 65 * 3


def test_work_needs_no_footprint(monkeypatch):
    """Footprints of scattered subscripts take long or are refused; operations and work-items are known all the same."""

    def refuse(*_):
        raise UnsupportedKernelError("no footprint")  # noqa: EM101

    monkeypatch.setattr("perflex.features.counting.scop_counts.ScopCounts.footprint_among", refuse)
    assert work_of(updated_rows(), {"n": 64}) == Work(items=64, operations=2 * 64 * 3)
    with pytest.raises(UnsupportedKernelError, match="no footprint"):
        distinct_bytes_of(updated_rows(), {"n": 64})


def test_a_timing_is_scaled_by_one_count():
    small, large, idle = Work(100, 1000), Work(400, 8000), Work(100, 0)
    assert scaled(2e-3, small, large, "items") == pytest.approx(8e-3)
    assert scaled(2e-3, small, large, "operations") == pytest.approx(16e-3)
    for pair, what in (((idle, large), "that was timed"), ((small, idle), "to predict")):
        with pytest.raises(CalibrationError, match=f"{what} has no operations, so its time cannot be scaled"):
            scaled(2e-3, *pair, "operations")


def test_the_roofline_is_the_nearer_limit():
    peaks = Peaks(operations_per_s=1e9, bytes_per_s=1e8)
    assert peaks.roofline(Work(1, 1e6), 1e6) == pytest.approx(1e-2)
    assert peaks.roofline(Work(1, 1e8), 1e6) == pytest.approx(1e-1)
    assert peaks.roofline(Work(1, 0), 1e6) == pytest.approx(1e-2)
    with pytest.raises(CalibrationError, match="neither operations nor bytes"):
        peaks.roofline(Work(1, 0), 0)
    # 16777216 elements of 4 bytes, loaded and stored.
    assert copy_bandwidth(0.5) == 2 * 2 * 4 * 16777216


def test_knowledge_is_ordered():
    assert [[knows_no_more(one, other) for other in KNOWLEDGE] for one in KNOWLEDGE] == [
        [True] * 4, [False] + [True] * 3, [False] * 2 + [True] * 2, [False] * 3 + [True],
    ]  # fmt: skip


@pytest.mark.parametrize("study", STUDIES)
def test_what_the_studies_models_have_seen(study):
    plan = plan_of(STUDIES[study], "f_cl_wall_time", 1.0)
    targets = list(plan.targets.values())
    found = {name: knowledge_of(kernels, targets) for name, kernels in plan.kernels.items()}
    # Finite differences are calibrated with the variants themselves; all else with parts of them.
    incore = "timing" if study == "fdiff" else "reduced kernels"
    assert found == dict.fromkeys(("linear", "overlap", "partial"), "reduced kernels") | {"incore": incore}
    others = [kernel for kernel in plan.kernels["linear"] if not kernel.generator.endswith("_mem")]
    assert knowledge_of(others, targets) == "nothing"


@pytest.mark.parametrize("study", STUDIES)
def test_baselines_of_a_study_know_small_sizes_alone(study):
    plan = plan_of(STUDIES[study], "f_cl_wall_time", 1.0)
    trial, least = max(STUDIES[study].trial_sizes), min(STUDIES[study].sizes)
    assert {kernel.sizes[plan.study.size] for kernel in plan.small.values()} == {trial}
    seconds = {kernel.name: 1e-3 for kernel in plan.small.values()}
    cores = {variant: plan.confined(kernel) for variant, kernel in plan.small.items()}
    assert {core.generator for core in cores.values()} == {f"{plan.small[v].generator}_core" for v in cores}
    assert len({core.name for core in cores.values()}) == len(cores)
    seconds |= {core.name: 2e-3 for core in cores.values()}
    made = baseline_times(plan, seconds, Peaks(1e9, 1e9))
    times = made.seconds
    assert made.left_out == {}
    assert times.keys() == plan.targets.keys()
    for (variant, size), each in times.items():
        target, small, core = plan.targets[variant, size], plan.small[variant], cores[variant]
        now, before, confined = (work_of(k.kernel, k.sizes) for k in (target, small, core))
        assert each == {
            "roofline": max(now.operations, distinct_bytes_of(target, target.sizes)) / 1e9,
            "confined launch by operations": pytest.approx(2e-3 * now.operations / confined.operations),
            "scaled by work-items": pytest.approx(1e-3 * now.items / before.items),
            "scaled by operations": pytest.approx(1e-3 * now.operations / before.operations),
        }
        assert size >= least > trial
    # Where nothing was timed, nothing is scaled.
    untimed = baseline_times(plan, {}, None)
    assert all(each == {} for each in untimed.seconds.values())
    assert untimed.left_out == {}


def test_a_baseline_without_what_it_goes_by_is_left_out_and_says_why():
    tags = ("gmem_copy", "dtype:float32", "lsize_0:256", "width:1", "groups_fit:True")
    (small,), (large,) = (
        KernelCollection(ALL_GENERATORS).generate_kernels((*tags, f"nelements:{count}")) for count in (65536, 262144)
    )
    plan = SimpleNamespace(targets={("copy", 262144): large}, small={"copy": small}, confined=lambda _: None)
    made = baseline_times(plan, {small.name: 1e-3}, Peaks(1e9, 1e9))
    assert made.seconds == {
        ("copy", 262144): {"roofline": pytest.approx(2 * 4 * 262144 / 1e9), "scaled by work-items": pytest.approx(4e-3)}
    }
    assert set(made.left_out) == {"scaled by operations"}
    why = f"{large.name}: the launch that was timed has no operations"
    assert made.left_out["scaled by operations"].startswith(why)


def test_methods_are_judged_by_the_cases_they_predict(tmp_path):
    measured = {("a", 0): 1.0, ("a", 1): 2.0, ("b", 0): 4.0, ("b", 1): 8.0}
    half = Method("half", "nothing", {case: seconds / 2 for case, seconds in measured.items() if case != ("b", 1)})
    half.refused["b", 1] = "too large"
    half.limits["a", 0] = 0.5, 1.5
    text = judged([half], measured, lambda case: case[0])
    assert "| half | nothing | 3 | 2.00 | 50 %, 50 %, 50 %, 50 % | 1.00 | 0.0 %, 0.0 %, 0.0 % | 100 % | 100 % |" in text
    assert "half: 1 cases without a prediction: too large" in text
    rows = by_part([half], measured, lambda case: case[0], lambda case: case[0]).splitlines()
    assert rows[2:] == ["| `a` | 2.00; 50 %, 50 %; 1.00; 0.0 % |", "| `b` | 2.00; 50 %, 50 %; nan; - |"]
    write_cases(tmp_path / "cases.csv", [half], measured)
    assert len((tmp_path / "cases.csv").read_text(encoding="utf-8").splitlines()) == 5
