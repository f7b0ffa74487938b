"""Operations that sub-groups execute with some of their work-items only."""

from __future__ import annotations

import pytest

from oracles import oclgrind
from oracles.nasty.collection import kernel as made
from oracles.nasty.collection import per_element
from perflex.features import Target, annotate, count_features, extract_scop, parse_feature

DATA = "x, y: float32[n + 4]"
# Work-groups of 16 work-items.
TEXTS = {
    "one in four": "if i % 4 == 0\n y[i] = 0.2*x[i]\nend",
    "one in sixteen": "if i % 16 == 0\n y[i] = 0.2*x[i]\nend",
    "whole sub-groups": "if i % 16 < 8\n y[i] = 0.2*x[i]\nend",
    "if and else": "if i % 4 == 0\n y[i] = 0.2*x[i]\nelse\n y[i] = x[i]*x[i]*0.3\nend",
    "in an expression": "y[i] = 0.2*x[i] if i < 21 else x[i]*x[i]*0.3",
    "nowhere": "y[i] = 0.2*x[i]",
}


def grid(text: str, size: int = 16):
    return per_element(made("{[i]: 0<=i<n}", text, DATA, seq_dependencies=True), size=size)


def values(text: str, n: int, sub_group: int, size: int = 16) -> tuple[float, float]:
    scop = extract_scop(grid(text, size))
    both = (parse_feature(f"{prefix}_float32_mul") for prefix in ("f_op", "f_diverged"))
    executed, diverged = (float(feature.value(scop, {"n": n}, Target(sub_group))) for feature in both)
    return executed, diverged


@pytest.mark.parametrize(
    ("text", "n", "sub_group", "executed", "diverged"),
    [
        ("one in four", 64, 8, 8, 8),
        ("one in four", 64, 4, 16, 16),
        ("one in four", 64, 1, 16, 0),
        ("one in sixteen", 64, 8, 4, 4),
        ("whole sub-groups", 64, 8, 4, 0),
        ("whole sub-groups", 64, 16, 4, 4),
        ("if and else", 64, 8, 8 + 2 * 8, 8 + 2 * 8),
        ("if and else", 64, 1, 16 + 2 * 48, 0),
        ("in an expression", 64, 8, 3 + 2 * 6, 1 + 2 * 1),
        ("nowhere", 64, 8, 8, 0),
        ("nowhere", 60, 8, 8, 1),
    ],
)
def test_values(text: str, n: int, sub_group: int, executed: float, diverged: float) -> None:
    assert values(TEXTS[text], n, sub_group) == (executed, diverged)


@pytest.mark.slow
@oclgrind.needs_oclgrind
def test_work_items_execute_what_is_counted() -> None:
    """Sub-groups of one work-item never diverge: all that is counted is executed."""
    runs = oclgrind.run_jobs([(grid(text), {"n": 61}) for text in TEXTS.values()])
    for text, run in zip(TEXTS.values(), runs, strict=True):
        assert values(text, 61, 1) == (run.muls, 0)


def test_it_is_listed_where_work_items_differ() -> None:
    def listed(kernel) -> list[str]:
        return [e.identifier for e in count_features(extract_scop(kernel)) if e.identifier.startswith("f_diverged")]

    assert "f_diverged_float32_mul" in listed(grid(TEXTS["one in four"]))
    assert not listed(annotate(made("{[i]: 0<=i<n}", "y[i] = 0.2*x[i]", DATA), branches="both"))
    scop = extract_scop(grid(TEXTS["one in four"]))
    feature = parse_feature("f_diverged_float32_mul")
    assert feature.matches(scop, {"n": 64})
    assert not parse_feature("f_diverged_float32_add").matches(scop, {"n": 64})
    assert feature.unit == "diverged sub-group operation"
