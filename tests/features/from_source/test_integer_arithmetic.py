"""Operations on integers and signs, by hand: arithmetic counts where its result becomes data."""

import pytest

from perflex.features import count_features, source_kernel

HEAD = "kernel void k(global int *a, global int *b, global int *c, global float *f, int n) { int i = get_global_id(0);"
# Of each of 256 work-items, or in all.
CASES = [
    ("a[i] = 3*i + n;", {"int32_madd": 1}),
    ("a[i] = n*i + 2*i;", {"int32_madd": 1, "int32_mul": 1}),
    ("a[i] = i - 3*n;", {"int32_madd": 1}),
    ("int t = 3*i; a[t] = 1; a[t + 1] = 2;", {}),
    ("int t = 3*i; a[i] = t + 1;", {"int32_mul": 1, "int32_add": 1}),
    ("int t = 3*i + 1; a[t] = t; b[t] = t;", {"int32_madd": 1}),
    ("a[b[i] + 4*n] = 1;", {}),
    ("*(a + (b[i] + 4)) = 1;", {}),
    ("int j = b[i] + 4; a[j] = 1;", {"int32_add": 1}),
    ("a[i] = b[i]*c[i] + a[i];", {"int32_madd": 1}),
    ("a[i] = b[i] + 3*i;", {"int32_madd": 1}),
    ("int t = b[i]*c[i]; a[i] = t + 1;", {"int32_mul": 1, "int32_add": 1}),
    ("f[i] = 2*i;", {"int32_mul": 1}),
    ("f[i] = b[i];", {}),
    ("f[i] = f[i + n] + -1.0f*f[i];", {"float32_add": 1}),
    ("f[i] = 1.0f*f[i + n] - f[i]*f[i];", {"float32_madd": 1}),
    ("if (3*i + 1 < 2*n) a[i] = 1;", {}),
    ("if (b[i] < 3*i) a[i] = 1;", {"int32_mul": 1, "int32_cmp": 1}),
    ("for (int j = 0; j < 4; j++) a[i + 256*j] = j*n;", {"int32_mul": 4}),
    ("a[i] = i/8 + i%8;", {"int32_floordiv": 1, "int32_mod": 1, "int32_add": 1}),
    ("a[i] = b[i]/8 + b[i]/c[i];", {"int32_floordiv": 1, "int32_div": 1, "int32_add": 1}),
    # By nvcc 13 for sm_86, b % c takes an instruction less than b / c, 24 in all; b % 8 takes 4.
    ("a[i] = b[i]%8 + b[i]%c[i];", {"int32_mod": 1, "int32_div": 1, "int32_add": 1}),
    ("a[i] = (i ^ 5) << 2;", {"int32_bit": 1, "int32_shift": 1}),
    ("a[i] = i < 5 ? 3*i : i + n;", {"int32_mul": 5 / 256, "int32_add": 251 / 256}),
    ("a[i] = 1*i + 0;", {}),
    ("uint h = i*2654435761u; h ^= h >> 16; a[i] = h;", {"uint32_mul": 1, "uint32_shift": 1, "uint32_bit": 1}),
    ("atomic_add(a, 3*i);", {"int32_mul": 1, "int32_atomic": 1}),
    ("int t = 7*i; for (int j = 0; j < 4; j++) t += b[i]; a[i] = t;", {"int32_mul": 1, "int32_add": 4}),
]


@pytest.mark.parametrize(("body", "counted"), CASES, ids=[body for body, _ in CASES])
def test_operations(body, counted):
    kernel = source_kernel(f"{HEAD} {body} }}\n", "k", local=64, groups=4, stated={"a": 4096})
    found = count_features(kernel, {"n": 7}, sub_group_size=1)
    values = {each.identifier: each.value for each in found if each.identifier.startswith("f_op_")}
    assert values == {f"f_op_{name}": 256 * times for name, times in counted.items()}
