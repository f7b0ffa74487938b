"""Calibration within a budget, on devices whose law is known: what it finds, what it spends, what it says."""

import math
import random
from collections import Counter

import pytest

from perflex import Calibration, Model, RunOptions, TimingOptions, calibrate, gather_feature_values
from perflex.__main__ import main
from perflex.cli.arguments import ArgumentError, read_seconds
from perflex.errors import CalibrationError, MeasurementError, PerflexWarning
from perflex.store.records import SystemActivity
from perflex.testing import FakeDevice
from perflex.timing.launch.launch_times import LaunchTimes
from support.scripted_device import ScriptedDevice
from uipick import ALL_GENERATORS, KernelCollection

TRUE = {"p_launch": 4e-6, "p_group": 2e-8, "p_madd": 3e-11, "p_load": 5e-12, "p_store": 7e-12}
SUM = Model(
    "f_cl_wall_time_fake",
    "p_launch * f_sync_kernel_launch + p_group * f_thread_groups + p_madd * f_op_float32_madd"
    " + p_load * f_mem_access_global_float32_load + p_store * f_mem_access_global_float32_store",
)
HIDDEN = Model(
    "f_cl_wall_time_fake",
    "p_launch * f_sync_kernel_launch + p_group * f_thread_groups + partial_overlap(p_madd * f_op_float32_madd,"
    " p_load * f_mem_access_global_float32_load + p_store * f_mem_access_global_float32_store, 3, p_hidden)",
)
TRUE_HIDDEN = {**TRUE, "p_madd": 1e-10, "p_hidden": 0.7}
EDGE = Model(
    "f_cl_wall_time_fake",
    "p_launch * f_sync_kernel_launch + p_group * f_thread_groups + overlap(p_madd * f_op_float32_madd,"
    " p_load * f_mem_access_global_float32_load + p_store * f_mem_access_global_float32_store, p_edge)",
)
TRUE_EDGE = {**TRUE, "p_madd": 1e-10, "p_edge": 3e4}
FEW = TimingOptions(trials=12, min_trials=3)

STARTING = """
schema: perflex-model/1
name: starting
description: What starting a kernel and its work-groups takes.
output: f_cl_wall_time
expression: p_launch * f_sync_kernel_launch + p_group * f_thread_groups
parameters:
  p_launch: {meaning: launching a kernel, unit: s per launch}
  p_group: {meaning: starting a work-group, unit: s per work-group}
measurement_kernels:
  - tags: [empty, "lsize_0:16", "lsize_1:16", "ngroups:16,64,256,1024,4096"]
"""


def metered(times, spent, **options):
    """Return a device that counts the device time of every kernel."""

    def on_run(request, launches, run):
        found = run(launches)
        spent[request.label] += math.fsum(found)
        return found

    return ScriptedDevice(times, on_run=on_run, **options)


@pytest.fixture(scope="module")
def kernels():
    collection = KernelCollection(ALL_GENERATORS)
    tiles = ["dtype:float32", "groups_fit:True"]
    return [
        *collection.generate_kernels(["matmul_sq", *tiles, "n:64,128,256,512,1024"]),
        *collection.generate_kernels(
            ["flops_madd_pattern", *tiles, "lid_stride_1:64", "nelements:4096,65536", "m:64,128,256"]
        ),
        *collection.generate_kernels(
            ["gmem_pattern", *tiles, "lid_stride_1:64", "n_arrays:1,2,3,4", "nelements:4096,65536,1048576"]
        ),
        *collection.generate_kernels(["empty", "ngroups:16,64,256,1024,4096"]),
    ]


@pytest.fixture(scope="module")
def table(kernels):
    return gather_feature_values(SUM.input_features(), kernels)


def law(model, truth, table, misfit=0.0):
    """Return the model's times, each wrong by its own factor where the model is to misfit."""
    values = {name: table.column(name) for name in model.input_features()}
    times = dict(zip(table.kernels, model.evaluate(truth, values), strict=True))
    factors = {name: math.exp(misfit * random.Random(name).gauss(0, 1)) for name in times}  # noqa: S311  no secret
    return lambda label, _: float(times[label] * factors[label])


def full_time(device_law, table, trials):
    return sum(device_law(name, None) for name in table.kernels) * (2 + 2 * trials)


@pytest.mark.parametrize(
    ("model", "truth", "share"), [(SUM, TRUE, 0.02), (HIDDEN, TRUE_HIDDEN, 0.1), (EDGE, TRUE_EDGE, 0.4)]
)
def test_the_law_is_found_and_the_budget_kept(kernels, table, model, truth, share, tmp_path):
    times, spent, seen = law(model, truth, table), Counter(), []
    budget = share * full_time(times, table, FEW.trials)
    # An edge is known from few kernels only: it needs better timings for the same precision.
    device = metered(times, spent, noise=1e-5 if model is EDGE else 1e-3)
    run = RunOptions(progress=lambda *step: seen.append(step))
    found = calibrate(model, kernels, device=device, timing=FEW, budget_s=budget, run=run)
    assert found.fit.status.valid
    assert dict(found.params) == pytest.approx(truth, rel=0.03)
    assert spent.total() <= budget
    # The file says what was chosen from what.
    found.save(tmp_path / "c.yaml")
    facts = Calibration.load(tmp_path / "c.yaml").options
    assert facts["device_time_budget_s"] == pytest.approx(budget)
    assert facts["device_time_spent_s"] == pytest.approx(spent.total(), rel=0.02)
    assert facts["chosen_kernels"] == len(found.fit.kernels) == len(spent) >= len(truth)
    assert facts["pool_kernels"] == len(kernels)
    assert {"matmul_sq: 10", "empty: 5"} <= set(facts["pool"])
    assert facts["choice"].startswith("D-optimal")
    # Progress goes forward and names the batch.
    batches = [step for step in seen if step[2].startswith("batch")]
    assert "batch 1" in {what.partition(",")[0] for _, _, what in batches}
    assert all(0 <= done <= total for done, total, _ in batches)
    # The same kernels are chosen each time.
    again = calibrate(model, kernels, device=device, timing=FEW, budget_s=budget)
    assert again.fit.kernels == found.fit.kernels
    assert dict(again.params) == dict(found.params)


def test_a_large_budget_measures_everything_as_often_as_asked(kernels, table):
    times = law(SUM, TRUE, table, misfit=0.02)
    trials = Counter()

    def counted(request, launches, run):
        trials[request.label] += 1
        return run(launches)

    timing = TimingOptions(trials=12, min_trials=3, warmups=0, budget_s=100.0)
    found = calibrate(
        SUM, kernels, device=ScriptedDevice(times, noise=0.5, on_run=counted), timing=timing, budget_s=1e4
    )
    assert set(trials) == set(table.kernels)
    assert min(trials.values()) >= 12
    assert found.options["ended"] == "everything fits into the budget"
    everything = calibrate(SUM, kernels, device=FakeDevice(times), timing=timing)
    exact = calibrate(SUM, kernels, device=FakeDevice(times), timing=timing, budget_s=1e4)
    assert dict(exact.params) == pytest.approx(dict(everything.params), rel=1e-6)


def test_disturbed_samples_are_told_of(kernels, table, tmp_path):
    device = ScriptedDevice(
        law(SUM, TRUE, table), on_run=lambda _, launches, run: LaunchTimes(run(launches), SystemActivity(waited_s=1.0))
    )
    with pytest.warns(PerflexWarning, match=r"were disturbed .* used for \d+ of \d+ kernels"):
        calibrate(SUM, kernels, device=device, timing=FEW, budget_s=0.05).save(tmp_path / "c.yaml")
    found = Calibration.load(tmp_path / "c.yaml")
    assert found.options["disturbed_samples"] == found.options["samples"] >= 3 * len(found.fit.kernels)
    assert found.options["kernels_disturbed"] == len(found.fit.kernels)


def test_kernels_that_fail_are_replaced_by_others(kernels, table):
    times = law(SUM, TRUE, table)

    def some_fail(label, sizes):
        if label.startswith("empty") and "4096" not in label:
            msg = f"{label}: does not build"
            raise MeasurementError(msg)
        return times(label, sizes)

    with pytest.warns(PerflexWarning, match="left out: does not build"):
        found = calibrate(SUM, kernels, device=FakeDevice(some_fail), timing=FEW, budget_s=0.05)
    assert dict(found.params) == pytest.approx(TRUE, rel=1e-3)
    assert all(reason == "does not build" for _, reason in found.dropped)
    assert not {label for label, _ in found.dropped} & set(found.fit.kernels)


def test_guesses_a_hundredfold_too_low_do_not_burst_the_budget_and_too_small_a_one_is_told(kernels, table):
    # The first batch is told from its launches, not from guesses.
    slow, spent = {name: 100 * value for name, value in TRUE.items()}, Counter()
    times = law(SUM, slow, table)
    budget = 0.1 * full_time(times, table, FEW.trials)
    found = calibrate(SUM, kernels, device=metered(times, spent), timing=FEW, budget_s=budget)
    assert dict(found.params) == pytest.approx(slow, rel=1e-3)
    assert spent.total() <= budget
    with pytest.raises(CalibrationError, match=r"of 5e-05 s .* too small to determine .*p_.* take about") as caught:
        calibrate(SUM, kernels, device=FakeDevice(law(SUM, TRUE, table)), timing=FEW, budget_s=5e-5)
    assert set() < set(caught.value.parameters) <= set(TRUE)


def test_pools_and_budgets_that_cannot_do_are_refused(kernels):
    def fail(label, _):
        msg = f"{label}: lost"
        raise MeasurementError(msg)

    with pytest.warns(PerflexWarning), pytest.raises(CalibrationError, match=r"none of the kernels could be.*: lost"):
        calibrate(SUM, kernels, device=FakeDevice(fail), timing=FEW, budget_s=1.0)
    unused = FakeDevice(lambda *_: pytest.fail("measured"))
    only = [kernel for kernel in kernels if kernel.generator == "matmul_sq"]
    with pytest.raises(CalibrationError, match=r"no choice of kernels determines p_group.*p_store"):
        # Known before anything was measured, for the model is linear.
        calibrate(SUM, only[:4], device=unused, timing=FEW, budget_s=10.0)
    for budget in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(CalibrationError, match="positive number of seconds"):
            calibrate(SUM, kernels, device=unused, budget_s=budget)


def test_durations():
    for word, seconds in {"30": 30, "30s": 30, "2min": 120, "500ms": 0.5, "1.5h": 5400, " .5 s": 0.5}.items():
        assert read_seconds(word, "--budget") == pytest.approx(seconds)
    for word in ("", "s", "-3s", "0", "3 days", "1e3", "nan", "inf", "1,5s", "9" * 400):
        with pytest.raises(ArgumentError, match="write a positive duration such as 30s"):
            read_seconds(word, "--budget")


@pytest.mark.slow
def test_the_command_keeps_its_budget_and_says_so(capsys, real_devices, tmp_path):
    out, model = tmp_path / "c.yaml", tmp_path / "starting.yaml"
    model.write_text(STARTING, encoding="utf-8")
    # How busy the test machine is, is not for tests to say.
    assert main(["calibrate", str(model), "--budget", "200ms", "-o", str(out), "--accept-noise"]) == 0
    shown = capsys.readouterr().out
    assert "of 5 kernels, in " in shown
    assert "of device time spent of 0.2 s" in shown
    facts = Calibration.load(out).options
    assert facts["device_time_budget_s"] == 0.2
    assert facts["pool_kernels"] == 5
    assert facts["chosen_kernels"] >= 2


GENERAL = """\
schema: perflex-model/1
name: mine
description: Launches, groups, and what no kernel here does.
output: f_cl_wall_time
expression: p_launch * f_sync_kernel_launch + p_group * f_thread_groups + p_div * f_op_float64_div
parameters:
  p_launch: {meaning: launching, unit: s per launch}
  p_group: {meaning: starting a group, unit: s per work-group}
  p_div: {meaning: a division, unit: s per sub-group operation}
measurement_kernels:
  - tags: [empty, "ngroups:16,64,256,1024"]
general: true
fixed_sizes: true
timing: {trials: 12, budget_s: 0.15, precision: 0.03}
"""


def ready_law(_label, sizes):
    return 5e-6 + 1e-7 * sizes["ngroups"]


def test_costs_that_no_kernel_has_do_not_stop_a_budget(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(f"{GENERAL}fit: {{on_undetermined: warn}}\n", encoding="utf-8")
    with pytest.warns(PerflexWarning, match="p_div"):
        found = calibrate(str(path), device=FakeDevice(ready_law), budget_s=0.05)
    assert found.params["p_launch"] == pytest.approx(5e-6)
    assert found.params["p_group"] == pytest.approx(1e-7)
    assert found.fit.undetermined == ("p_div",)
    assert (found.options["min_trials"], found.options["trials"]) == (5, 12)
    assert found.options["device_time_spent_s"] <= 0.05
