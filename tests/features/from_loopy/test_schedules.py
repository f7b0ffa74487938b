"""Conditions, chains in branches, and missing barriers."""

import loopy as lp
import pytest

from perflex.features import Target, count_features, counts_of, extract_scop, parse_feature
from support.written_kernels import written

N = 37


def by_element(text):
    return written("{[i]: 0 <= i < n}", text, "a, b, y, z: float32[n]", "i/8: g.0, l.0", seq_dependencies=True)


def sums(annotated):
    """Executed float operations by kind, accesses by direction, and whether all of these counts are exact."""
    scop = extract_scop(annotated)
    entries = count_features(scop, {"n": N}, sub_group_size=1)
    found = {e.identifier.rpartition("_")[2]: e.value for e in entries if e.identifier.startswith("f_op_float32_")}
    for direction in ("load", "store"):
        items = [item for item in counts_of(scop).accesses if item.access.direction == direction]
        found[direction] = sum(item.work_item_count.evaluate({"n": N}) for item in items)
    relevant = [e for e in entries if e.identifier.startswith(("f_op_float32", "f_mem"))]
    return {key: value for key, value in found.items() if value}, all(entry.exact for entry in relevant)


@pytest.mark.parametrize("text", [
    "y[i] = (a[i] + 1 if i < 9 and a[i] > 0.3 else b[i])", "y[i] = (a[i] + 1 if not (i >= 9 or a[i] > 0.3) else b[i])",
])  # fmt: skip
def test_the_affine_part_of_a_condition_on_data_bounds_it(text):
    # One addition in the nine work-items of which some take the branch, a[i] compared there and loaded again.
    assert sums(by_element(text)) == ({"add": 9, "load": 9 + 9 + N, "store": N}, False)


def test_the_affine_part_of_a_predicate_bounds_it():
    found, _ = sums(by_element("if i % 4 == 0 and a[i] > 0.3\n y[i] = b[i]*b[i]\nend"))
    assert (found["mul"], found["store"]) == (10, 10)


def test_chains_are_those_of_the_branch():
    """An update that a condition leaves out in most iterations waits for itself in the others only."""
    text = """
    for i
        <float32> t = 0 {id=init}
        for k
            t = t + a[i, k] {id=update, dep=init, if=k % 16 == 0}
        end
        y[i] = t {dep=update}
    end"""
    domain, data = "{[i, k]: 0 <= i < n and 0 <= k < 64}", "a: float32[n, 64]; y: float32[n]"
    made = written(domain, text, data, "i/8: g.0, l.0")
    chain = parse_feature("f_chain_float32_add")
    assert chain.value(extract_scop(made), {"n": 64}, Target(8)) == 8 * 4


def test_a_condition_on_another_argument_makes_it_a_size():
    made = written("{[i]: 0 <= i < n}", "if i < m\n y[i] = a[i]\nend", "a, y: float32[n]", "i/8: g.0, l.0")
    scop = extract_scop(made)
    assert scop.parameters == ("m", "n")
    store = next(item for item in counts_of(scop).accesses if item.access.direction == "store")
    assert [store.work_item_count.evaluate({"n": N, "m": m}) for m in (-3, 0, 5, 100)] == [0, 0, 5, N]


def test_a_missing_global_barrier_is_no_matter_of_counting():
    """Work-items read what others write: loopy refuses to generate code, and the kernel is counted."""
    text = "y[i] = a[i] {id=first}\nz[i] = y[i + 1] {dep=first}"
    kernel = written("{[i]: 0 <= i < n}", text, "a, z: float32[n]; y: float32[n + 1]", "i/8: g.0, l.0")
    assert sums(kernel)[0] == {"load": 2 * N, "store": 2 * N}
    with pytest.raises(lp.diagnostic.LoopyError, match="barrier"):
        lp.generate_code_v2(kernel)
