"""Conditions: each branch where its condition holds, or both everywhere, against what Oclgrind executes."""

from __future__ import annotations

import loopy as lp
import numpy as np

from perflex.features import Target, count_features, counts_of, extract_scop, parse_feature

N = 37
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
    entries = count_features(scop, {"n": N}, sub_group_size=1)
    found = {e.identifier.rpartition("_")[2]: e.value for e in entries if e.identifier.startswith("f_op_float32_")}
    for direction in ("load", "store"):
        items = [item for item in counts_of(scop).accesses if item.access.direction == direction]
        found[direction] = sum(item.work_item_count.evaluate({"n": N}) for item in items)
    relevant = [e for e in entries if e.identifier.startswith(("f_op_float32", "f_mem"))]
    return {key: value for key, value in found.items() if value}, all(entry.exact for entry in relevant)


def test_the_affine_part_of_a_condition_on_data_bounds_it():
    found, exact = sums(kernel(DATA_DEPENDENT["data after an affine condition"]))
    # One addition in the nine work-items of which some take the branch, a[i] compared there and loaded again.
    assert found == {"add": 9, "load": 9 + 9 + N, "store": N}
    assert not exact
    found, _ = sums(kernel("y[i] = (a[i] + 1 if not (i >= 9 or a[i] > 0.3) else b[i])"))
    assert found == {"add": 9, "load": 9 + 9 + N, "store": N}
    found, _ = sums(kernel("if i % 4 == 0 and a[i] > 0.3\n y[i] = b[i]*b[i]\nend"))
    assert (found["mul"], found["store"]) == (10, 10)


def test_chains_are_those_of_the_branch():
    """An update that a condition leaves out in most iterations waits for itself in the others only."""
    made = lp.make_kernel(
        "{[i, k]: 0 <= i < n and 0 <= k < 64}",
        """
        for i
            <float32> t = 0 {id=init}
            for k
                if k % 16 == 0
                    t = t + a[i, k] {id=update, dep=init}
                end
            end
            y[i] = t {dep=update}
        end
        """,
        [
            lp.GlobalArg("a", np.float32, shape=("n", 64)),
            lp.GlobalArg("y", np.float32, shape=("n",)),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    made = lp.split_iname(made, "i", 8, outer_tag="g.0", inner_tag="l.0")
    chain = parse_feature("f_chain_float32_add")
    assert chain.value(extract_scop(made), {"n": 64}, Target(8)) == 8 * 4


def test_a_condition_on_another_argument_makes_it_a_size():
    arrays = [lp.GlobalArg(name, np.float32, shape=("n",)) for name in ("a", "y")]
    args = [*arrays, lp.ValueArg("n", np.int32), lp.ValueArg("m", np.int32)]
    made = lp.make_kernel("{[i]: 0 <= i < n}", "if i < m\n y[i] = a[i]\nend", args, lang_version=(2018, 2))
    made = lp.split_iname(made, "i", 8, outer_tag="g.0", inner_tag="l.0")
    scop = extract_scop(made)
    assert scop.parameters == ("m", "n")
    store = next(item for item in counts_of(scop).accesses if item.access.direction == "store")
    assert [store.work_item_count.evaluate({"n": N, "m": m}) for m in (-3, 0, 5, 100)] == [0, 0, 5, N]
