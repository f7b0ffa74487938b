"""The Model class: names, evaluation, derivatives, refusals."""

import copy
import difflib
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
            nearest = difflib.get_close_matches(identifier, ["f_op_float32_madd"], n=1, cutoff=0)
            msg = f"no feature is called {identifier}; did you mean {nearest[0]}?"
            raise UnknownFeatureError(msg, feature=identifier)
        return SimpleNamespace(identifier=identifier, unit="thing")

    monkeypatch.setattr(perflex.features, "parse_feature", parse, raising=False)


def test_names_in_order_of_appearance():
    model = Model(OUTPUT, "p_b * f_y + p_a * f_x * f_y + p_b")
    assert model.all_features() == [OUTPUT, "f_y", "f_x"]
    assert model.input_features() == ["f_y", "f_x"]
    assert model.params() == ["p_b", "p_a"]


def test_evaluate_vectorises_and_broadcasts():
    model = Model(OUTPUT, "p_a * f_x + p_b * f_y**2 + 1")
    x, y = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.25, 4.0])
    got = model.evaluate({"p_a": 2.0, "p_b": -1.0}, {"f_x": x, "f_y": y})
    np.testing.assert_allclose(got, 2 * x - y**2 + 1, rtol=1e-15)
    np.testing.assert_allclose(model.evaluate({"p_a": 2.0, "p_b": -1.0}, {"f_x": x, "f_y": 2}), 2 * x - 3)
    constant = Model(OUTPUT, "p_a + 0 * f_x")
    np.testing.assert_array_equal(constant.evaluate({"p_a": 3.0}, {"f_x": x}), [3.0, 3.0, 3.0])


def test_symbols_have_the_models_names():
    feature = "f_mem_access_tag:aLD"
    model = Model(OUTPUT, f"p_a**2 * {feature}")
    symbol = {s.name: s for s in model.symbolic.free_symbols}
    assert set(symbol) == {"p_a", feature}
    assert sympy.simplify(model.symbolic - symbol["p_a"] ** 2 * symbol[feature]) == 0


def test_numbers_keep_every_bit():
    model = Model(OUTPUT, "0.1 * f_x + 1.2345678901234567e-11 * p_a + f_x / 3")
    got = model.evaluate({"p_a": 1.0}, {"f_x": 0.0})
    assert got == 1.2345678901234567e-11
    assert model.evaluate({"p_a": 0.0}, {"f_x": 3.0}) == pytest.approx(0.1 * 3.0 + 1.0, rel=1e-16)


def test_only_smooth_models_are_differentiable():
    assert Model(OUTPUT, "overlap(p_a * f_x, p_b, p_c) + abs(p_a)").nonsmooth_calls() == []
    assert Model(OUTPUT, "p_a * max(f_x, f_y, 3)").nonsmooth_calls() == []
    rough = Model(OUTPUT, "p_a + max(p_a * f_x, f_y)")
    assert rough.nonsmooth_calls() == ["max(p_a * f_x, f_y)"]
    assert rough.evaluate({"p_a": 2.0}, {"f_x": 3.0, "f_y": 7.0}) == 9.0


def test_terms_add_up_and_carry_their_text():
    model = Model(OUTPUT, "p_a * f_x - (p_b + p_a) * f_y + overlap(p_a, p_b, 1) + 4 - p_b")
    params, values = {"p_a": 2.0, "p_b": 5.0}, {"f_x": 3.0, "f_y": 7.0}
    terms = model.terms(params, values)
    assert terms["p_a * f_x"] == 6.0
    assert terms["-((p_b + p_a) * f_y)"] == -49.0
    assert terms["-(p_b)"] == -5.0
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


@pytest.mark.parametrize(
    "overlap",
    [
        "smooth_max(p_a * f_x, p_b * f_y, f_x, p_s)", "smooth_max(p_a * f_x, p_b * f_y, 0)",
        "max(p_a * f_x, p_b * f_y)", "overlap(p_a * f_x, p_b * f_y, p_s)", "overlap(p_a * f_x, p_b * f_y, 0)",
        "partial_overlap(p_a * f_x, p_b * f_y, p_s, 0.7)",
        "2 * (smooth_max(p_a * f_x, max(p_b, p_a) * f_y, p_s) + p_b * f_y) / f_x",
    ],
)  # fmt: skip
def test_contributions_of_overlapping_costs_add_up(overlap):
    model = Model(OUTPUT, overlap)
    params = {"p_a": 2.0, "p_b": 5.0, "p_s": 3.0}
    values = {"f_x": np.array([1e-3, 4.0, 900.0]), "f_y": np.array([3.0, 1.6, 1e-3])}
    terms = model.terms({name: params[name] for name in model.params()}, values)
    whole = np.asarray(model.evaluate({name: params[name] for name in model.params()}, values))
    assert len(terms) > 1
    assert sum(terms.values()) == pytest.approx(whole, rel=1e-12)
    # A hidden cost takes nothing away, though some of these functions fall a little as it rises.
    assert all(np.min(part) >= 0 for part in terms.values())


def test_missing_values_are_named():
    model = Model(OUTPUT, "p_a * f_x + p_b")
    with pytest.raises(PerflexError, match="no value is given for parameter p_b") as caught:
        model.evaluate({"p_a": 1.0}, {"f_x": 1.0})
    assert caught.value.parameter == "p_b"
    with pytest.raises(PerflexError, match="no value is given for feature f_x"):
        model.evaluate({"p_a": 1.0, "p_b": 1.0}, {})


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
        model.compiled.derivatives({**values, **params}, 1)
        print("sympy" in sys.modules)
        """
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert float(shown[0]) == pytest.approx(4 + (1 + 16**4) ** 0.25 * np.log(9))
    assert shown[1] == "False"


def test_unknown_features_are_refused_when_the_model_is_made():
    with pytest.raises(UnknownFeatureError, match="did you mean f_op_float32_madd"):
        Model(OUTPUT, "p_a * f_op_flaot32_madd")
    with pytest.raises(UnknownFeatureError):
        Model("f_op_flaot32_madd", "p_a")


@pytest.mark.parametrize("output", ["", "p_a", "wall_time", "f_x + f_y", "f_", " f_x", "f_x\n", "2"])
def test_the_output_must_be_a_feature(output):
    with pytest.raises(ModelSyntaxError):
        Model(output, "p_a")


def test_the_output_must_not_be_an_input():
    with pytest.raises(ModelSyntaxError, match="stands in the expression"):
        Model("f_x", "p_a * f_x")


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
