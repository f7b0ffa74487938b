"""The studies on a fake device whose law is a known model, the choice of the overlap, and the files."""

import csv
import warnings
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from perflex import Calibration, FeatureTable, Model
from perflex.__main__ import main
from perflex.calibration.ready import REFERENCE_RATE
from perflex.errors import CalibrationError, MeasurementError, PerflexWarning
from perflex.models import load_model, measurement_kernels
from perflex.studies.evaluation.baselines import BASELINES, copy_kernel
from perflex.studies.evaluation.files import write_evaluation
from perflex.studies.evaluation.overlap import choose_overlap
from perflex.studies.evaluation.result import Point, StudyResult
from perflex.studies.evaluation.run import _with_predictions, evaluate_device
from perflex.studies.evaluation.studies import STUDIES, plan_of
from perflex.studies.evaluation.tables import summary_table
from perflex.testing import FakeDevice

OUTPUT = "f_cl_wall_time_fake"
GLOBAL, CHIP = "f_mem_access_tag:a", "f_op_float32_madd"
MODELS = {
    "linear": Model(OUTPUT, f"p_g * {GLOBAL} + p_o * {CHIP}"),
    "overlap": Model(OUTPUT, f"overlap(p_g * {GLOBAL}, p_o * {CHIP}, p_edge)"),
    "partial": Model(OUTPUT, f"partial_overlap(p_g * {GLOBAL}, p_o * {CHIP}, 3, p_hidden)"),
}
TRUTH = {
    "linear": {"p_g": 2e-9, "p_o": 1e-9},
    "overlap": {"p_g": 2e-9, "p_o": 1e-9, "p_edge": 3e4},
    "partial": {"p_g": 2e-9, "p_o": 1e-9, "p_hidden": 0.6},
}


def table(truth, noise, seed=1):
    """Kernels with more or less memory access and on-chip work, timed with noise."""
    random = np.random.default_rng(seed)
    counts = np.array([(g, o) for g in (0, 1e5, 2e5, 4e5, 8e5) for o in (0, 1e5, 2e5, 4e5, 8e5, 16e5) if g or o])
    values = {GLOBAL: counts[:, 0], CHIP: counts[:, 1]}
    seconds = MODELS[truth].evaluate(TRUTH[truth], values) * (1 + noise * random.standard_normal(len(counts)))
    return FeatureTable(
        OUTPUT,
        (OUTPUT, GLOBAL, CHIP),
        tuple(f"k{i}" for i in range(len(counts))),
        np.column_stack([seconds, counts]),
        groups=("mixed",) * len(counts),
    )


def chosen(models, fitted, trial):
    """Return the choice where all models are fitted to the same kernels, and each trial kernel is alone."""
    return choose_overlap(models, dict.fromkeys(models, fitted), trial, range(len(trial)))


@pytest.mark.parametrize("truth", TRUTH)
def test_the_overlap_that_made_the_times_is_chosen(truth):
    choice = chosen(MODELS, table(truth, 0.01), table(truth, 0.01, seed=2))
    assert choice.name == truth
    error = choice.candidate(truth).trial.rms
    assert error == pytest.approx(0.01, abs=0.008)
    assert f"{truth} {100 * error:.1f} %" in choice.reason


def test_trial_kernels_decide_where_there_are_any():
    measured, trial = table("linear", 0.01), table("partial", 0.01)
    choice = chosen(MODELS, measured, trial)
    errors = {candidate.name: candidate.trial.rms for candidate in choice.candidates if candidate.fit is not None}
    # All were fitted to kernels that overlap nothing, so none predicts the trial kernels; the least bad one is taken.
    assert min(errors.values()) > 0.05
    assert errors[choice.name] <= 1.05 * min(errors.values())
    tables = {"linear": measured, "partial": trial}
    choice = choose_overlap({name: MODELS[name] for name in tables}, tables, trial, range(len(trial)))
    assert (choice.name, choice.candidate("partial").trial.rms) == ("partial", pytest.approx(0.01, abs=0.008))


def trial_of(seconds, counts):
    values = np.column_stack([seconds, np.array(counts, dtype=float)])
    return FeatureTable(OUTPUT, (OUTPUT, GLOBAL, CHIP), tuple(f"t{i}" for i in range(len(seconds))), values)


def test_the_choice_goes_by_the_loss_before_the_error():
    # One model counts accesses alone and takes the slower variant for the faster one, with small errors; the other is
    # 30 % too long for both, and right about their order.
    models = {"near": Model(OUTPUT, f"p_g * {GLOBAL}"), "in order": Model(OUTPUT, f"p_o * {CHIP}")}
    near = trial_of([1e-4, 2e-4, 4e-4], [(1e5, 0), (2e5, 0), (4e5, 0)])
    order = trial_of([1.3e-4, 2.6e-4, 5.2e-4], [(0, 1e5), (0, 2e5), (0, 4e5)])
    trial = trial_of([1.0e-4, 1.2e-4], [(1.12e5, 1.0e5), (1.08e5, 1.2e5)])
    tables = {"near": near, "in order": order}
    choice = choose_overlap(models, tables, trial, [64, 64])
    assert choice.name == "in order"
    assert "near 11.0 % and loss 20.0 %, in order 30.0 % and loss 0.0 %; in order is lowest" in choice.reason
    # Where there is nothing to choose among, the errors decide.
    assert choose_overlap(models, tables, trial, [64, 96]).name == "near"


def test_a_model_that_cannot_be_fitted_is_passed_over_with_the_reason():
    other = Model(OUTPUT, f"p_x * {GLOBAL} + p_y * f_op_float64_add")
    tables = table("linear", 0.01), table("linear", 0.01, seed=2)
    choice = chosen({"other": other, "linear": MODELS["linear"]}, *tables)
    assert (choice.name, choice.candidate("other").fit) == ("linear", None)
    assert "f_op_float64_add" in choice.candidate("other").reason
    with pytest.raises(CalibrationError, match="determine none of the models"):
        chosen({"other": other}, *tables)


@pytest.mark.parametrize("study", STUDIES)
def test_study_sizes_suit_all_variants(study):
    step = STUDIES[study].rule.step
    for scale in (0.05, 0.3, 1.0, 30.0):
        sizes = [*STUDIES[study].trial_sizes_for(scale), *STUDIES[study].sizes_for(scale)]
        assert sizes == sorted(set(sizes))
        assert len(sizes) == len(STUDIES[study].trial_sizes) + len(STUDIES[study].sizes)
        assert all(size % (2 * step) == step for size in sizes)
    # Finite differences stay larger than caches.
    assert (STUDIES[study].sizes_for(0.3) == STUDIES[study].sizes) == (study == "fdiff")
    for variant in STUDIES[study].variants:
        assert STUDIES[study].kernel(variant, STUDIES[study].sizes[0]).generator in {"matmul_sq", "dg_diff", "fdiff"}


@pytest.mark.parametrize("study", STUDIES)
@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_no_model_is_calibrated_with_what_it_predicts(study, scale):
    smallest = min(STUDIES[study].sizes_for(scale))
    for overlap, name in STUDIES[study].models.items():
        kernels = measurement_kernels(load_model(name), scale)
        own = [kernel for kernel in kernels if kernel.generator in {"matmul_sq", "dg_diff", "fdiff"}]
        # One in-core model needs the variants at one small size to know how far work and transfer overlap.
        assert bool(own) == ((study, overlap) == ("fdiff", "incore"))
        assert all(kernel.sizes["n"] < smallest for kernel in own)


@cache
def fdiff_kernels():
    """Return all kernels of the study of finite differences by name."""
    study = STUDIES["fdiff"]
    kernels = [kernel for name in study.models.values() for kernel in measurement_kernels(load_model(name))]
    sizes = [*study.trial_sizes, *study.sizes]
    kernels += [study.kernel(variant, size) for variant in study.variants for size in sizes]
    return {kernel.name: kernel for kernel in kernels}


@cache
def linear_seconds(label):
    """Return what the linear model says of one of them, with costs of our own."""
    model = load_model("fdiff_linear").model()
    costs = dict.fromkeys(model.params(), 2e-11) | {"p_launch": 4e-6, "p_group": 1e-8, "p_barrier": 3e-8}
    kernel = fdiff_kernels()[label]
    return float(model.eval_with_kernel(costs, kernel, kernel.sizes))


def evaluate_on_fake(largest_group):
    """Evaluate finite differences on a device that obeys the linear model, and has a limit on work-groups."""
    by_name = fdiff_kernels()

    def law(label, sizes):
        if label == copy_kernel().name:
            return 4e-3
        if label not in by_name:  # the pilot, which tells how fast the device is
            return sizes["nelements"] * 64 * 32 / REFERENCE_RATE
        kernel = by_name[label]
        if kernel.arguments.get("tile", 1) ** 2 > largest_group:
            items = kernel.arguments["tile"] ** 2
            msg = f"{label}: work-groups have {items} work-items, the device allows {largest_group}"
            raise MeasurementError(msg)
        return linear_seconds(label)

    device = FakeDevice(law, noise=0.002)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return evaluate_device(device, [STUDIES["fdiff"]])


@pytest.fixture(scope="module")
def evaluation():
    """Finite differences on a device that runs everything."""
    return evaluate_on_fake(1024)


@pytest.mark.slow
def test_a_variant_that_cannot_run_is_skipped_and_the_other_one_predicted():
    evaluation = evaluate_on_fake(256)
    (result,) = evaluation.studies
    assert {point.variant for point in result.points} == {"16x16"}
    assert len(result.points) == 6
    assert result.accuracy(result.model).geometric_mean < 0.01
    skipped = dict(evaluation.skipped)
    assert "fdiff(dtype=float32, tile=18, groups_fit=True, n=5264)" in skipped
    assert all("324 work-items, the device allows 256" in reason for reason in skipped.values())


def test_a_study_that_cannot_run_is_an_error_that_says_why():
    with pytest.raises(
        CalibrationError, match=r"no study can be evaluated on fake.*allows 4; study fdiff: none of its variants"
    ):
        evaluate_on_fake(4)


def test_a_device_that_obeys_a_model_is_predicted(evaluation):
    (result,) = evaluation.studies
    # Each cost grows with n squared, so that the linear model and the in-core one are both right.
    assert result.choice.name == result.model
    assert result.model in {"linear", "incore"}
    assert max(result.accuracy(name).maximum for name in ("linear", "incore")) < 0.02
    assert len(result.points) == 12
    assert {point.variant for point in result.points} == {"16x16", "18x18"}
    assert result.accuracy("linear").pairs_right == 1.0 or result.accuracy("linear").pairs == 0
    assert abs(evaluation.drift) < 0.01
    assert [entry.ratio for entry in evaluation.overlap] == [1, 2, 4, 8, 16, 32]


def rows_of(path):
    with path.open() as stream:
        return list(csv.DictReader(stream))


def test_files(evaluation, tmp_path):
    paths = {path.name for path in write_evaluation([evaluation], tmp_path)}
    assert {f"{name}.csv" for name in ("summary", "points", "parameters", "choices", "skipped", "devices")} <= paths
    assert {"overlap.png", "fdiff_fake_device_fake_platform.png"} <= paths
    rows, points, (choice,) = (rows_of(tmp_path / f"{name}.csv") for name in ("summary", "points", "choices"))
    assert list(rows[0]) == [
        "device", "study", "variant", "model", "used", "knowledge", "median_error", "rms_error", "max_error",
        "geomean_error", "typical_factor", "pairs_right", "pairs", "spearman", "loss_mean", "loss_worst",
        "beats_baselines", "loss_median", "loss_p90", "best_found", "first_tenth", "noise_floor",
    ]  # fmt: skip
    (result,) = evaluation.studies
    assert [row["variant"] for row in rows] == [v for v in ("16x16", "18x18", "all") for _ in result.methods]
    assert [row["model"] for row in rows[: len(result.methods)]] == list(result.methods)
    (used,) = [row for row in rows if row["used"] == "True" and row["variant"] == "all"]
    found = result.accuracy(result.model)
    assert (float(used["geomean_error"]), float(used["rms_error"])) == (found.geometric_mean, found.rms)
    assert len(points) == len(result.points) * len(result.methods)
    assert (choice["used"], choice["best_baseline"]) == (result.model, result.best_baseline("timing"))
    assert {point["disturbed"] for point in points} == {"False"}
    assert {float(point["repeatability"]) for point in points} == {one.repeatability for one in result.points}
    for p in points:
        assert float(p["relative_error"]) == pytest.approx(float(p["predicted_s"]) / float(p["measured_s"]) - 1)
    loaded = Calibration.load(tmp_path / "calibration_fdiff_linear_fake_device_fake_platform.yaml")
    assert loaded.params["p_tile16"] == pytest.approx(result.calibrations["linear"].params["p_tile16"])


def judged(evaluation, measured, **predicted):
    """Return a result of two variants at sizes 1, 2, ...; the first two methods are models."""
    (template,) = evaluation.studies
    points = tuple(
        Point(variant, size, times[i], 0.0, {name: own[size - 1][i] for name, own in predicted.items()}, 0.01)
        for size, times in enumerate(measured, start=1)
        for i, variant in enumerate("ab")
    )
    names = list(predicted)
    knowledge = dict.fromkeys(names, "reduced kernels") | {"roofline": "nothing", "scaled": "timing"}
    fits = dict.fromkeys(names[:2], template.calibrations["linear"])
    known = {name: knowledge[name] for name in names}
    return StudyResult(template.study, template.choice, names[0], fits, points, known, "reduced kernels")


def test_models_are_judged_beside_what_knows_no_more(evaluation):
    result = judged(
        evaluation, [(1.0, 1.2), (2.0, 2.4)],
        wrong_order=[(1.1, 1.09), (2.2, 2.19)],
        in_order=[(1.5, 1.8), (3.0, 3.6)],
        roofline=[(0.5, 0.6), (1.0, 1.2)],
        scaled=[(1.0, 1.2), (2.1, 2.5)],
    )  # fmt: skip
    # The errors of the first are smaller, and its choice loses 20 %.
    assert (result.best_in_hindsight, result.baselines) == ("in_order", ("roofline", "scaled"))
    assert result.best_baseline("nothing") == result.best_baseline("reduced kernels") == "roofline"
    assert result.best_baseline("timing") == "scaled"
    # rms 50 % of both in_order and roofline, to the last digit: what is equal is not better.
    assert result.beats_baselines("wrong_order") is result.beats_baselines("in_order") is False
    assert result.judgement == (
        "Not recommended: a baseline is better: roofline has mean loss 0.0 %, rms 50.0 %; wrong_order has mean "
        "loss 20.0 %, rms 9.5 %."
    )
    points = [replace(p, predicted_s={**p.predicted_s, "in_order": 1.4 * p.measured_s}) for p in result.points]
    better = replace(result, model="in_order", points=tuple(points))
    assert better.judgement == (
        "Better than every baseline with the same knowledge: in_order has mean loss 0.0 %, rms 40.0 %; the best of "
        "them, roofline has mean loss 0.0 %, rms 50.0 %. A baseline with more knowledge is better: scaled has mean "
        "loss 0.0 %, rms 3.3 %. Where each variant can be timed at a smaller size, scale that time."
    )
    timed = replace(better, chosen_with="timing")
    assert timed.judgement.startswith("Not recommended: a baseline is better: scaled has mean loss 0.0 %, rms 3.3")
    overall = summary_table([replace(evaluation, studies=(timed,))], variants=False).records()
    assert [tuple(row[name] for name in ("model", "used", "knowledge", "beats_baselines")) for row in overall] == [
        ("wrong_order", False, "reduced kernels", False),
        ("in_order", True, "timing", False),
        ("roofline", False, "nothing", None),
        ("scaled", False, "timing", None),
    ]


def test_a_loss_within_the_noise_is_none(evaluation):
    # The first takes b for faster, which is 0.9 % slower; times repeat to 1 %.
    result = judged(evaluation, [(1.0, 1.009)], near=[(1.0, 0.999)], far=[(1.5, 1.6)], scaled=[(2.0, 2.1)])
    assert result.accuracy("near").loss_mean == pytest.approx(0.009)
    assert result.best_in_hindsight == "near"
    assert result.beats_baselines("near", "timing") is True
    assert result.beats_baselines("near") is None


def test_the_command_prints_models_beside_baselines(evaluation, monkeypatch, tmp_path, capfd):
    monkeypatch.setattr("perflex.studies.evaluation.run.evaluate_device", lambda *_, **__: evaluation)
    monkeypatch.setattr("perflex.devices.listing.find_device", lambda spec: f"device {spec}")
    assert main(["evaluate", "fdiff", "--out", str(tmp_path)]) == 0
    printed = capfd.readouterr().out
    (result,) = evaluation.studies
    for name in result.methods:
        (line,) = [line for line in printed.splitlines() if line.startswith(f"    {name}  ")]
        assert f" {100 * result.accuracy(name).rms:.1f} " in line
        assert (line.split()[1] == "yes") == (name == result.model)
    assert f"    {result.judgement}" in printed.splitlines()


def test_a_model_that_predicts_no_time_is_left_out_and_named():
    plan = plan_of(STUDIES["fdiff"], OUTPUT, 1.0)
    calibrations = {
        "linear": SimpleNamespace(predict=lambda _kernel, _sizes: 1e-3, doubts=lambda _kernel, _sizes: ()),
        "overlap": SimpleNamespace(predict=lambda _kernel, sizes: 1e-3 if sizes["n"] < 5264 else 0.0),
    }
    made = _with_predictions(plan, SimpleNamespace(name="linear"), calibrations, None)
    assert list(made.calibrations) == ["linear"]
    assert set(map(tuple, made.predicted.values())) == {("linear",)}
    ((label, reason),) = made.unusable
    assert label == "model overlap of fdiff"
    assert reason.startswith("it predicts 0 s for fdiff(")
    assert "n=5264" in reason
    with pytest.raises(CalibrationError, match="the model overlap cannot be used: it predicts 0 s"):
        _with_predictions(plan, SimpleNamespace(name="linear"), calibrations, "overlap")


def test_doubts_about_predictions_are_one_line_per_study():
    plan = plan_of(STUDIES["fdiff"], OUTPUT, 1.0)
    smallest = min(STUDIES["fdiff"].sizes)

    def predict(_kernel, _sizes):
        warnings.warn("this prediction is doubtful", PerflexWarning, stacklevel=1)
        return 1e-3

    def doubts(_kernel, sizes):
        return () if sizes["n"] <= smallest else (f"{sizes['n']} is too large", "and more")

    calibrations = {name: SimpleNamespace(predict=predict, doubts=doubts) for name in ("linear", "overlap")}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _with_predictions(plan, SimpleNamespace(name="linear"), calibrations, None)
    [text] = [str(one.message) for one in caught]
    large = [size for size in sorted(STUDIES["fdiff"].sizes) if size > smallest]
    count = len(large) * len(STUDIES["fdiff"].variants)
    shares = f"{count} of {len(plan.targets)} predictions of linear are doubtful"
    assert text == f"fdiff: {shares}, the first because {large[0]} is too large"


def test_baselines_of_a_device_that_obeys_a_model(evaluation):
    (result,) = evaluation.studies
    assert result.baselines == tuple(BASELINES)
    assert {name: result.knowledge[name] for name in ("linear", "incore")} == {
        "linear": "reduced kernels", "incore": "timing",
    }  # fmt: skip
    # Times grow with the counts, but for the launch, so whoever scales the largest trial size is right.
    assert result.accuracy("scaled by operations").maximum < 0.02
    assert result.chosen_with == "timing"
    peaks = evaluation.peaks
    assert peaks.operations_per_s == pytest.approx(REFERENCE_RATE, rel=0.01)
    # 16777216 elements of 4 bytes, loaded and stored.
    assert peaks.bytes_per_s == pytest.approx(2 * 4 * 16777216 / 4e-3, rel=0.01)
