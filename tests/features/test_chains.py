"""Dependence chains: which operations must wait for the previous iteration."""

from __future__ import annotations

import loopy as lp
import numpy as np
import pytest

from perflex.errors import UnknownFeatureError
from perflex.features import Scop, extract_scop, parse_feature
from sample_kernels import make, matmul

N, M = 64, 10


def looped(*updates: str, variables: str = "xy") -> Scop:
    """Each of 64 work-items repeats the updates M times; ``v[k]`` is a global load."""
    body = [f"<float32> {name} = 0 {{id=init_{name}}}" for name in variables]
    first = ":".join(f"init_{name}" for name in variables)
    body += [
        f"{update} {{id=u{number},dep={first + (f':u{number - 1}' if number else '')}}}"
        for number, update in enumerate(updates)
    ]
    body.append(f"out[i] = {' + '.join(variables)} {{dep=u*}}")
    kernel = make("{[i,k]: 0<=i<n and 0<=k<m}", "\n".join(body), {"v": np.float32})
    kernel = lp.assume(kernel, "n mod 32 = 0 and n >= 32 and m >= 1")
    return extract_scop(lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0"))


def chain(scop: Scop, kind: str) -> float:
    return float(parse_feature(f"f_chain_float32_{kind}").value(scop, {"n": N, "m": M}, 32)) / (N / 32)


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        (["x = x + v[k]"], {"add": M}),
        (["x = v[k] + x"], {"add": M}),
        (["x = x * v[k]"], {"mul": M}),
        (["x = x * v[k] + v[k]"], {"madd": M}),
        (["x = x + v[k] * v[k]"], {"madd": M}),
        (["x = x + v[k] * v[k] * v[k]"], {"madd": M}),  # the product of loads does not wait
        (["x = x * v[k] * v[k] + v[k]"], {"mul": M, "madd": M}),
        (["x = x + v[k] + v[k]"], {"add": 2 * M}),
        (["x = v[k] + v[k] + x"], {"add": M}),
        (["x = exp(x) * v[k]"], {"exp": M, "mul": M}),
        (["x = x + v[k]", "x = x + v[k]"], {"add": 2 * M}),
        (["x = x + v[k]", "y = y + v[k]"], {"add": M}),  # beside each other
        (["x = x + v[k]", "y = y * v[k] + v[k]", "y = y * v[k] + v[k]"], {"madd": 2 * M, "add": 0}),
        (["x = v[k]"], {}),
        (["x = y + v[k]"], {}),
    ],
)
def test_chain_lengths(updates: list[str], expected: dict[str, int]) -> None:
    scop = looped(*updates)
    for kind in ("add", "mul", "madd", "exp"):
        assert chain(scop, kind) == expected.get(kind, 0), kind


def test_matmul_chains_only_without_barriers() -> None:
    feature = parse_feature("f_chain_float32_madd")
    without, with_barriers = extract_scop(matmul(prefetch=False)), extract_scop(matmul(prefetch=True))
    assert feature.value(without, {"n": 64}, 32) == 64**3 / 32
    assert feature.matches(without, {"n": 64})
    assert feature.value(with_barriers, {"n": 64}, 32) == 0
    assert not feature.matches(with_barriers, {"n": 64})
    sizes = np.array([16, 64])
    assert feature.value(without, {"n": sizes}, 32).tolist() == [16**3 / 32, 64**3 / 32]


def test_unknown_operations_are_suggested() -> None:
    with pytest.raises(UnknownFeatureError, match="did you mean madd"):
        parse_feature("f_chain_float32_mad")
