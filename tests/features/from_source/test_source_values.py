"""Values in sources: swapped variables, conversions, and what holds for some sizes only; truth by hand."""

import numpy as np
import pytest

from perflex.errors import MissingSizeError, PerflexError, UnsupportedKernelError
from perflex.features import count_features, source_kernel
from perflex.features.families.registry import parse_feature
from perflex.features.target import Target

HEAD = """kernel void f(global int *a, global int *b, global const int *x, int n, int m, float w) {
int i = get_global_id(0);
"""


def kernel(body, **launch):
    return source_kernel(f"{HEAD}{body}\n}}", "f", **{"local": 1, "groups": 8, **launch})


def counted(body, n=10, names=("f_mem_access_array:a_store", "f_mem_access_array:b_store"), **launch):
    found = count_features(kernel(body, **launch), {"n": n, "m": 1}, identifiers=list(names))
    return [float(each.value) for each in found]


SWAP = "global int *p = a, *q = b;\nfor (int j = 0; j < {n}; ++j) {{ p[i] = 1; global int *t = p; p = q; q = t; }}"
ROTATE = (
    "local int c[8], d[8]; local int *p = c, *q = c, *r = d;\nfor (int j = 0; j < n; ++j) { p[0] = 1; p = q; q = r; }"
)
FIBONACCI = """int p = 0, q = 1; for (int j = 0; j < 7; ++j) { int t = p + q; p = q; q = t; }
for (int z = 0; z < p; ++z) a[z] = 1; for (int z = 0; z < q; ++z) b[z] = 1;"""


@pytest.mark.parametrize(("body", "n", "stores"), [
    (SWAP.format(n=5), 10, [24, 16]), (SWAP.format(n="n"), 3, [16, 8]), (SWAP.format(n="n"), 1000, None),
    (ROTATE, 1000, None), (SWAP.format(n="n") + " p[i] = 1;", 1000, None),
    # Each iteration but the first takes the next of 0, 1, 1, 2, 3, 5, 8, 13, ...
    (FIBONACCI, 10, [8 * 13, 8 * 21]),
])  # fmt: skip
def test_swapped_variables(body, n, stores):
    if stores is None:
        with pytest.raises(UnsupportedKernelError, match="which array 'for"):
            counted(body, n)
    else:
        assert counted(body, n) == stores


@pytest.mark.parametrize(("expression", "value"), [
    ("(uchar)261", 5), ("(uchar)(i + 256)", [0, 1, 2, 3, 4, 5, 6, 7]), ("(short)65540", 4), ("2 - (char)255", 3),
    ("3 + (int)0xffffffff", 2), ("(uchar)(i * 64)", [0, 64, 128, 192] * 2),
])  # fmt: skip
def test_narrower_types_keep_the_lowest_bits(expression, value):
    total = 8 * value if isinstance(value, int) else sum(value)
    assert counted(f"int k = {expression};\nfor (int z = 0; z < k; ++z) a[z] = 1;")[0] == total


@pytest.mark.parametrize("line", [
    "uchar key[4] = {5, 0, 1, 0}; int k = *(int *)key;", "float one = 1; int k = *(int *)&one;",
    "int k = 5; *(float *)&k = 1;",
])  # fmt: skip
def test_bits_that_are_read_as_another_type_are_not_known(line):
    with pytest.raises(UnsupportedKernelError, match="trip count of 'for"):
        counted(f"{line}\nfor (int z = 0; z < k; ++z) a[z] = 1;")


def test_integers_that_are_not_affine_are_operations():
    body = "uint s = i; for (int j = 0; j < n; ++j) s ^= s << 13; a[i] = (i * i) % 7 + s;"
    names = [f"f_op_{each}" for each in ("uint32_bit", "uint32_shift", "int32_mul", "int32_mod", "uint32_add")]
    assert counted(body, names=names) == [80, 80, 8, 8, 8]


def test_constants_do_not_grow_beyond_their_type():
    assert counted("uint s = 3; for (int j = 0; j < 9; ++j) s = s * s;\nif (s == 1995565057u) a[i] = 1;")[0] == 8
    (found,) = counted("int s = 3; for (int j = 0; j < 99; ++j) s = s * s;\na[i] = s;", names=["f_op_int32_mul"])
    assert found > 0


FOOTPRINT = parse_feature("f_mem_footprint_array:a")
TARGET = Target(sub_group_size=32)


def test_a_description_for_one_size_is_none_for_others():
    scop = kernel("a[i % n] = 1;", groups=64).scop({"n": 8, "m": 1})
    assert FOOTPRINT.value(scop, {"n": 8}, TARGET) == 8
    with pytest.raises(MissingSizeError, match=r"not valid for n=16: it assumes n = 8"):
        FOOTPRINT.value(scop, {"n": 16}, TARGET)


def test_negative_arguments_are_described_for_themselves():
    one = kernel("if (m < 0) return; a[i + 10 + m] = 1;")
    assert [FOOTPRINT.value(one.scop({"n": 1, "m": m}), {"n": 1, "m": m}, TARGET) for m in (-1, 0, 2)] == [0, 8, 8]
    with pytest.raises(MissingSizeError, match="assumes m >= 0"):
        FOOTPRINT.value(one.scop(), {"n": 1, "m": -1}, TARGET)


def test_unsigned_integers_are_looked_at_for_each_of_many_sizes():
    text = "kernel void f(global int *a, uint n) { uint i = get_global_id(0); if (i < n) a[i * 4] = 1; }\n"
    one = source_kernel(text, "f", local=256, global_size="n")
    sizes = {"n": np.array([2**20, 2**30])}
    assert FOOTPRINT.value(one.scop(sizes), sizes, TARGET).tolist() == [2**20, 2**30]
    with pytest.raises(UnsupportedKernelError, match="wrap around at n=1073741825; give these sizes alone"):
        one.scop({"n": np.array([2**20, 2**30 + 1])})


@pytest.mark.parametrize("value", [None, "abc", float("inf"), 16.5, True])
def test_sizes_are_whole_numbers(value):
    with pytest.raises(MissingSizeError, match="size n must be a whole number"):
        kernel("a[i] = 1;").scop({"n": value, "m": 1, "w": 0.5})


def test_few_descriptions_are_kept():
    one = kernel("a[i] = 1;")
    for n in range(300):
        one.scop({"n": n, "m": 1})
    assert len(vars(one)["_scops"]) <= 256


@pytest.mark.parametrize(("stated", "cause"), [
    ({"99": 5}, r"no loop begins in line 99, where a trip count is stated; loops begin in 3"),
    ({"2": 5}, "no loop begins in line 2"), ({"dots.h:3": 5}, r"no loop begins in line dots\.h:3"),
    ({"nope": 64}, "no array is called 'nope', for which an extent is stated; arrays are a, b, x"),
    ({"m": 64}, "no array is called 'm'"), ({"x": 64}, None),
])  # fmt: skip
def test_what_is_stated_and_fits_nothing_is_told(stated, cause):
    one = kernel("for (int j = 0; j < x[0]; ++j)\n  a[i] = 1;", stated={"3": 2, **stated})
    if cause is None:
        one.scop()
    else:
        with pytest.raises(PerflexError, match=cause):
            one.scop()


@pytest.mark.parametrize("trips", ["0.01", "0.25", "1", "2.5", "7"])
@pytest.mark.parametrize(
    "body", ["for (int j = 0; j < x[i]; ++j) a[i] = 1;", "int j = 0; while (j++ < x[i]) a[i] = 1;"]
)
def test_the_test_of_a_loop_is_executed_once_more_than_its_body(body, trips):
    """On average, too; the loop around it has 3 iterations."""
    names = ("f_mem_access_array:x_load", "f_mem_access_array:a_store")
    found = counted(f"for (int k = 0; k < 3; ++k)\n{{ {body} }}", names=names, stated={"4": trips})
    assert found == pytest.approx([3 * 8 * (float(trips) + 1), 3 * 8 * float(trips)])
