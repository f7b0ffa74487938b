"""Pruning of loopy variants against a known law: what is kept, why, and what the promise rests on."""

import csv
import math
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest

from perflex import FeatureTable, Model, Promise, RunOptions, VariantSpace, prune, rank
from perflex.errors import CalibrationError, PerflexError, PerflexWarning, UnsupportedKernelError
from perflex.models import load_model, model_names
from perflex.search.costs import dominating, feature_kind, model_costs
from perflex.search.ranking_picture import draw_ranking
from support.fitted import fitted
from support.html_structure import checked
from support.spaces_for_tests import scaled, small_space

pytestmark = pytest.mark.filterwarnings("ignore::perflex.errors.DoubtfulPredictionWarning")

MODEL = Model(
    "f_cl_wall_time",
    "p_launch * f_sync_kernel_launch + p_group * f_thread_groups + p_mul * f_op_float32_mul "
    "+ p_load * f_mem_access_global_float32_load + p_store * f_mem_access_global_float32_store",
)
LAW = {"p_launch": 1e-6, "p_group": 2e-8, "p_mul": 1e-9, "p_load": 1e-11, "p_store": 1e-11}


def made(error=0.0, rows=60, model=MODEL, generators=20):
    """A calibration from invented kernels that obey the law up to errors."""
    chance = np.random.default_rng(0)
    inputs = np.exp(chance.uniform(0, 8, (rows, 5)))
    inputs[:, 0] = 1
    seconds = inputs @ np.array(list(LAW.values())) * np.exp(error * chance.normal(size=rows))
    labels = tuple(f"k{number % generators}({number})" for number in range(rows))
    groups = tuple(label.partition("(")[0] for label in labels)
    columns = np.column_stack([seconds, inputs])
    return fitted(
        model, FeatureTable(model.output_feature, tuple(model.all_features()), labels, columns, groups=groups)
    )


@pytest.fixture(scope="module")
def calibration():
    return made(0.05)


@pytest.fixture(scope="module")
def pruning(calibration):
    return prune(small_space(), calibration, {"n": 4096}, keep=3)


def test_the_fastest_predicted_are_kept(pruning, calibration):
    assert len(pruning.kept) == 3
    assert len(pruning) == 9
    assert [variant.rank for variant in pruning] == list(range(1, 10))
    assert max(v.predicted for v in pruning.kept) <= min(v.predicted for v in pruning.dropped)
    for variant in pruning:
        kernel = scaled(**variant.settings)
        assert variant.predicted == pytest.approx(calibration.predict(kernel, {"n": 4096}))
        interval = calibration.predict_interval(kernel, {"n": 4096})
        assert (variant.low, variant.high) == pytest.approx((interval.low, interval.high))
        assert sum(variant.costs.values()) == pytest.approx(variant.predicted)


def unbuildable(**_):
    pytest.fail("nothing is to be built")


@pytest.mark.parametrize("keep", [0, 0.0, 1.5, -0.1, -1, "5%", math.nan, None, True])
def test_keep_is_checked_before_anything_is_built(calibration, keep):
    with pytest.raises(CalibrationError, match=r"kept|keep"):
        prune(VariantSpace(unbuildable, {"a": (1, 2)}), calibration, {"n": 4096}, keep=keep)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_predictions_that_are_not_finite_are_refused(pruning, calibration, value):
    features, values = pruning.variants.features, pruning.variants.values.copy()
    values[:, features.index("f_thread_groups")] = [1.0] * 8 + [value]
    with pytest.raises(PerflexError, match="gives no finite number"):
        prune(replace(pruning.variants, values=values), calibration, keep=3)


@pytest.mark.parametrize(("keep", "count"), [(0.1, 1), (0.5, 5), (1.0, 9), (1, 1), (20, 9), (0.001, 1)])
def test_numbers_and_shares(keep, count, pruning, calibration):
    assert len(prune(pruning.variants, calibration, keep=keep).kept) == count


def test_reasons_and_dominating_cost(pruning):
    slowest = pruning[-1]
    assert not slowest.kept
    assert f"predicted {slowest.ratio:.3g} times the fastest; {slowest.dominating} dominates" in slowest.reason
    # 16 work-items per group: 256 groups at 2e-8 s each and many half-empty sub-groups.
    assert {variant.dominating for variant in pruning} <= {"on-chip", "overhead"}
    by_hand = max(slowest.costs, key=lambda kind: slowest.costs[kind])
    assert slowest.dominating == by_hand


def test_measured_variants(pruning, calibration):
    names = [variant.name for variant in pruning]
    found = prune(pruning.variants, calibration, keep=3, measured={names[5]: 2e-5, names[0]: 3e-5})
    reasons = {variant.name: variant.reason for variant in found}
    assert reasons[names[5]] == "the fastest measured"
    assert reasons[names[0]] == "measured 1.5 times the fastest"
    kept = [variant.name for variant in found.kept]
    assert (len(kept), names[5] in kept, names[0] in kept) == (3, True, False)


def test_a_promise_from_a_batch(pruning, calibration):
    with pytest.raises(CalibrationError, match="measured"):
        prune(pruning.variants, calibration, keep=Promise())
    times = {variant.name: variant.predicted * 1.1 for variant in pruning}
    small = prune(pruning.variants, calibration, keep=Promise(), measured=dict(list(times.items())[:4]))
    assert not small.decision.met
    assert len(small.kept) == 6
    whole = prune(pruning.variants, calibration, keep=Promise(0.05, 0.8), measured=dict(list(times.items())[2:6]))
    assert whole.decision.met
    assert {variant.rank for variant in whole.kept} <= {1, 2, 3}


def test_measured_variants_correct_the_predictions_of_the_others(calibration):
    space = VariantSpace(scaled, {"lsize": (16, 32, 64), "repeats": (1, 2, 3, 4, 6, 8, 10, 12)}, name="scaled")
    before = rank(space, calibration, {"n": 4096})
    # What the calibration does not know: larger work-groups cost more than they save.
    times = {one.name: one.predicted * (one.settings["lsize"] / 16) ** 2 for one in before}
    batch = dict(list(times.items())[::2])
    found = rank(before.variants, calibration, keep=3, measured=batch)
    for one in found:
        assert abs(math.log(one.predicted / times[one.name])) < 0.1
        assert one.low < times[one.name] < one.high
        assert sum(one.costs.values()) == pytest.approx(one.predicted)
        assert sum(one.terms.values()) == pytest.approx(one.predicted)
        assert one.knowledge == "timing of other variants"
    assert {one.name for one in found if not math.isnan(one.measured)} == set(batch)
    assert "corrected by the times of measured variants" in repr(found)
    best = min(times, key=times.__getitem__)
    assert best in {one.name for one in found.kept}
    # What is predicted of a measured variant did not see its time.
    odd = next(iter(batch))
    other = rank(before.variants, calibration, measured={**batch, odd: 3 * batch[odd]})
    (one,) = (one for one in other if one.name == odd)
    assert one.predicted < 1.2 * batch[odd]
    few = rank(before.variants, calibration, measured=dict(list(batch.items())[:7]))
    assert few.predicted.tolist() == before.predicted.tolist()
    promised = prune(before.variants, calibration, keep=Promise(0.05, 0.8), measured=batch)
    assert promised.decision.met
    assert len(promised.kept) < 10


def test_repeated_kernels_may_be_measured_under_each_name(calibration):
    space = VariantSpace(scaled, {"lsize": (16, 32), "repeats": (1,), "dead": (0, 1)})
    found = prune(space, calibration, {"n": 1024}, keep=1, measured={"lsize=16, repeats=1, dead=1": 1e-6})
    assert [variant.name for variant in found.kept] == ["lsize=16, repeats=1, dead=0"]
    assert found.excluded == {"same kernel as another setting": 2}
    ranking = rank(space, calibration, {"n": 1024})
    assert ranking.excluded == found.excluded
    assert "left out: same kernel as another setting (2)" in checked(ranking._repr_html_()).text


NAMED = "lsize=16, repeats=1"


@pytest.mark.parametrize(
    ("measured", "text"),
    [
        ({"other": 1.0}, "none of the 9 variants"),
        ({NAMED: math.nan}, "must be positive"),
        ({NAMED: "x"}, "is 'x'; it must be positive"),
        ({NAMED: None}, "is None; it must be positive"),
        ({NAMED: True}, "is True; it must be positive"),
        ([1.0], "by name, e.g. .*, not as list"),
    ],
)
def test_bad_measurements(measured, text, pruning, calibration):
    with pytest.raises(CalibrationError, match=text):
        prune(pruning.variants, calibration, measured=measured)


def test_kernels_by_name(calibration):
    kernels = {"slow": scaled(lsize=16, repeats=4), "fast": scaled(lsize=64, repeats=1)}
    found = prune(kernels, calibration, {"n": 4096}, keep=0.5)
    assert [variant.name for variant in found.kept] == ["fast"]
    assert found.kernel(found.kept[0]) is kernels["fast"]
    assert [place.name for place in rank(kernels, calibration, {"n": 4096})] == ["fast", "slow"]
    for given, words in (
        (([], calibration, {"n": 1}), "no variants"),
        ((kernels["fast"], calibration, {"n": 1}), "in a list or by name, or a VariantSpace, not a TranslationUnit"),
        ((None, calibration, {"n": 1}), "not a NoneType"),
        ((kernels, calibration, {"n": [4096, 8192]}), "'slow': sizes must be one number each"),
        ((kernels, calibration), "needs sizes"),
    ):
        with pytest.raises(CalibrationError, match=words):
            prune(*given)


def test_kernels_that_cannot_be_described_are_left_out_and_told(calibration):
    kernels = {"good": scaled(lsize=16, repeats=1), "bad": scaled(lsize=16, repeats=1).with_entrypoints(frozenset())}
    with pytest.warns(UserWarning, match="left out: bad: "):
        found = prune(kernels, calibration, {"n": 1024}, keep=5)
    assert ([variant.name for variant in found.kept], sum(found.excluded.values())) == (["good"], 1)
    del kernels["good"]
    with pytest.raises(UnsupportedKernelError, match="none of the 1 variants can be described; bad: "):
        prune(kernels, calibration, {"n": 1024})


@pytest.mark.parametrize("pool", [None, ThreadPoolExecutor, ProcessPoolExecutor])
def test_what_the_model_has_no_feature_for_is_told_wherever_it_is_counted(pool):
    expression = MODEL.expression.replace("f_op_float32_mul", "f_op_float32_add")
    calibration = made(model=Model(MODEL.output_feature, expression))
    kernels = {"first": scaled(lsize=16, repeats=1), "second": scaled(lsize=32, repeats=2)}
    with ExitStack() as stack:
        own = {"mp_context": get_context("spawn")} if pool is ProcessPoolExecutor else {}
        executor = None if pool is None else stack.enter_context(pool(1, **own))
        caught = stack.enter_context(pytest.warns(PerflexWarning, match="no feature for"))
        found = prune(kernels, calibration, {"n": 1024}, keep=1, run=RunOptions(executor=executor))
    assert [str(each.message) for each in caught if each.category is PerflexWarning] == [
        f"{name}: the model has no feature for f_op_float32_mul; the prediction leaves it out" for name in kernels
    ]
    alone = prune(kernels, made(), {"n": 1024}, keep=1)
    assert {each.name for each in found} == {each.name for each in alone} == set(kernels)


def test_table_csv_and_repr(pruning, tmp_path):
    path = tmp_path / "pruning.csv"
    pruning.to_csv(path)
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows] == [variant.name for variant in pruning]
    assert [float(row["predicted_s"]) for row in rows] == [variant.predicted for variant in pruning]
    assert repr(pruning).startswith("3 of 9 variants kept (33.3 %)")


def test_a_pruning_without_intervals_says_why():
    few = made(rows=5)
    with pytest.warns(PerflexWarning, match="^the predictions have no intervals: "):
        found = prune(small_space(), few, {"n": 4096}, keep=3)
    assert np.isnan(found.low).all()


def test_measurements_judge_a_ranking(pruning, tmp_path):
    with pytest.raises(CalibrationError, match="no variant has a measured time"):
        pruning.check()
    times = {variant.name: variant.predicted * 1.1 for variant in pruning}
    check = pruning.check(times)
    found = check.accuracy
    assert (found.geometric_mean, found.median, found.rms, found.maximum) == pytest.approx((1 - 1 / 1.1,) * 4)
    numbers = (found.cases, found.spearman, check.kept_measured, check.loss, check.coverage)
    assert numbers == pytest.approx((9, 1, 3, 0, 1))
    times[pruning[-1].name] = pruning[0].predicted
    changed = pruning.check(times)
    far = abs(pruning[-1].predicted / pruning[0].predicted - 1)
    rms = ((8 * (1 / 11) ** 2 + far**2) / 9) ** 0.5
    assert (changed.loss, changed.accuracy.maximum, changed.accuracy.rms) == pytest.approx((0.1, far, rms))
    assert f"rms {100 * rms:.3g} %; maximum {100 * far:.3g} %" in str(changed)
    draw_ranking(pruning.with_times(times), tmp_path / "a.png")
    draw_ranking(pruning, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == (tmp_path / "b.png").read_bytes()[:4] == b"\x89PNG"


def test_costs_by_hand():
    model = Model(
        "f_cl_wall_time",
        "p_a * f_mem_access_global_float32 + 2 * (p_b * f_op_float32_add + p_c * f_sync_barrier_local"
        " * f_thread_groups) + max(p_b * f_op_float32_mul, p_a * f_mem_access_tag:t) + p_l",
    )
    columns = {
        "f_mem_access_global_float32": [1, 1], "f_op_float32_add": [2, 0], "f_sync_barrier_local": [3, 3],
        "f_thread_groups": [4, 4], "f_op_float32_mul": [50, 1], "f_mem_access_tag:t": [5, 5],
    }  # fmt: skip
    columns = {name: np.array(values, dtype=float) for name, values in columns.items()}
    params = {"p_a": 1.0, "p_b": 1.0, "p_c": 1.0, "p_l": 7.0}
    costs = model_costs(model, params, columns)
    found = {kind: costs[kind].tolist() for kind in ("memory", "on-chip", "overhead")}
    assert found == {"memory": [1, 6], "on-chip": [54, 0], "overhead": [31, 31]}
    assert sum(costs.values()).tolist() == np.asarray(model.evaluate(params, columns)).tolist()
    kinds, shares = dominating(costs)
    assert kinds == ["on-chip", "overhead"]
    assert shares.tolist() == pytest.approx([54 / 86, 31 / 37])
    kinds = {"f_mem_access_tag:t": "on-chip"}
    local = model_costs(model, params, columns, lambda name: kinds.get(name) or feature_kind(name))
    assert local["memory"].tolist() == [1, 1]
    # The norm with exponent two: each adds its square, divided by the norm.
    model = load_model("general_cpu").model()
    columns = {feature: np.array([0.0]) for feature in model.input_features()}
    columns |= {"f_simd_arith_vector_loop": np.array([1.0]), "f_traffic_bytes_mem": np.array([2.0])}
    costs = model_costs(model, dict.fromkeys(model.params(), 1.0), columns)
    assert costs["on-chip"] == pytest.approx([1 / 5**0.5])
    assert costs["memory"] == pytest.approx([4 / 5**0.5])
    assert costs["overhead"] == costs["other"] == [0.0]


@pytest.mark.parametrize("name", model_names())
def test_kinds_of_cost_in_shipped_models_are_known(name):
    kinds = {feature: feature_kind(feature) for feature in load_model(name).model().input_features()}
    # Tags say nothing of their space; latencies are of everything.
    unknown = {f for f, kind in kinds.items() if kind == "other"} - {"f_peak_latency"}
    assert unknown == set()
    assert {"memory", "on-chip", "overhead"} >= set(kinds.values()) - {"other"}
