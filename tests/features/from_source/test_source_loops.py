"""Loops and switches of sources: headers, ends that data decide, cases that go on; stores counted by hand."""

import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import count_features, source_kernel
from perflex.features.from_source import loops
from perflex.features.from_source.pending import Pending
from perflex.features.from_source.places import Places
from perflex.features.from_source.recording import Recorder
from perflex.features.from_source.values import Executed

TEXT = """kernel void f(global int *a, global const int *m, int n) {{ int i = get_global_id(0);
{body}
}}
"""


def stores(body, stated=None):
    """Stores of four work-items at n = 10, and how certain they are."""
    kernel = source_kernel(TEXT.format(body=body), "f", local=1, groups=4, stated=stated)
    (found,) = count_features(kernel, {"n": 10}, identifiers=["f_mem_access_array:a_store"])
    return float(found.value), str(found.certainty)


@pytest.mark.parametrize(("body", "each"), [
    ("for (int j = 0;;) { if (j >= 10) break; a[j] = 1; ++j; }", 10), ("int j = n; for (; j--;) a[j] = 1;", 10),
    ("int j = n; while (j--) a[j] = 1;", 10), ("int j = n; while (--j) a[j] = 1;", 9),
    ("int j = 0; for (;; j++) { a[j] = 1; if (j == n) break; }", 11),
    ("int j; for (j = 0; j < n;) { a[j] = 1; j++; }", 10), ("for (uint j = n; j-- > 0;) a[j] = 1;", 10),
    ("for (int j = n - 1; j >= 0; j -= 2) a[j] = 1;", 5), ("for (global int *p = a; p < a + n; ++p) *p = 1;", 10),
    ("global int *p = a; while (p - a < n) *p++ = 1;", 10),
    ("global int *e = a + n; for (global int *p = a; p != e; p++) *p = 1;", 10),
    ("int j = 0; while (1) { if (j >= 3) break; a[j] = 1; j++; }", 3),
    ("int j = 0; do { a[j] = 1; if (j == 6) return; j++; } while (1);", 7),
])  # fmt: skip
def test_headers_and_ends_of_loops(body, each):
    assert stores(body) == (4 * each, "exact")


@pytest.mark.parametrize("body", [
    "while (true) { if (m[i]) break; a[i] = 1; }", "for (;;) { a[i] = 1; if (m[i]) break; }",
    "do { a[i] = 1; if (m[i]) return; } while (1);",
    "for (int j = 0;; j++) { if (m[j]) continue; if (j > 30) break; a[j] = 1; }",
])  # fmt: skip
def test_loops_that_data_end_have_a_stated_trip_count(body):
    with pytest.raises(UnsupportedKernelError, match=r"line 2: trip count of .*data decide.*--state 2=N"):
        stores(body)
    assert stores(body, {"2": 5}) == (20, "upper bound as stated")


def test_where_data_end_a_loop_early_its_trip_count_may_be_stated():
    body = "for (int j = 0; j < n; ++j) { if (m[j]) break; a[j] = 1; }"
    assert [stores(body), stores(body, {"2": 5})] == [(40, "upper bound"), (20, "upper bound as stated")]


@pytest.mark.parametrize("body", [
    "while (1) { a[i] = 1; }", "do { a[i] = 1; } while (1);", "for (;;) { switch (i) { case 1: a[i] = 1; break; } }",
])  # fmt: skip
def test_loops_without_an_end_are_refused(body):
    with pytest.raises(UnsupportedKernelError, match=r"kernel\.cl:2: this loop never ends"):
        stores(body)


@pytest.mark.parametrize(("body", "found"), [
    ("switch (i) { case 0: a[0] = 1; case 1: a[1] = 1; break; default: a[2] = 1; if (i == 3) break; a[3] = 1; }", 6),
    ("switch (i) { case 0: a[0] = 1; case 1: a[1] = 1; case 2: a[2] = 1; } a[9] = 1;", 10),
    ("for (int j = 0; j < 10; ++j) { switch (j) { case 3: continue; case 4: break; } a[j] = 1; }", 36),
    ("for (int j = 0; j < 10; ++j) { switch (j) { case 3: return; } a[j] = 1; }", 12),
    ("switch (m[i]) { case 0: a[0] = 1; case 1: a[1] = 1; if (n > 3) break; a[2] = 1; }", None),
])  # fmt: skip
def test_cases_that_go_on_and_breaks_in_branches(body, found):
    # Where data decide, those who begin in the first case do most.
    assert stores(body) == ((8, "upper bound") if found is None else (found, "exact"))


@pytest.mark.parametrize(("cases", "expected"), [
    # Work-items of a sub-group that begin in different cases go on together: each line runs once in each of 4.
    ("case 3: s += x[2]; case 2: s += x[1]; case 1: s += x[0];", 3),
    ("default: s += x[2]; case 2: s += x[1]; break; case 1: s += x[0]; case 0: s += x[3];", 4),
])  # fmt: skip
@pytest.mark.parametrize(("value", "certainty"), [("get_local_id(0) % 4", "exact"), ("m[0]", "upper bound")])
def test_a_sub_group_executes_what_cases_go_on_to_once(cases, expected, value, certainty):
    body = f"float s = x[9]; switch ({value}) {{ {cases} }} x[7] = s;"
    text = f"kernel void f(global float *x, global int *m) {{ {body} }}\n"
    kernel = source_kernel(text, "f", local=64, groups=2)
    (found,) = count_features(kernel, {}, identifiers=["f_op_float32_add"])
    assert (found.value, str(found.certainty)) == (4 * expected, certainty)


def test_loops_inside_each_other_are_tried_out_once_each(monkeypatch):
    reads = []
    read = Places.load
    monkeypatch.setattr(Places, "load", lambda self, place: reads.append(place) or read(self, place))
    heads = "".join(f"for (int j{depth} = 0; j{depth} < n; ++j{depth}) " for depth in range(12))
    kernel = source_kernel(TEXT.format(body=f"{heads} a[j0 + j11] = 1;"), "f", local=1, groups=4)
    (found,) = count_features(kernel, {"n": 2}, identifiers=["f_mem_access_array:a_store"])
    assert found.value == 4 * 2**12
    # It was 4 ** 12.
    assert len(reads) < 5000


def test_loops_that_are_walked_one_by_one_are_no_longer_than_some_hundred_iterations_together(monkeypatch):
    monkeypatch.setattr(loops, "_MOST_IN_NEST", 90)
    body = (
        "int z = 1; for (int q = 0; q < {0}; ++q) for (int j = 0; j < {0}; ++j) {{ z = (z * 7 + j) % 64; a[z] = 1; }}"
    )
    assert stores(body.format(8), {"a": 64}) == (4 * 64, "exact")
    assert stores(body.format(12), {"a": 64}) == (4 * 12**2, "as stated")


def test_iterations_that_are_walked_one_by_one_are_walked_once():
    body = "int z = 1; for (int j = 0; j < {}; ++j) {{ z = (z * 7 + j) % 64; a[z] = 1; }}"
    kernels = [source_kernel(TEXT.format(body=body.format(trips)), "f", local=1, groups=4) for trips in (40, 41, 90)]
    steps = [kernel.walked({}).recorder.steps for kernel in kernels]
    assert steps[2] - steps[0] == 50 * (steps[1] - steps[0])
    # That of an iteration: 10 expressions, and j, 100 and the test.
    assert steps[1] - steps[0] < 30


def test_what_was_counted_in_iterations_that_are_dropped_is_taken_back():
    place = Executed(None, (), (), guarded=False, line="1")
    before = Pending(place, "int32", "mul")
    sums = [Pending(place, "int32", "add", (before,)) for _ in range(2)]
    recorder = Recorder()
    part = recorder.part(dry=False)
    sums[0].count(part.counted)
    assert place.operations == {("int32", "mul"): 1, ("int32", "add"): 1}
    recorder.finish(part, is_kept=False)
    assert not any(place.operations.values())
    sums[1].count()
    assert {kind: count for kind, count in place.operations.items() if count} == {
        ("int32", "mul"): 1,
        ("int32", "add"): 1,
    }
