"""Dependence chains, and tests of guards in loops."""

import loopy as lp
import numpy as np
import pytest

from perflex import source_kernel
from perflex.features import Target, extract_scop, parse_feature
from perflex.features.instructions.instruction_counts import instructions_of, spared_tests
from sample_kernels import make, matmul
from support.written_kernels import written

N, M = 64, 10


def looped(*updates, variables="xy"):
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


def chain(scop, kind):
    return float(parse_feature(f"f_chain_float32_{kind}").value(scop, {"n": N, "m": M}, Target())) / (N / 32)


@pytest.mark.parametrize(("updates", "expected"), [
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
])  # fmt: skip
def test_chain_lengths(updates, expected):
    scop = looped(*updates)
    for kind in ("add", "mul", "madd", "exp"):
        assert chain(scop, kind) == expected.get(kind, 0), kind


@pytest.mark.parametrize(("body", "expected"), [
    ("float t = v[k]; t += v[k + 1]; t += v[k + 2]; out[k] = t;", 0),
    ("float t = v[k]; for (int j = 0; j < 3; ++j) t += v[k + j]; out[k] = t;", 3 * M),
    ("sum = plus(sum, v[k]);", M),
    ("out[k] = plus(plus(v[k], v[k + 1]), v[k + 2]);", 0),
    ("t = v[k]; t += v[k + 1]; out[k] = t;", 0),
    ("if (v[k] > 0) t = v[k]; t += v[k + 1]; out[k] = t;", M),
])  # fmt: skip
def test_what_each_iteration_begins_anew_waits_for_none_before(body, expected):
    """Variables of a loop's body and parameters of functions in it live for one iteration."""
    text = f"""
    float plus(float a, float b) {{ a += b; return a; }}
    __kernel void k(__global float *out, __global const float *v, int m) {{
      float sum = 0, t = 0;
      for (int k = 0; k < m; ++k) {{ {body} }}
      out[get_global_id(0)] = sum + t;
    }}"""
    scop = source_kernel(text, "k", local=32, groups=N // 32).scop()
    assert chain(scop, "add") == expected


def test_barriers_end_chains():
    feature = parse_feature("f_chain_float32_madd")
    without, with_barriers = extract_scop(matmul(prefetch=False)), extract_scop(matmul(prefetch=True))
    assert feature.value(without, {"n": 64}, Target()) == 64**3 / 32
    assert feature.matches(without, {"n": 64})
    # In each tile the loop over its 16 columns is a chain, however long the loop over tiles around it is.
    runs = 64 * 64 * (64 / 16) / 32
    for after, each in (("", 16), ("_after:6", 10), ("_after:16", 0), ("_after:48", 0)):
        shorter = parse_feature(f"f_chain_float32_madd{after}")
        assert shorter.value(with_barriers, {"n": 64}, Target()) == runs * each
    assert feature.matches(with_barriers, {"n": 64})
    sizes = np.array([16, 64])
    assert feature.value(without, {"n": sizes}, Target()).tolist() == [16**3 / 32, 64**3 / 32]


def test_operations_beyond_the_first_of_each_chain():
    scop = extract_scop(matmul(prefetch=False))

    def value(after, n):
        return float(parse_feature(f"f_chain_float32_madd{after}").value(scop, {"n": n}, Target()))

    runs = 64 * 64 / 32
    assert value("", 64) == runs * 64
    assert value("_after:48", 64) == runs * (64 - 48)
    assert value("_after:64", 64) == 0
    assert value("_after:100", 64) == 0
    # Chains of two operations per iteration: 48 of each chain's 2 M.
    two = looped(*["x = x + v[k]"] * 2)
    assert chain(two, "add") == 2 * M
    assert float(parse_feature("f_chain_float32_add_after:5").value(two, {"n": N, "m": M}, Target())) == 2 * (2 * M - 5)


def test_chains_begin_again_where_their_variable_is_set():
    kernel = make(
        "{[i,j,k]: 0<=i<n and 0<=j<n and 0<=k<m}",
        """
        for i, j
            <float32> x = 0 {id=init}
            x = x + v[j, k] {id=update,dep=init}
            out[i, j] = x {dep=update}
        end
        """,
        {"v": np.float32},
    )
    kernel = lp.assume(kernel, "n mod 32 = 0 and n >= 32 and m >= 1")
    scop = extract_scop(lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0"))
    beyond = parse_feature("f_chain_float32_add_after:4").value(scop, {"n": 64, "m": 10}, Target())
    assert beyond == 2 * 64 * (10 - 4)


GROUPS, SUB_GROUPS = 4, 2
"""64 work-items per group: two sub-groups each."""


def spared(body, domain="{[g,l,k]: 0<=g<4 and 0<=l<64 and 0<=k<n}", **sizes):
    """Return comparisons and branches that are spared, per sub-group of 32 work-items."""
    kernel = written(domain, body, "x, y: float32[p]; n, m, p: int32", "g: g.0; l: l.0")
    scop = extract_scop(kernel)
    comparisons, branches = spared_tests(scop, 32)
    values = {name: {"p": 1 << 20, **sizes}[name] for name in scop.parameters}
    number = GROUPS * SUB_GROUPS
    return float(comparisons.evaluate(values)) / number, float(branches.evaluate(values)) / number


def test_a_condition_on_work_items_alone_is_tested_before_the_loop():
    body = """
    for k
        if l < m
            y[64*g+l] = y[64*g+l] + x[k] {id=add}
        end
    end
    """
    # The loop lies behind the test: no iteration has one.
    assert spared(body, n=100, m=40) == (0, 0)


def test_no_kernel_is_left_with_fewer_than_no_tests():
    domain, data = "{[g,l,k]: 0<=g<4 and 0<=l<64 and 0<=k<n}", "x: float32[n]; y: float32[256]"
    scop = extract_scop(written(domain, "y[64*g+l] = sum(k, x[k])", data, "g: g.0; l: l.0"))
    comparisons, branches = (float(one.evaluate({"n": 100})) for one in spared_tests(scop, 32))
    counted = {kind: float(one.evaluate({"n": 100})) for kind, one in instructions_of(scop, 32).items()}
    assert 0 <= comparisons <= counted["int"]
    assert 0 <= branches <= counted["control"]
