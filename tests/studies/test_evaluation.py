"""The studies on a fake device whose law is a known model, the choice of the overlap, and the files."""

from __future__ import annotations

import csv
import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest

from perflex import Calibration, FeatureTable, Model
from perflex.calibration.device_speed import REFERENCE_RATE
from perflex.errors import CalibrationError, MeasurementError
from perflex.models import load_model
from perflex.models.kernel_sets import measurement_kernels
from perflex.studies.evaluation.files import write_evaluation
from perflex.studies.evaluation.overlap import choose_overlap
from perflex.studies.evaluation.report import overall_error, report_text
from perflex.studies.evaluation.run import Point, StudyResult, evaluate_device
from perflex.studies.evaluation.studies import STUDIES
from perflex.testing import FakeDevice

if TYPE_CHECKING:
    from pathlib import Path

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


def table(truth: str, noise: float) -> FeatureTable:
    """Kernels with more or less memory access and on-chip work, timed with noise."""
    random = np.random.default_rng(1)
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


@pytest.mark.parametrize("truth", TRUTH)
def test_the_overlap_that_made_the_times_is_chosen(truth: str) -> None:
    choice = choose_overlap(MODELS, table(truth, 0.01))
    assert choice.name == truth
    chosen = choice.candidate(truth)
    assert chosen.validated_error == pytest.approx(0.01, abs=0.008)
    assert f"{truth} {100 * chosen.validated_error:.1f} %" in choice.reason


def test_a_richer_model_must_be_worth_it() -> None:
    choice = choose_overlap(MODELS, table("linear", 0.05))
    assert choice.name == "linear"


def test_trial_kernels_decide_where_there_are_any() -> None:
    measured, trial = table("linear", 0.01), table("partial", 0.01)
    choice = choose_overlap(MODELS, dict.fromkeys(MODELS, measured), trial)
    errors = {candidate.name: candidate.trial_error for candidate in choice.candidates if candidate.fit is not None}
    # All were fitted to kernels that overlap nothing, so none predicts the trial kernels; the least bad one is taken.
    assert min(errors.values()) > 0.05
    assert errors[choice.name] <= 1.05 * min(errors.values())
    assert "errors of the variants at small sizes" in choice.reason
    tables = {"linear": measured, "partial": table("partial", 0.01)}
    models = {name: MODELS[name] for name in tables}
    choice = choose_overlap(models, tables, trial)
    assert choice.name == "partial"
    assert choice.candidate("partial").trial_error == pytest.approx(0.01, abs=0.008)


def test_a_model_that_cannot_be_fitted_is_passed_over_with_the_reason() -> None:
    models = {"other": Model(OUTPUT, f"p_x * {GLOBAL} + p_y * f_op_float64_add"), "linear": MODELS["linear"]}
    choice = choose_overlap(models, table("linear", 0.01))
    assert choice.name == "linear"
    assert choice.candidate("other").fit is None
    assert "f_op_float64_add" in choice.candidate("other").reason
    with pytest.raises(CalibrationError, match="determine none of the models"):
        choose_overlap({"other": models["other"]}, table("linear", 0.01))


def test_parameters_that_nothing_tells_are_named() -> None:
    models = {"both": Model(OUTPUT, f"p_g * {GLOBAL} + p_o * {CHIP} + p_x * 2 * {CHIP}")}
    candidate = choose_overlap(models, table("linear", 0.01)).candidate("both")
    assert candidate.fit is not None
    assert candidate.fit.undetermined == ("p_o", "p_x")
    assert candidate.validated_error == pytest.approx(0.01, abs=0.008)


@pytest.mark.parametrize("study", STUDIES)
def test_study_sizes_suit_all_variants(study: str) -> None:
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
def test_no_model_is_calibrated_with_what_it_predicts(study: str, scale: float) -> None:
    smallest = min(STUDIES[study].sizes_for(scale))
    for overlap, name in STUDIES[study].models.items():
        kernels = measurement_kernels(load_model(name), scale)
        own = [kernel for kernel in kernels if kernel.generator in {"matmul_sq", "dg_diff", "fdiff"}]
        # One in-core model needs the variants at one small size to know how far work and transfer overlap.
        assert bool(own) == ((study, overlap) == ("fdiff", "incore"))
        assert all(kernel.sizes["n"] < smallest for kernel in own)


def evaluate_on_fake(largest_group: int):
    """Evaluate finite differences on a device that obeys the linear model, and has a limit on work-groups."""
    description = load_model("fdiff_linear")
    costs = dict.fromkeys(description.model().params(), 2e-11) | {"p_launch": 4e-6, "p_group": 1e-8, "p_barrier": 3e-8}
    model = description.model()
    study = STUDIES["fdiff"]
    kernels = [kernel for name in study.models.values() for kernel in measurement_kernels(load_model(name))]
    sizes = [*study.trial_sizes, *study.sizes]
    kernels += [study.kernel(variant, size) for variant in study.variants for size in sizes]
    by_name = {kernel.name: kernel for kernel in kernels}

    def law(label: str, sizes: dict[str, int]) -> float:
        if label not in by_name:  # the pilot, which tells how fast the device is
            return sizes["nelements"] * 64 * 32 / REFERENCE_RATE
        kernel = by_name[label]
        if kernel.arguments.get("tile", 1) ** 2 > largest_group:
            items = kernel.arguments["tile"] ** 2
            msg = f"{label}: work-groups have {items} work-items, the device allows {largest_group}"
            raise MeasurementError(msg)
        return float(model.eval_with_kernel(costs, kernel, kernel.sizes))

    device = FakeDevice(law, noise=0.002)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return evaluate_device(device, [study])


@pytest.fixture(scope="module")
def evaluation():
    """Finite differences on a device that runs everything."""
    return evaluate_on_fake(1024)


def test_a_variant_that_cannot_run_is_skipped_and_the_other_one_predicted() -> None:
    evaluation = evaluate_on_fake(256)
    (result,) = evaluation.studies
    assert {point.variant for point in result.points} == {"16x16"}
    assert len(result.points) == 6
    assert result.geomean_error(result.model) < 0.01
    skipped = dict(evaluation.skipped)
    assert "fdiff(dtype=float32, tile=18, groups_fit=True, n=5264)" in skipped
    assert all("324 work-items, the device allows 256" in reason for reason in skipped.values())
    assert "p_tile18" in report_text([evaluation], [])


def test_a_study_that_cannot_run_is_an_error_that_says_why() -> None:
    with pytest.raises(
        CalibrationError, match=r"no study can be evaluated on fake.*allows 4; study fdiff: none of its variants"
    ):
        evaluate_on_fake(4)


def test_a_device_that_obeys_a_model_is_predicted(evaluation) -> None:
    (result,) = evaluation.studies
    # Each cost grows with n squared, so that the linear model and the in-core one are both right.
    assert result.choice.name == result.model
    assert result.model in {"linear", "incore"}
    assert max(result.geomean_error("linear"), result.geomean_error("incore")) < 0.01
    assert len(result.points) == 12
    assert {point.variant for point in result.points} == {"16x16", "18x18"}
    pairs, right = result.pairs("linear")
    assert pairs == right
    assert abs(evaluation.drift) < 0.01
    assert [entry.ratio for entry in evaluation.overlap] == [1, 2, 4, 8, 16, 32]


def test_files(evaluation, tmp_path: Path) -> None:
    paths = {path.name for path in write_evaluation([evaluation], tmp_path)}
    assert {"report.md", "summary.csv", "points.csv", "parameters.csv", "choices.csv", "skipped.csv"} <= paths
    assert {"step_function.png", "overlap.png", "fdiff_fake_device_fake_platform.png"} <= paths
    with (tmp_path / "summary.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == [
        "device", "study", "variant", "model", "geomean_error", "noise_floor", "pairs", "pairs_ranked_right",
    ]  # fmt: skip
    assert [row["variant"] for row in rows] == ["16x16", "18x18", "all"]
    (result,) = evaluation.studies
    assert float(rows[-1]["geomean_error"]) == result.geomean_error(result.model)
    with (tmp_path / "points.csv").open() as stream:
        points = list(csv.DictReader(stream))
    assert len(points) == len(result.points) * len(result.calibrations)
    assert {point["disturbed"] for point in points} == {"False"}
    assert {float(point["repeatability"]) for point in points} == {one.repeatability for one in result.points}
    assert all(
        float(p["relative_error"]) == pytest.approx(float(p["predicted_s"]) / float(p["measured_s"]) - 1)
        for p in points
    )
    loaded = Calibration.load(tmp_path / "calibration_fdiff_linear_fake_device_fake_platform.yaml")
    assert loaded.params["p_tile16"] == pytest.approx(result.calibrations["linear"].params["p_tile16"])
    text = (tmp_path / "report.md").read_text()
    assert text == report_text([evaluation], _pictures(text))
    assert f"Over everything: {100 * overall_error([evaluation]):.1f} %" in text
    assert "`p_tile16`" in text


def _pictures(text: str) -> list[str]:
    return [part.partition("]")[0] for part in text.split("![")[1:]]


def test_pairs_count_only_variants_that_differ(evaluation) -> None:
    (template,) = evaluation.studies
    points = (
        Point("a", 1, 1.00, 0.0, {"m": 1.0}),
        Point("b", 1, 1.06, 0.0, {"m": 0.5}),
        Point("a", 2, 1.00, 0.0, {"m": 1.0}),
        Point("b", 2, 1.20, 0.0, {"m": 1.1}),
        Point("a", 3, 1.00, 0.0, {"m": 1.0}),
        Point("b", 3, 1.20, 0.0, {"m": 0.9}),
    )
    result = StudyResult(template.study, template.choice, "m", {}, points)
    assert result.pairs("m") == result.pairs("m", "a") == (2, 1)
    assert result.pairs("m", "c") == (0, 0)
    assert result.geomean_error("m", "a") == pytest.approx(1e-6)


def test_the_output_feature_names_the_device(evaluation) -> None:
    for calibration in evaluation.studies[0].calibrations.values():
        assert calibration.model.output_feature.startswith("f_cl_wall_time_")
