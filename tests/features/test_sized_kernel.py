"""Kernels with their sizes: pairs and measurement kernels alike, each under a label of its own."""

from __future__ import annotations

import re

import pytest

from perflex.errors import CalibrationError, MeasurementError
from perflex.features import SizedKernel, annotate, extract_scop
from perflex.features.sized_kernel import sized_kernels
from sample_kernels import pointwise
from uipick import MeasurementKernel

KERNEL = pointwise("x[i] * 2")


def measurement(name: str) -> MeasurementKernel:
    return MeasurementKernel(KERNEL, {"n": 64}, name, "scaling", {"n": 64})


def test_a_label_that_looks_numbered_is_not_taken_twice() -> None:
    rows = sized_kernels([(KERNEL, {"n": 64})] * 3)
    assert [row.label for row in rows] == ["knl(n=64)", "knl(n=64) #2", "knl(n=64) #3"]
    mixed = [(KERNEL, {"n": 64}), measurement("knl(n=64) #2"), (KERNEL, {"n": 64})]
    labels = [row.label for row in sized_kernels(mixed)]
    assert len(set(labels)) == 3


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (KERNEL, "TranslationUnit"),
        ("knl", "str"),
        (None, "NoneType"),
        ((KERNEL,), "tuple"),
        ((KERNEL, 64), "tuple"),
        ((KERNEL, {"n": 64}, "label"), "tuple"),
        ([KERNEL, {"n": 64}], "list"),
    ],
)
def test_entries_that_are_neither_are_named(entry: object, kind: str) -> None:
    message = f"expected a measurement kernel or a pair (loopy kernel, sizes), got {kind}"
    with pytest.raises(CalibrationError, match=f"^{re.escape(message)}$"):
        sized_kernels([(KERNEL, {"n": 64}), entry])


def test_what_is_built_of_an_annotated_kernel_is_the_kernel_alone() -> None:
    stated = annotate(KERNEL, trip_counts={"j": 2})
    (plain, annotated) = sized_kernels([(KERNEL, {"n": 64}), (stated, {"n": 64})])
    assert plain.translation_unit is KERNEL
    assert annotated.kernel is stated
    assert annotated.translation_unit == KERNEL
    assert not hasattr(annotated.translation_unit, "translation_unit")


def test_of_a_scop_nothing_is_built() -> None:
    with pytest.raises(MeasurementError, match="give a loopy kernel or source code instead") as caught:
        _ = SizedKernel(extract_scop(KERNEL), {"n": 64}, "x").translation_unit
    assert caught.value.kernel == "x"
