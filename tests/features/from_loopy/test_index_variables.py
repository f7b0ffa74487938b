"""Private integers in subscripts count as what they stand for, where that is certain."""

from __future__ import annotations

import islpy as isl
import loopy as lp
import numpy as np
import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import extract_scop


def kernel(text: str) -> lp.TranslationUnit:
    made = lp.make_kernel(
        "{[i,j,k]: 0<=i,j<n and 0<=k<4}",
        text,
        [lp.GlobalArg("b,t", np.float32, shape="(n,n)"), lp.ValueArg("n", np.int32)],
        assumptions="n>=1",
        lang_version=(2018, 2),
        seq_dependencies=True,
        silenced_warnings=["inferred_iname", "read_no_dep(late_init)"],
    )
    return lp.tag_inames(lp.split_iname(made, "j", 16, outer_tag="g.0", inner_tag="l.0"), {"i": "g.1"})


def loads(text: str) -> list[object]:
    return [
        access.relation.coalesce()
        for statement in extract_scop(kernel(text)).statements
        for access in statement.accesses
        if access.array == "t"
    ]


@pytest.mark.parametrize(
    ("before", "variable", "value"),
    [
        ("", "row = i", "i"),
        ("", "row = n - 1 - i", "n - 1 - i"),
        ("", "row = i - 1 if i > 0 else 0", "(i - 1 if i > 0 else 0)"),
        ("<int32> half = i // 2", "row = half + n // 4", "(i // 2 + n // 4)"),
    ],
)
def test_a_variable_stands_for_its_value(before: str, variable: str, value: str) -> None:
    (one,) = loads(f"{before}\n<int32> {variable}\nb[i,j] = t[row,j]")
    (other,) = loads(f"b[i,j] = t[{value},j]")
    assert one.is_equal(other)


def test_both_sides_of_a_condition_are_followed() -> None:
    """Rows 0, 0, 1 and 2 are read for the first four."""
    (relation,) = loads("<int32> row = i - 1 if i > 0 else 0\nb[i,j] = t[row,j]")
    for i, row in {0: 0, 1: 0, 2: 1, 3: 2}.items():
        image = relation.intersect_domain(
            isl.Set(f"[n] -> {{ [i0, i1, i2] : i0 = 0 and i1 = {i} and i2 = 0 }}")
        ).range()
        assert str(image.lexmin()) == str(image.lexmax())
        assert f"[{row}, 0]" in str(image)


@pytest.mark.parametrize(
    "text",
    [
        # The value of the last iteration of a loop that is over.
        "for k\n  <int32> row = k {id=w}\nend\nb[i,j] = t[row,j] {inames=i:j}",
        # Written twice.
        "<int32> row = i {id=w}\nrow = row + 1 {id=w2}\nb[i,j] = t[row,j]",
        # Written where a condition holds.
        "<int32> row = i {id=w, if=i < 5}\nb[i,j] = t[row,j]",
        # The whole part of a product, or a condition with a fraction.
        "<int32> row = 0.5 * i\nb[i,j] = t[row,j]",
        "<int32> row = i if i < 1.5 else 0\nb[i,j] = t[row,j]",
        # Cut off beyond 127.
        "<int8> row = i\nb[i,j] = t[row,j]",
    ],
)
def test_what_is_not_certain_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedKernelError, match="row depends on the data"):
        extract_scop(kernel(text))
