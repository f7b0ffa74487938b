"""Conditions: both branches, or each where its condition holds, against what Oclgrind executes."""

from __future__ import annotations

import loopy as lp
import numpy as np
import pytest

from oracles import oclgrind
from perflex.features import annotate, count_features, counts_of, extract_scop

N = 37
TEXTS = {
    "predicate": """
        if i < 7
            y[i] = a[i]*2 + b[i]
        else
            y[i] = a[i] + b[i]
        end
        """,
    "nested": """
        if i < n - 3
            if i >= 5
                y[i] = a[i]*b[i]
            end
            z[i] = a[i] / b[i]
        end
        """,
    "ternary": "y[i] = (a[i]*b[i] + a[i] if i % 3 == 0 else b[i]/a[i])",
    "nested ternary": "y[i] = (a[i] if i < 9 else (b[i]*b[i] if i > 20 else a[i] + b[i]))",
    "not equal": "y[i] = (a[i] + b[i] if i != 5 else a[i])",
    "short circuit": "y[i] = (a[i] + 1 if i > 3 and i < 20 else b[i])",
    "or": "y[i] = (a[i] + 1 if i < 3 or i > n - 6 else b[i]*b[i])",
    "both sizes and loops": "y[i] = (a[i] + 1 if 2*i < n else b[i])",
}
DATA_DEPENDENT = {
    "data": "y[i] = (a[i] + 1 if a[i] > b[i] else b[i]/a[i])",
    "data in a predicate": "if a[i] > 0.3\n y[i] = b[i]*b[i]\nend",
    "data after an affine condition": "y[i] = (a[i] + 1 if i < 9 and a[i] > 0.3 else b[i])",
}


def kernel(text):
    arrays = [lp.GlobalArg(name, np.float32, shape=("n",)) for name in ("a", "b", "y", "z")]
    made = lp.make_kernel(
        "{[i]: 0 <= i < n}",
        text,
        [*arrays, lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        seq_dependencies=True,
        lang_version=(2018, 2),
    )
    return lp.split_iname(made, "i", 8, outer_tag="g.0", inner_tag="l.0")


def sums(annotated):
    """Executed float operations by kind, accesses by direction, and whether all of these counts are exact."""
    scop = extract_scop(annotated)
    entries = count_features(scop, {"n": N}, per_work_item=True)
    found = {e.identifier.rpartition("_")[2]: e.value for e in entries if e.identifier.startswith("f_op_float32_")}
    for direction in ("load", "store"):
        items = [item for item in counts_of(scop).accesses if item.access.direction == direction]
        found[direction] = sum(item.work_item_count.evaluate({"n": N}) for item in items)
    relevant = [e for e in entries if e.identifier.startswith(("f_op_float32", "f_mem"))]
    return {key: value for key, value in found.items() if value}, all(entry.exact for entry in relevant)


def executed(run):
    found = {
        "add": run.adds, "mul": run.muls, "madd": run.madds(), "div": run.divs,
        "load": run.load("global").count, "store": run.store("global").count,
    }  # fmt: skip
    return {key: value for key, value in found.items() if value}


@pytest.mark.slow
@oclgrind.needs_oclgrind
@pytest.mark.parametrize("text", TEXTS)
def test_branches_by_their_domains_are_what_oclgrind_executes(text):
    found, exact = sums(annotate(kernel(TEXTS[text]), branches="domain"))
    assert found == executed(oclgrind.run(kernel(TEXTS[text]), {"n": N}))
    assert exact


@pytest.mark.slow
@oclgrind.needs_oclgrind
@pytest.mark.parametrize("text", {**TEXTS, **DATA_DEPENDENT})
def test_both_branches_bound_what_is_executed(text):
    made = kernel({**TEXTS, **DATA_DEPENDENT}[text])
    found, exact = sums(made)
    run = executed(oclgrind.run(made, {"n": N}))
    assert not exact
    assert all(found[key] >= value for key, value in run.items())
    assert any(found[key] > run.get(key, 0) for key in found)


@pytest.mark.parametrize("text", DATA_DEPENDENT)
def test_data_dependent_conditions_stay_bounds(text):
    assert not sums(annotate(kernel(DATA_DEPENDENT[text]), branches="domain"))[1]


def test_both_branches_count_on_the_whole_domain():
    found, _ = sums(kernel(TEXTS["predicate"]))
    assert found == {"madd": N, "add": N, "load": 4 * N, "store": 2 * N}


def test_a_condition_on_another_argument_makes_it_a_size():
    arrays = [lp.GlobalArg(name, np.float32, shape=("n",)) for name in ("a", "y")]
    args = [*arrays, lp.ValueArg("n", np.int32), lp.ValueArg("m", np.int32)]
    made = lp.make_kernel("{[i]: 0 <= i < n}", "if i < m\n y[i] = a[i]\nend", args, lang_version=(2018, 2))
    made = lp.split_iname(made, "i", 8, outer_tag="g.0", inner_tag="l.0")
    assert extract_scop(made).parameters == ("n",)
    scop = extract_scop(annotate(made, branches="domain"))
    assert scop.parameters == ("m", "n")
    store = next(item for item in counts_of(scop).accesses if item.access.direction == "store")
    assert [store.work_item_count.evaluate({"n": N, "m": m}) for m in (-3, 0, 5, 100)] == [0, 0, 5, N]
