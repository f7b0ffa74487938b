import re

import loopy as lp
import numpy as np
import pytest

from perflex.errors import UnsupportedKernelError
from support.written_kernels import written
from uipick import remove_work
from uipick._accesses import global_accesses


def _body(kernel):
    """Generated OpenCL without preamble, comments and layout."""
    code = lp.generate_code_v2(kernel).device_code()
    code = re.sub(r"/\*.*?\*/", "", code[code.index("__kernel") :])
    return [line.strip() for line in code.splitlines() if line.strip() not in {"", "{", "}"}]


def _grid(kernel, sizes):
    prepared = lp.preprocess_program(kernel)
    groups, items = prepared.default_entrypoint.get_grid_size_upper_bounds_as_exprs(prepared.callables_table)
    from pymbolic import evaluate

    return [evaluate(e, sizes) for e in groups], [evaluate(e, sizes) for e in items]


@pytest.fixture
def matmul(one):
    return one("matmul_sq", "dtype:float32", "prefetch:True", "groups_fit:True", "n:32").kernel


def test_the_paper_s_example(matmul):
    code = _body(remove_work(matmul, remove_vars=["a", "c"]))
    assert code[1:] == [
        "float read_tgt;",
        "read_tgt = 0.0f;",
        "for (int k_outer = 0; k_outer <= (-16 + n) / 16; ++k_outer)",
        "read_tgt = read_tgt + b[n * (16 * k_outer + lid(1)) + 16 * gid(0) + lid(0)];",
        "read_tgt_dest[n * (16 * gid(1) + lid(1)) + 16 * gid(0) + lid(0)] = read_tgt;",
    ]
    # The original is left as it was.
    assert any("b[n * (16 * k_outer + lid(1)) + 16 * gid(0) + lid(0)]" in line for line in _body(matmul))


def test_everything_global_is_kept_by_default(matmul):
    code = _body(remove_work(matmul))
    assert sum("read_tgt = read_tgt +" in line for line in code) == 2
    assert sum(line.startswith("for") for line in code) == 1
    assert code[-1] == "c[n * (16 * gid(1) + lid(1)) + 16 * gid(0) + lid(0)] = read_tgt;"
    assert not any("read_tgt_dest" in line or "__local" in line or "barrier" in line for line in code)


def test_a_kept_store_without_loads_stores_zero(matmul):
    kernel = remove_work(matmul, keep_tags=["cST"])
    assert _body(kernel)[1:] == [
        "float read_tgt;",
        "read_tgt = 0.0f;",
        "c[n * (16 * gid(1) + lid(1)) + 16 * gid(0) + lid(0)] = read_tgt;",
    ]
    assert [a.name for a in kernel.default_entrypoint.args] == ["c", "n"]


@pytest.mark.parametrize(("prefetch", "fit"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("tags", [["bLD"], ["aLD", "bLD"], ["cST"]])
def test_launch_sizes_and_tags_stay(one, prefetch, fit, tags):
    original = one("matmul_sq", "dtype:float32", f"prefetch:{prefetch}", f"groups_fit:{fit}", "n:32").kernel
    removed = remove_work(original, keep_tags=tags)
    for n in (16, 48, 160) if fit else (1, 15, 17, 160):
        assert _grid(removed, {"n": n}) == _grid(original, {"n": n})
    prepared = lp.linearize(lp.preprocess_program(removed)).default_entrypoint
    found = {tag for access in global_accesses(prepared) for tag in access.tags}
    assert found == set(tags)


@pytest.mark.parametrize("prefetch", [True, False])
def test_guarded_kernels_sum_what_they_load(one, run, random, prefetch):
    n = 37
    original = one("matmul_sq", "dtype:float64", f"prefetch:{prefetch}", "groups_fit:False", f"n:{n}").kernel
    a = random.random((n, n))
    found = run(remove_work(original, keep_tags=["aLD"]), {"n": n}, a=a)
    i, j = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    # With prefetching, a work-item loads the columns that have its own place within a tile.
    every = np.array([a[:, j0 % 16 :: 16].sum(axis=1) for j0 in range(n)]).T if prefetch else a.sum(axis=1)[:, None]
    np.testing.assert_allclose(found, np.broadcast_to(every, (n, n))[i, j], rtol=1e-12)


def test_loads_in_several_loops_and_nested_in_expressions(run, random):
    kernel = written(
        "{[i, j, k, l]: 0 <= i < n and 0 <= j, k < 4 and 0 <= l < 3}",
        """
        <float64> s = sum((j, k), sin(x[i, j]) * exp(y[j, k] + x[i, k]**2)) {id=s}
        r[i] = s + sum(l, z[l] if i > 2 else w[l]) {dep=s}
        """,
        "x: float64[n, 4]; y: float64[4, 4]; z, w: float64[3]; r: float64[n]",
        "i/8: g.0, l.0",
    )
    x, y, z, w = random.random((11, 4)), random.random((4, 4)), random.random(3), random.random(3)
    found = run(remove_work(kernel, remove_vars=["r"]), {"n": 11}, x=x, y=y, z=z, w=w)
    expected = 8 * x.sum(axis=1) + y.sum() + np.where(np.arange(11) > 2, z.sum(), w.sum())
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_loops_stay_nested_as_they_were(one):
    cases = {
        "diff_mat_prefetch": ("uDpreLD", ["m", "j_outer", "j_inner"]),
        "u_prefetch": ("diffUpreLD", ["j_outer", "j_inner", "m"]),
    }
    for variant, (tag, loops) in cases.items():
        kernel = one("dg_diff", "dtype:float32", f"variant:{variant}", "groups_fit:True", "nelements:4096").kernel
        code = _body(remove_work(kernel, keep_tags=[tag]))
        assert [line.split()[2] for line in code if line.startswith("for")] == loops


def test_no_work_item_adds_to_an_undefined_sum(matmul, one):
    assert _body(remove_work(matmul, keep_tags=["aLD"])).count("read_tgt = 0.0f;") == 1
    guarded = one("matmul_sq", "dtype:float32", "prefetch:True", "groups_fit:False", "n:37").kernel
    lines = _body(remove_work(guarded, keep_tags=["aLD"]))
    # More work-items load a tile's elements than have a result: those right of the matrix, too.
    condition = "if (-1 + -1 * lid(0) + n >= 0 && -1 + -16 * gid(1) + -1 * lid(1) + n >= 0)"
    assert lines[lines.index(condition) + 1] == "read_tgt = 0.0f;"
    assert lines.count("read_tgt = 0.0f;") == 2


def test_mixed_element_types_are_summed_in_the_wider_one(run):
    data = "x: float32[32]; y, r: float64[32]"
    kernel = written("{[i]: 0 <= i < 32}", "r[i] = x[i] + y[i]", data, "i/16: g.0, l.0", assume="")
    removed = remove_work(kernel, remove_vars=["r"])
    x, y = np.arange(32, dtype=np.float32), np.full(32, 1e-12)
    np.testing.assert_array_equal(run(removed, {}, x=x, y=y), x + y)


def test_loops_that_no_priority_names_stay_nested():
    domain, data = "{[i, a, b]: 0 <= i < n and 0 <= a, b < 3}", "x, y: float64[n, 3]; r: float64[n]"
    text, fits = "r[i] = sum((a, b), x[i, a] * y[a, b])", "n >= 3 and n mod 8 = 0"
    kernel = written(domain, text, data, "i/8: g.0, l.0", assume=fits)
    for outer, inner in ("ab", "ba"):
        code = _body(remove_work(lp.prioritize_loops(kernel, [outer, inner]), remove_vars=["r"]))
        loops = [line for line in code if line.startswith("for")]
        assert [re.match(r"for \(int (\w)", line)[1] for line in loops] == [outer, inner]


@pytest.mark.parametrize("n", [1, 13, 16, 24, 37])
def test_results_fit_where_only_some_work_items_of_a_group_work(run, random, n):
    """With two results a group's width apart, work-items in the middle may have none, so places have gaps."""
    domain = "{[g, l, t]: 0 <= g and 0 <= l < 8 and 0 <= t < 2 and 16*g + 8*t + l < n}"
    text = "r[16*g + 8*t + l] = 2*x[16*g + 8*t + l]"
    kernel = written(domain, text, "x, r: float64[n]", "g: g.0; l: l.0; t: unr")
    removed = remove_work(kernel, remove_vars=["r"])
    x = random.random(n)
    groups = -(-n // 16)
    padded = np.pad(x, (0, 16 * groups - n)).reshape(groups, 2, 8)
    active = (np.arange(16 * groups) < n).reshape(groups, 2, 8)[:, 0]
    found = run(removed, {"n": n}, x=x)
    np.testing.assert_array_equal(found.reshape(groups, 8), np.where(active, padded.sum(axis=1), -77))


def test_names_that_are_taken_are_avoided(run):
    kernel = _line("read_tgt[i] = 2*read_tgt_dest[i]", "read_tgt, read_tgt_dest")
    removed = remove_work(kernel, remove_vars=["read_tgt"])
    values = np.arange(16.0)
    np.testing.assert_array_equal(run(removed, {}, read_tgt_dest=values), values)


@pytest.mark.parametrize(("options", "words"), [
    ({"remove_vars": ["d"]}, "no global array 'd'; it has a, b, c"),
    ({"remove_vars": ["a_fetch"]}, "no global array 'a_fetch'"),
    ({"keep_tags": ["dLD"]}, "no access tag 'dLD'; it has aLD, bLD, cST"),
    ({"remove_vars": ["a", "b", "c"]}, r"nothing is left .*load a\[.*store c\["),
    ({"remove_vars": ["a"], "keep_tags": ["aLD"]}, "nothing is left"),
    ({"remove_vars": "a"}, "lists of names"),
    ({"keep_tags": "aLD"}, "lists of names"),
])  # fmt: skip
def test_what_cannot_be_removed_is_named(matmul, options, words):
    with pytest.raises(UnsupportedKernelError, match=words):
        remove_work(matmul, **options)


def _indirect():
    return written("{[i]: 0 <= i < n}", "r[i] = x[index[i]]", "x, r: float64[n]; index: int32[n]", "i/8: g.0, l.0")


def _line(instructions, names):
    return written("{[i]: 0 <= i < 16}", instructions, f"{names}: float64[16]", "i: l.0", assume="", name="work")


@pytest.mark.parametrize(("kernel", "words"), [
    (_indirect(), r"load x\[index\[.*depends on index"),
    (_line("r[i] = x[i] if y[i] > 0 else 0", "x, y, r"), r"load x\[i\].*depends on y"),
    (_line([lp.CInstruction("i", "r[i] = i;", assignees="r[i]", id="raw")], "r"),
        "instruction 'raw' of 'work' is not a plain assignment"),
])  # fmt: skip
def test_what_data_decide_and_literal_code_are_refused(kernel, words):
    with pytest.raises(UnsupportedKernelError, match=words):
        remove_work(kernel)


def test_an_indirect_access_can_be_removed(run):
    removed = remove_work(_indirect(), remove_vars=["x", "r"])
    index = np.arange(12, dtype=np.int32)
    np.testing.assert_array_equal(run(removed, {"n": 12}, index=index), index)


def test_accesses_of_one_launch_are_kept(one):
    kernel = one("dot", "dtype:float32", "groups_fit:True", "lsize_0:8", "ngroups:4", "n:256").kernel
    for options in ({}, {"keep_tags": ["xLD", "resST"]}):
        with pytest.raises(UnsupportedKernelError, match=r"several launches \(load x\[.*in launch 0.*in launch 1"):
            remove_work(kernel, **options)
    with pytest.raises(UnsupportedKernelError, match="loads what an earlier launch computed; remove 'partial'"):
        remove_work(kernel, keep_tags=["partLD"])
    kept = remove_work(kernel, keep_tags=["xLD"])
    assert _grid(kept, {"n": 256}) == ([4], [8])
    assert "dot_product_0" not in lp.generate_code_v2(kept).device_code()


def test_two_entry_points_are_refused(matmul):
    both = lp.merge([matmul, lp.rename_callable(matmul, "matmul_sq", "second")])
    with pytest.raises(UnsupportedKernelError, match="one entry point"):
        remove_work(both)
