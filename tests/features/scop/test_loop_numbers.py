"""Scops written by hand: loops that begin elsewhere are counted by the number of the iteration."""

import pytest

from perflex.features import extract_scop, kernel_feature_values, scop_from_yaml, scop_to_yaml, source_kernel
from support.written_kernels import written as written_in_loopy

SCOP = """
schema: perflex-scop/2
name: written
parameters: [n]
assumptions: "[n] -> {{ : n >= 64 and n mod 64 = 0 }}"
launches:
- {{groups: ["floor(n/64)"], items: [64], loops: [{{name: j}}, {{name: j}}]}}
arrays:
- {{name: x, space: global, dtype: float32, shape: ["70*n"], strides: [1]}}
statements:
- name: s
  domain: "[n] -> {{ [g, l, j] : 0 <= 64g < n and 0 <= l < 64 and {domain} }}"
  loops: [0]
  order: [0, 0]
  accesses:
  - {{array: x, direction: load, relation: "{{ [g, l, j] -> [j] }}"}}
  operations: [{{kind: madd, dtype: float32}}]
{more}"""
FEATURES = ("f_op_float32_madd", "f_txn_global")
N, LANES = 512, 32


def executed(first, last):
    """Steps and sectors of all sub-groups whose work-item i runs from `first(i)` to `last(i)`."""
    steps = sectors = 0
    for start in range(0, N, LANES):
        lanes = range(start, start + LANES)
        for step in range(max(last(i) - first(i) + 1 for i in lanes)):
            active = [first(i) + step for i in lanes if first(i) + step <= last(i)]
            steps += 1
            sectors += len({4 * element // 32 for element in active})
    return dict(zip(FEATURES, (steps, sectors), strict=True))


def written(domain, more="", top=""):
    return scop_from_yaml(top + SCOP.format(domain=domain, more=more))


@pytest.mark.parametrize(("domain", "first", "last"), [
    ("64g + l <= j < 64g + l + 9", lambda i: i, lambda i: i + 8),
    ("64*(64g + l) <= j < 64*(64g + l) + 64", lambda i: 64 * i, lambda i: 64 * i + 63),
    ("64g + l <= j < n", lambda i: i, lambda _: N - 1),
    ("0 <= j <= 64g + l", lambda _: 0, lambda i: i),
    ("7 <= j < n", lambda _: 7, lambda _: N - 1),
])  # fmt: skip
def test_a_loop_begins_at_the_first_iteration(domain, first, last):
    assert kernel_feature_values(FEATURES, written(domain), {"n": N}, machine="V100") == executed(first, last)


def test_another_statement_may_begin_before():
    more = """- name: before
  domain: "[n] -> { [g, l, j] : 0 <= 64g < n and 0 <= l < 64 and 0 <= j < n }"
  loops: [0]
  order: [0, 1]
"""
    scop = written("64g + l <= j < n", more)
    # The loop goes from 0 to n for all; a condition leaves out what is below the diagonal.
    expected = executed(lambda _: 0, lambda _: N - 1)["f_op_float32_madd"] - sum(range(0, N, LANES))
    assert kernel_feature_values(FEATURES[:1], scop, {"n": N}) == {FEATURES[0]: expected}
    # A loop of the same name that stands elsewhere is another one.
    apart = written("64g + l <= j < n", more.replace("loops: [0]\n  order: [0, 1]", "loops: [1]\n  order: [1, 0]"))
    assert kernel_feature_values(FEATURES, apart, {"n": N}, machine="V100") == executed(lambda i: i, lambda _: N - 1)


def test_numbers_are_taken_as_they_are_where_the_file_says_so():
    numbered = written("64g + l <= j < n", top="numbered: true\n")
    assert str(numbered.statements[0].domain) != str(written("64g + l <= j < n").statements[0].domain)
    text = scop_to_yaml(numbered)
    assert "numbered: true" in text
    assert scop_from_yaml(text) == numbered


@pytest.mark.parametrize("domain", ["64g + l <= j < 64g + l + 9", "0 <= j < n and 64g + l - 4 <= j <= 64g + l + 4"])
def test_what_was_moved_is_written_and_read_again(domain):
    scop = written(domain)
    text = scop_to_yaml(scop)
    assert scop_from_yaml(text) == scop
    assert scop_to_yaml(scop_from_yaml(text)) == text


def test_a_condition_that_loopy_knows_of_does_not_move_the_loop():
    text = "if j > i\n    y[i] = y[i] + x[j] {inames=i:j}\nend"
    domain = "{[i, j]: 0 <= i < n and 0 <= j < n}"
    scop = extract_scop(written_in_loopy(domain, text, "x, y: float32[n]", "i/64: g.0, l.0"))
    expected = sum(N - 1 - start for start in range(0, N, LANES))
    for each in (scop, scop_from_yaml(scop_to_yaml(scop))):
        assert kernel_feature_values(["f_op_float32_add"], each, {"n": N}) == {"f_op_float32_add": expected}


def test_loops_of_source_code_are_counted_by_number():
    code = """__kernel void k(__global float *y, __global const float *x, int n) {
    int i = get_global_id(0);
    float s = 0.0f;
    for (int j = 64*i; j < 64*i + 64; ++j) s += 0.5f*x[j];
    y[i] = s;
}"""
    kernel = source_kernel(code, "k", local=[64], groups=["n/64"])
    expected = executed(lambda i: 64 * i, lambda i: 64 * i + 63)
    expected["f_txn_global"] += N * 4 // 32
    assert kernel_feature_values(FEATURES, kernel, {"n": N}, machine="V100") == expected
