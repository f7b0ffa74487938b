"""Sources that leave iterations, loops and functions early: bounds of what follows, and values of variables."""

import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import count_features, source_kernel

HEAD = "kernel void f(global const int *m, global float *a, global float *b, int n) { int i = get_global_id(0); "


def counted(text, *names, groups=8):
    """Return value and certainty of features; each work-group has one work-item."""
    kernel = source_kernel(text, "f", local=1, groups=groups)
    return [(each.value, str(each.certainty)) for each in count_features(kernel, {"n": 10}, identifiers=list(names))]


HELPER = "void h(global const int *m, global float *b, int i) { if (m[i]) return; b[i] = 1; }\n"
LOOP = "for (int j = 0; j < 10; ++j) {"


@pytest.mark.parametrize(("text", "before", "after"), [
    (HEAD + "a[i] = 1; if (m[i]) return; b[i] = 1; }", 8, 8),
    (HEAD + "a[i] = 1; if (m[i]) { } else return; if (i < n) b[i] = 1; }", 8, 8),
    (HEAD + "a[i] = 1; if (i < 4 && m[i]) return; b[i] = 1; }", 8, 8),
    (HEAD + "a[i] = 1; if (i < 4) { if (m[i]) return; } b[i] = 1; }", 8, 8),
    (HEAD + LOOP + "a[j * 8 + i] = 1; if (m[j]) continue; b[j * 8 + i] = 1; } }", 80, 80),
    (HEAD + LOOP + "if (m[j]) continue; b[j * 8 + i] = 1; } a[i] = 1; }", 8, 80),
    (HEAD + LOOP + "if (m[j]) break; b[j * 8 + i] = 1; } a[i] = 1; }", 8, 80),
    (HEAD + LOOP + "b[j * 8 + i] = 1; if (m[j]) break; } a[i] = 1; }", 8, 80),
    (HEAD + "a[i] = 1; " + LOOP + "b[j * 8 + i] = 1; if (m[j]) return; } }", 8, 80),
    (HEAD + "a[i] = 1; " + LOOP + "if (m[j]) return; } b[i] = 1; }", 8, 8),
    (HEAD + "a[i] = 1; " + LOOP + "for (int k = 0; k < 2; ++k) if (m[k]) return; b[j * 8 + i] = 1; } }", 8, 80),
    # Whoever does not get to a certain exit goes on.
    (HEAD + LOOP + "if (m[j]) continue; if (j == 3) break; b[j * 8 + i] = 1; } a[i] = 1; }", 8, 72),
    (HELPER + HEAD + "h(m, b, i); a[i] = 1; }", 8, 8),
    (HELPER + HEAD + LOOP + "h(m, b, j * 8 + i); a[j * 8 + i] = 1; } }", 80, 80),
])  # fmt: skip
def test_what_follows_an_exit_that_data_decide_is_a_bound(text, before, after):
    names = [f"f_mem_{kind}_array:{array}" for array in "ab" for kind in ("access", "footprint")]
    found = counted(text, *(f"{name}_store" if "access" in name else name for name in names))
    assert found == [(before, "exact")] * 2 + [(after, "upper bound")] * 2


@pytest.mark.parametrize(("body", "certainty"), [
    ("if (m[0]) BARRIER a[i] = 1;", "upper bound"), ("if (m[0]) return; BARRIER", "upper bound"),
    ("for (int j = 0; j < 1; ++j) { BARRIER if (m[j]) break; }", "upper bound"), ("BARRIER if (m[0]) return;", "exact"),
])  # fmt: skip
def test_barriers_that_data_decide_are_bounds(body, certainty):
    text = HEAD + body.replace("BARRIER", "barrier(CLK_LOCAL_MEM_FENCE);") + " }"
    assert counted(text, "f_sync_barrier_local") == [(1, certainty)]


FIRST = "void h(int *k, int i) { if (i < 2) return; *k = 7; }\n"
FOUND = "int h(int i) { for (int j = 0; j < 3; ++j) if (j == i) return j; return 5; }\n"


@pytest.mark.parametrize(("text", "elements"), [
    # What is stored by the eight work-items, by hand: the sums of k.
    (HEAD + LOOP + "if (j == 5) break; k++; } STORE", [5] * 8),
    (HEAD + LOOP + "k++; if (j == i) break; } STORE", [1, 2, 3, 4, 5, 6, 7, 8]),
    (HEAD + "int j; for (j = 0; j < 6; ++j) if (j == i) break; k = j; STORE", [0, 1, 2, 3, 4, 5, 6, 6]),
    (HEAD + LOOP + "if (j == i) { k = 4; break; } } STORE", [4] * 8),
    (HEAD + "int q; " + LOOP + "q = j; } k = q; STORE", [9] * 8),
    (HEAD + "int q[2]; " + LOOP + "q[0] = j; } k = q[0]; STORE", [9] * 8),
    (FIRST + HEAD + "h(&k, i); STORE", [0, 0, 7, 7, 7, 7, 7, 7]),
    (FOUND + HEAD + "k = h(i); STORE", [0, 1, 2, 5, 5, 5, 5, 5]),
    ("int h(int i) { if (i < 3) return 2; return 3; }\n" + HEAD + "k = h(i); STORE", [2, 2, 2, 3, 3, 3, 3, 3]),
    (HEAD + LOOP + "if (j < 3) { k = 1; continue; } k = 2; } STORE", [2] * 8),
])  # fmt: skip
def test_values_behind_exits(text, elements):
    text = text.replace("STORE", "for (int z = 0; z < k; ++z) a[i * 100 + z] = 1; }")
    text = text.replace("get_global_id(0); ", "get_global_id(0); int k = 0; ")
    assert counted(text, "f_mem_access_array:a_store") == [(sum(elements), "exact")]


@pytest.mark.parametrize("text", [
    HEAD + LOOP + "if (m[j]) break; k++; } STORE", HEAD + LOOP + "if (m[j]) { k = 4; break; } } STORE",
    HEAD + LOOP + "if (m[j]) continue; k++; } STORE",
    "int h(int d) { if (d) return 3; return 5; }\n" + HEAD + "k = h(m[i]); STORE",
    "void h(int *k, int d) { if (d) return; *k = 7; }\n" + HEAD + "h(&k, m[i]); STORE",
])  # fmt: skip
def test_values_that_may_not_have_been_assigned_are_not_known(text):
    text = text.replace("STORE", "\nfor (int z = 0; z < k; ++z) a[z] = 1; }")
    text = text.replace("get_global_id(0); ", "get_global_id(0); int k = 0; ")
    with pytest.raises(UnsupportedKernelError, match="trip count of 'for"):
        counted(text, "f_mem_access_array:a_store")
