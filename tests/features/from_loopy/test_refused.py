"""Kernels that are refused, with cause and remedy: cycles, integers that data decide, sizes that no address holds."""

import loopy as lp
import numpy as np
import pytest

from perflex.errors import MissingSizeError, UnsupportedKernelError
from perflex.features import extract_scop, kernel_feature_values, scop_from_yaml
from support.written_kernels import written


def made(domain, body):
    return written(domain, body, f"a, b: float64[{'n, n' if 'j' in domain else 'n'}]")


def ordered(*priorities):
    kernel = made("{[i, j, k]: 0 <= i, j, k < n}", "b[i, j] = b[i, j] + a[i, k]")
    for order in priorities:
        kernel = lp.prioritize_loops(kernel, order)
    return kernel


def dependent(*added):
    kernel = made("{[i]: 0 <= i < n}", "b[i] = 2*a[i] {id=x}\n<> t = b[i] {id=y,dep=x}\na[i] = t {id=z,dep=y}")
    for one, other in added:
        kernel = lp.add_dependency(kernel, f"id:{one}", f"id:{other}")
    return kernel


BARRED = made("{[i]: 0 <= i < n}", "b[i] = 2*a[i] {id=x,dep=stop}\n... gbarrier {id=stop,dep=x}")


def clamped(dep):
    # `u` reads q, which `w` writes: loopy adds the dependency where the list has no asterisk.
    body = f"""
    for e
        <> alpha = 1.0 {{id=first}}
        for i
            <> up = fmin(alpha, q[e, i]) {{id=u,dep={dep}}}
            alpha = up {{id=al,dep=u}}
        end
        for ii
            q[e, ii] = alpha*q[e, ii] {{id=w,dep=al}}
        end
    end"""
    return written("{[e, i, ii]: 0 <= e < n and 0 <= i, ii < 3}", body, "q: float64[n, 3]")


def twice_entered():
    body = """
    <> s = 0 {id=start}
    for i
        s = s + a[i] {id=add,dep=start}
    end
    <> t = s {id=whole,dep=add}
    for i
        b[i] = t {id=spread,dep=whole}
    end"""
    return made("{[i]: 0 <= i < n}", body)


@pytest.mark.parametrize(("kernel", "cycle"), [
    (ordered("i, j", "j, i"), "loop 'i' around 'j', loop 'j' around 'i'"),
    (ordered("i, j", "k, i", "j, k"), "loop 'i' around 'j', loop 'j' around 'k', loop 'k' around 'i'"),
    (dependent(("x", "z")), "instruction 'x' on 'z', 'z' on 'y', 'y' on 'x'"),
    (dependent(("x", "z"), ("y", "y")), "instruction 'y' on 'y'"),
    (BARRED, "instruction 'stop' on 'x', 'x' on 'stop'"),
    (clamped("first"), "instruction 'al' on 'u', 'u' on 'w', 'w' on 'al'"),
    (twice_entered(), "'whole', which is not in the loop, depends on 'add' in it, and 'spread' in it on 'whole'"),
])  # fmt: skip
def test_the_whole_cycle_is_named(kernel, cycle):
    with pytest.raises(UnsupportedKernelError, match="cycle") as caught:
        extract_scop(kernel)
    assert cycle in str(caught.value)


@pytest.mark.parametrize("kernel", [
    ordered("i, j", "j, k"), clamped("*first"), lp.duplicate_inames(twice_entered(), "i", "id:spread"),
])  # fmt: skip
def test_the_remedies_work(kernel):
    assert extract_scop(kernel).statements


def kernel(text):
    return written(
        "{[i,j,k]: 0<=i,j<n and 0<=k<4}", text, "b, t: float32[n, n]", "j/16: g.0, l.0; i: g.1", seq_dependencies=True,
        silenced_warnings=["inferred_iname", "read_no_dep(late_init)"],
    )  # fmt: skip


def load(text):
    accesses = [access for statement in extract_scop(kernel(text)).statements for access in statement.accesses]
    (found,) = [access.relation.coalesce() for access in accesses if access.array == "t"]
    return found


@pytest.mark.parametrize(("before", "variable", "value"), [
    ("", "row = i", "i"),
    ("", "row = n - 1 - i", "n - 1 - i"),
    ("", "row = i - 1 if i > 0 else 0", "(i - 1 if i > 0 else 0)"),
    ("<int32> half = i // 2", "row = half + n // 4", "(i // 2 + n // 4)"),
])  # fmt: skip
def test_a_variable_stands_for_its_value(before, variable, value):
    one = load(f"{before}\n<int32> {variable}\nb[i,j] = t[row,j]")
    assert one.is_equal(load(f"b[i,j] = t[{value},j]"))


@pytest.mark.parametrize("text", [
    # The value of the last iteration of a loop that is over.
    "for k\n  <int32> row = k {id=w}\nend\nb[i,j] = t[row,j] {inames=i:j}",
    # Written twice.
    "<int32> row = i {id=w}\nrow = row + 1 {id=w2}\nb[i,j] = t[row,j]",
    # Written where a condition holds.
    "<int32> row = i {id=w, if=i < 5}\nb[i,j] = t[row,j]",
    # The whole part of a product, or a condition with a fraction.
    "<int32> row = 0.5 * i\nb[i,j] = t[row,j]",
    "<int32> row = i if i < 1.5 else 0\nb[i,j] = t[row,j]",
    # Cut off beyond 127.
    "<int8> row = i\nb[i,j] = t[row,j]",
])  # fmt: skip
def test_what_is_not_certain_is_refused(text):
    with pytest.raises(UnsupportedKernelError, match="row depends on the data"):
        extract_scop(kernel(text))


FEATURES = ["f_mem_access_global_float32_load"]
COPY = """
schema: perflex-scop/2
name: copy
parameters: [n]
launches: [{{groups: [n], items: [1]}}]
arrays: [{{name: a, space: global, dtype: float32, shape: [n, n], strides: ["{stride}", 1]}}]
statements:
- name: s
  domain: "[n] -> {{ [g, l] : 0 <= g < n and l = 0 }}"
  accesses: [{{array: a, direction: load, relation: "{{ [g, l] -> [g, 0] }}"}}]
"""


def copying(**array):
    """Return a kernel that copies an array of a shape and with strides."""
    source = lp.GlobalArg("a", np.float32, **array)
    return written("{[i, j]: 0 <= i, j < n}", "b[i, j] = a[i, j]", "b: float32[n, n]", "i/16: g.0, l.0", more=[source])


@pytest.mark.parametrize("digits", [20, 300, 4000, 5000])
@pytest.mark.parametrize("where", ["strides", "shape"])
def test_numbers_in_loopy_kernels(where, digits):
    long = 10**digits - 1
    kernel = copying(shape="n, n", strides=(long, 1)) if where == "strides" else copying(shape=(long, long))
    with pytest.raises(UnsupportedKernelError, match=f"a number of {digits} digits, and .* give one below"):
        kernel_feature_values(FEATURES, kernel, {"n": 64})


@pytest.mark.parametrize("size", [2, 2**20])
@pytest.mark.parametrize("stride", ["999999999999999*999999999999999", "n^300", "-n^300", "n^70"])
def test_products_in_descriptions(stride, size):
    with pytest.raises(MissingSizeError, match=r"array 'a' of kernel 'copy' .* give smaller sizes or strides"):
        kernel_feature_values(FEATURES, scop_from_yaml(COPY.format(stride=stride)), {"n": size})


@pytest.mark.parametrize(("kernel", "loads"), [
    *((scop_from_yaml(COPY.format(stride=stride)), 64) for stride in ("999999999999999", "n^4")),
    (copying(shape="n, n", strides=(10**14, 1)), 4096),
])  # fmt: skip
def test_long_strides_within_addresses_are_counted(kernel, loads):
    assert kernel_feature_values(FEATURES, kernel, {"n": 64}) == {FEATURES[0]: loads}
