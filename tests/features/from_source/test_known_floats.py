"""Floats that are an integer plus a constant are known in conditions, loops and subscripts."""

import pytest

from perflex.features import count_features, source_kernel


@pytest.mark.parametrize(("body", "stored"), [
    ("if (x + 0.5f < 8) a[x] = 1;", range(8)),
    ("a[(int)(x / 2 + 0.5f)] = 1;", [x // 2 for x in range(24)]),
    ("float u = x; u *= 3.0f; a[(int)(u - 0.25f + 1)] = 1;", [3 * x for x in range(24)]),
    ("for (float i = -1; i <= 1; i++) for (float j = 0.5f; j < 2; j += 1) a[(int)(x + i + 1)] = 1;",
     [x + i for x in range(24) for i in range(3) for _ in range(2)]),
    ("float2 c = (float2)(x, x); c.y += 1; c = c + (float2)(0.5f, 0.5f); if (c.y < 4) a[x] = 1;", range(3)),
])  # fmt: skip
def test_stores(body, stored):
    text = f"kernel void f(global float *a) {{ int x = get_global_id(0); {body} }}\n"
    kernel = source_kernel(text, "f", local=8, groups=3)
    names = ["f_mem_access_global_float32_store", "f_mem_footprint_array:a"]
    count, elements = count_features(kernel, {}, identifiers=names)
    assert count.exact
    assert (count.value, elements.value) == (len(stored), len(set(stored)))
