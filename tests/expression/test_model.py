"""The Model class: names, evaluation, derivatives, refusals."""

import copy
import pickle
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import sympy

import perflex.features.report  # before a test replaces what it takes from `perflex.features`
from perflex import Model
from perflex.errors import ModelSyntaxError, PerflexError, UnknownFeatureError

OUTPUT = "f_cl_wall_time_nvidia_geforce"


@pytest.fixture(autouse=True)
def any_feature(monkeypatch):
    """Accept every feature but one misspelt: what features exist is tested where they are."""

    def parse(identifier):
        if "flaot" in identifier:
            msg = "did you mean f_op_float32_madd?"
            raise UnknownFeatureError(msg, feature=identifier)
        return SimpleNamespace(identifier=identifier, unit="thing")

    monkeypatch.setattr(perflex.features, "parse_feature", parse, raising=False)


def test_names_in_order_of_appearance():
    model = Model(OUTPUT, "p_b * f_y + p_a * f_x * f_y + p_b")
    assert model.all_features() == [OUTPUT, *model.input_features()] == [OUTPUT, "f_y", "f_x"]
    assert model.params() == ["p_b", "p_a"]


X, Y = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.25, 4.0])


@pytest.mark.parametrize(("expression", "values", "expected"), [
    ("p_a * f_x + p_b * f_y**2 + 1", {"f_x": X, "f_y": Y}, 2 * X - Y**2 + 1),
    ("p_a * f_x + p_b * f_y**2 + 1", {"f_x": X, "f_y": 2}, 2 * X - 3),
    ("p_a + 0 * f_x", {"f_x": X}, np.full(3, 2.0)), ("p_a + max(p_a * f_x, f_y)", {"f_x": 3.0, "f_y": 7.0}, 9.0),
    # Numbers keep every bit.
    ("0.1 * f_x + 0.61728394506172835e-11 * p_a + f_x / 3", {"f_x": 0.0}, 1.2345678901234567e-11),
    ("0.1 * f_x + 1.2345678901234567e-11 * (p_a - 2) + f_x / 3", {"f_x": 3.0}, 0.1 * 3.0 + 1.0),
])  # fmt: skip
def test_evaluate_vectorises_and_broadcasts(expression, values, expected):
    model = Model(OUTPUT, expression)
    found = model.evaluate({name: {"p_a": 2.0, "p_b": -1.0}[name] for name in model.params()}, values)
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_symbols_have_the_models_names():
    feature = "f_mem_access_tag:aLD"
    model = Model(OUTPUT, f"p_a**2 * {feature}")
    symbol = {s.name: s for s in model.symbolic.free_symbols}
    assert set(symbol) == {"p_a", feature}
    assert sympy.simplify(model.symbolic - symbol["p_a"] ** 2 * symbol[feature]) == 0


@pytest.mark.parametrize(("expression", "calls"), [
    ("overlap(p_a * f_x, p_b, p_c) + abs(p_a)", []), ("p_a * max(f_x, f_y, 3)", []),
    ("p_a + max(p_a * f_x, f_y)", ["max(p_a * f_x, f_y)"]),
])  # fmt: skip
def test_only_smooth_models_are_differentiable(expression, calls):
    assert Model(OUTPUT, expression).nonsmooth_calls() == calls


def test_terms_add_up_and_carry_their_text():
    model = Model(OUTPUT, "p_a * f_x - (p_b + p_a) * f_y + overlap(p_a, p_b, 1) + 4 - p_b")
    params, values = {"p_a": 2.0, "p_b": 5.0}, {"f_x": 3.0, "f_y": 7.0}
    terms = model.terms(params, values)
    assert terms.items() >= {"p_a * f_x": 6.0, "-((p_b + p_a) * f_y)": -49.0, "-(p_b)": -5.0}.items()
    assert sum(terms.values()) == pytest.approx(model.evaluate(params, values), rel=1e-15)
    assert Model(OUTPUT, " p_a ").terms(params, {}) == {"p_a": 2.0}
    assert Model(OUTPUT, "p_a + p_a").terms(params, {}) == {"p_a": 4.0}


def test_costs_within_an_overlap_are_told_apart():
    model = Model(OUTPUT, "p_a + 3 * smooth_max(p_a * f_x + p_b * f_y, p_b * f_x, 1) - max(f_x, 1) * p_b")
    params, values = {"p_a": 2.0, "p_b": 5.0}, {"f_x": np.array([3.0, 0.0]), "f_y": np.array([7.0, 0.0])}
    terms = model.terms(params, values)
    # The norm with exponent two of 41 and 15: each adds its square, divided by the norm.
    norm = np.hypot(41.0, 15.0)
    assert terms["p_a * f_x"] == pytest.approx([3 * 6 * 41 / norm, 0])
    assert terms["p_b * f_y"] == pytest.approx([3 * 35 * 41 / norm, 0])
    assert terms["p_b * f_x"] == pytest.approx([3 * 15 * 15 / norm, 0])
    assert terms["-(max(f_x, 1) * p_b)"] == pytest.approx([-15, -5])
    assert terms["p_a"] == 2.0


@pytest.mark.parametrize("overlap", [
    "smooth_max(p_a * f_x, p_b * f_y, f_x, p_s)", "smooth_max(p_a * f_x, p_b * f_y, 0)",
    "max(p_a * f_x, p_b * f_y)", "overlap(p_a * f_x, p_b * f_y, p_s)", "overlap(p_a * f_x, p_b * f_y, 0)",
    "partial_overlap(p_a * f_x, p_b * f_y, p_s, 0.7)",
    "2 * (smooth_max(p_a * f_x, max(p_b, p_a) * f_y, p_s) + p_b * f_y) / f_x",
])  # fmt: skip
def test_contributions_of_overlapping_costs_add_up(overlap):
    model = Model(OUTPUT, overlap)
    params = {name: {"p_a": 2.0, "p_b": 5.0, "p_s": 3.0}[name] for name in model.params()}
    values = {"f_x": np.array([1e-3, 4.0, 900.0]), "f_y": np.array([3.0, 1.6, 1e-3])}
    terms = model.terms(params, values)
    assert len(terms) > 1
    assert sum(terms.values()) == pytest.approx(np.asarray(model.evaluate(params, values)), rel=1e-12)
    # A hidden cost takes nothing away, though some of these functions fall a little as it rises.
    assert all(np.min(part) >= 0 for part in terms.values())


@pytest.mark.parametrize(("params", "values", "says"), [
    ({"p_a": 1.0}, {"f_x": 1.0}, "parameter p_b"), ({"p_a": 1.0, "p_b": 1.0}, {}, "feature f_x"),
])  # fmt: skip
def test_missing_values_are_named(params, values, says):
    with pytest.raises(PerflexError, match=f"no value is given for {says}") as caught:
        Model(OUTPUT, "p_a * f_x + p_b").evaluate(params, values)
    assert getattr(caught.value, says.split()[0]) == says.split()[1]


@pytest.mark.parametrize("expression", ["p_a / f_x", "log(f_x) * p_a", "exp(p_a * 1e4)", "f_x ** -p_a"])
def test_results_that_are_no_numbers_are_errors(expression):
    with pytest.raises(PerflexError, match="no finite number"):
        Model(OUTPUT, expression).evaluate({"p_a": 1.0}, {"f_x": 0.0})


@pytest.mark.parametrize("expression", [
    "p_a / (f_x - f_x)", "p_a * log(f_x - f_x - 1)", "log(f_x - f_x) + p_a", "(p_a - p_a) ** -1",
    "1 / (0 * f_x) + p_a", "sqrt(f_x - f_x - 1) * p_a",
])  # fmt: skip
def test_expressions_that_simplify_to_nonsense(expression):
    with pytest.raises(PerflexError, match="no finite number"):
        Model(OUTPUT, expression).evaluate({"p_a": 1.0}, {"f_x": 0.7})
    with pytest.raises(ModelSyntaxError, match="no real number"):
        _ = Model(OUTPUT, expression).symbolic


def test_values_and_slopes_need_no_sympy():
    code = """if True:
        import sys
        from perflex import Model
        text = "p_a * f_thread_items / f_thread_groups"
        text += " + smooth_max(p_a, p_b * f_thread_items, p_sharp) * log(1 + f_thread_items)"
        model = Model("f_cl_wall_time", text)
        assert "loopy" not in sys.modules
        params, values = {"p_a": 1.0, "p_b": 2.0, "p_sharp": 3.0}, {"f_thread_items": 8.0, "f_thread_groups": 2.0}
        print(model.evaluate(params, values))
        model.derivatives({**values, **params}, 1)
        print("sympy" in sys.modules)
        """
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert float(shown[0]) == pytest.approx(4 + (1 + 16**4) ** 0.25 * np.log(9))
    assert shown[1] == "False"


@pytest.mark.parametrize(("output", "expression", "error"), [
    (OUTPUT, "p_a * f_op_flaot32_madd", "did you mean f_op_float32_madd"),
    ("f_op_flaot32_madd", "p_a", "did you mean f_op_float32_madd"), ("f_x", "p_a * f_x", "stands in the expression"),
    *((bad, "p_a", "must be one feature") for bad in ("", "p_a", "wall_time", "f_x + f_y", "f_", " f_x", "f_x\n", "2")),
])  # fmt: skip
def test_the_output_and_all_inputs_must_be_features(output, expression, error):
    with pytest.raises(UnknownFeatureError if "mean" in error else ModelSyntaxError, match=error):
        Model(output, expression)


@pytest.mark.parametrize("output", ["f_cl_wall_time", "f_cl_wall_time_pocl_cpu", "f_cuda_wall_time_h100"])
def test_wall_times_need_no_feature_class(output, monkeypatch):
    def refuse(identifier):
        raise UnknownFeatureError(identifier)

    monkeypatch.setattr(perflex.features, "parse_feature", refuse, raising=False)
    assert Model(output, "p_a").all_features() == [output]


def test_value_semantics():
    model = Model(OUTPUT, "p_a * f_x")
    model.evaluate({"p_a": 1.0}, {"f_x": 1.0})  # compiled functions must not get in the way
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert twin == model
        assert hash(twin) == hash(model)
        assert twin.evaluate({"p_a": 2.0}, {"f_x": 3.0}) == 6.0
    assert model != Model(OUTPUT, "p_b * f_x")
    assert repr(model) == f"Model('{OUTPUT}', 'p_a * f_x')"
    assert "parameters: p_a" in str(model)
    with pytest.raises(AttributeError):
        model.expression = "p_b"  # type: ignore[misc]


def test_eval_with_kernel_takes_kernels_and_measurement_kernels(monkeypatch):
    seen = []

    def values(features, kernel, sizes, target):
        seen.append((kernel, dict(sizes), target.sub_group_size))
        return {feature: float(sizes["n"]) for feature in features}

    monkeypatch.setattr("perflex.features.values.feature_values", values)
    monkeypatch.setattr("perflex.features.report.warn_uncounted", lambda *_: None)
    model = Model(OUTPUT, "p_a * f_x")
    assert model.eval_with_kernel({"p_a": 2.0}, "kernel", {"n": 8}) == 16.0
    measured = SimpleNamespace(kernel="inner", generator="g", sizes={"n": 4, "m": 1})
    assert model.eval_with_kernel({"p_a": 2.0}, measured, {"n": 16}, sub_group_size=64) == 32.0
    assert seen == [("kernel", {"n": 8}, 32), ("inner", {"n": 16, "m": 1}, 64)]
    with pytest.raises(PerflexError, match="parameter p_a"):
        model.eval_with_kernel({}, "kernel", {"n": 8})
    assert len(seen) == 2
