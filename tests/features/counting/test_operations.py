"""Operations found in expressions: kinds, types, multiply-adds."""

from collections import Counter

import loopy as lp
import numpy as np
import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import Target, extract_scop, parse_feature
from sample_kernels import make, pointwise
from support.written_kernels import written


def operations(kernel):
    scop = extract_scop(kernel)
    found = Counter()
    for statement in scop.statements:
        for operation in statement.operations:
            found[f"{operation.dtype}_{operation.kind}"] += operation.count
    return dict(found)


@pytest.mark.parametrize(("expression", "expected"), [
    ("x[i] - y[i]", {"add": 1}), ("-x[i]", {}), ("x[i] + 0.5*3", {"add": 1}), ("2*3*x[i]", {"mul": 1}),
    ("x[i]*2*3", {"mul": 2}), ("2*x[i] - 1*y[i]", {"madd": 1}), ("x[i] - (-1)*(y[i] * x[i])", {"madd": 1}),
    ("x[i] * y[i]", {"mul": 1}), ("x[i] * y[i] + x[i]", {"madd": 1}),
    ("x[i] * y[i] + y[i] * y[i]", {"madd": 1, "mul": 1}),
    ("x[i] * y[i] + y[i] * y[i] + x[i]", {"madd": 1, "mul": 1, "add": 1}),
    ("x[i] + x[i] * y[i] + y[i] * y[i]", {"madd": 2}), ("x[i] + (y[i] * x[i] + y[i])", {"madd": 1, "add": 1}),
    ("x[i] + y[i] - 4*x[i] + y[i] + x[i]", {"madd": 1, "add": 3}),
    ("(x[i] + y[i]) * (x[i] - y[i])", {"add": 2, "mul": 1}),
    ("(x[i] + y[i]) * x[i] + y[i]", {"add": 1, "madd": 1}), ("x[i] / y[i] + x[i]", {"div": 1, "add": 1}),
    ("x[i]**2 + y[i]", {"madd": 1}), ("x[i]**y[i]", {"pow": 1}),
    ("exp(x[i]) + sin(y[i])", {"exp": 1, "sin": 1, "add": 1}), ("sqrt(fabs(x[i]))", {"sqrt": 1, "abs": 1}),
    ("fmax(x[i], y[i])", {"max": 1}),
    ("x[i] * y[i] if x[i] < y[i] else x[i] + y[i]", {"cmp": 1, "mul": 1, "add": 1}), ("x[i]", {}),
])  # fmt: skip
def test_kinds(expression, expected):
    assert operations(pointwise(expression)) == {f"float32_{kind}": count for kind, count in expected.items()}


@pytest.mark.parametrize("realized", [False, True])
def test_reductions_before_and_after_realization(realized):
    kernel = make("{[i,k]: 0<=i<n and 0<=k<m}", "out[i] = sum(k, x[i,k]*y[k])", {"x": np.float32, "y": np.float32})
    kernel = lp.split_iname(
        lp.assume(kernel, "n mod 32 = 0 and n >= 32 and m >= 1"), "i", 32, outer_tag="g.0", inner_tag="l.0"
    )
    if realized:
        kernel = lp.realize_reduction(kernel)
    scop = extract_scop(kernel)
    (update,) = [statement for statement in scop.statements if statement.operations]
    assert [(op.kind, op.count) for op in update.operations] == [("madd", 1)]
    assert parse_feature("f_op_float32_madd").value(scop, {"n": 64, "m": 10}, Target()) == 2 * 10


def test_literal_code_is_refused_by_name():
    raw = lp.CInstruction(("i",), "out[i] = 3;", read_variables=frozenset(), assignees=("out[i]",), id="raw")
    kernel = written("{[i]: 0<=i<n}", [raw], "out: float32[n]")
    with pytest.raises(UnsupportedKernelError, match="instruction 'raw' is literal code") as caught:
        extract_scop(kernel)
    assert caught.value.instruction == "raw"
