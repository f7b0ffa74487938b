"""The generated OpenCL has the paper's shape, and building it raises no warning."""

from __future__ import annotations

import re
import warnings

import loopy as lp
import pytest
from loopy.kernel.data import UnrollTag

from uipick import ALL_GENERATORS, KernelCollection

# Variants differ in nothing that could warn but guards, and of the slow and many the guarded ones suffice.
FEW = {"dtype": "float64"}
FEWER = {**FEW, "groups_fit": False}


def _code(kernel):
    code = lp.generate_code_v2(kernel.kernel).device_code()
    return re.sub(r"/\*.*?\*/", "", code[code.index("__kernel") :])


def _lines(kernel):
    return [line.strip() for line in _code(kernel).splitlines() if line.strip() not in {"", "{", "}"}]


def _variants():
    for generator in ALL_GENERATORS:
        slow = generator.name.startswith("flops") or generator.name.endswith("_mem")
        chosen = (FEWER if slow else FEW).items()
        narrowed = [
            f"{name}:{value}"
            for name, value in chosen
            if name in generator.by_name and generator.by_name[name].read(str(value)) is not None
        ]
        kernels = KernelCollection([generator]).generate_kernels([generator.name, *narrowed])
        yield from {id(k.kernel): k for k in kernels}.values()


@pytest.mark.slow
def test_every_default_variant_generates_code_without_a_warning():
    variants = list(_variants())
    assert len(variants) > 120
    # Code from loopy's cache on disk would come without its warnings.
    with warnings.catch_warnings(), lp.CacheMode(False):
        warnings.simplefilter("error")
        for kernel in variants:
            assert "__kernel" in lp.generate_code_v2(_rolled(kernel.kernel)).device_code()


def _rolled(kernel):
    """The kernel without unrolling, which takes most of a second and could warn of nothing more."""
    entry = kernel.default_entrypoint
    if "k_inner" not in entry.all_inames():
        return kernel
    return kernel.with_kernel(lp.untag_inames(entry, "k_inner", UnrollTag))


@pytest.mark.slow
def test_every_kernel_states_its_sizes_and_nothing_else():
    for kernel in _variants():
        values = {a.name for a in kernel.kernel.default_entrypoint.args if isinstance(a, lp.ValueArg)}
        assert values == set(kernel.sizes), kernel.name


def test_matmul_with_prefetching_is_the_paper_s(one):
    lines = _lines(one("matmul_sq", "dtype:float32", "prefetch:True", "groups_fit:True", "n:512"))
    assert [re.sub(r"acc_\w+", "acc", line) for line in lines[1:]] == [
        "__local float a_fetch[16 * 16];",
        "float acc;",
        "__local float b_fetch[16 * 16];",
        "acc = 0.0f;",
        "for (int k_outer = 0; k_outer <= (-16 + n) / 16; ++k_outer)",
        "barrier(CLK_LOCAL_MEM_FENCE) ;",
        "a_fetch[16 * lid(1) + lid(0)] = a[n * (16 * gid(1) + lid(1)) + 16 * k_outer + lid(0)];",
        "b_fetch[16 * lid(1) + lid(0)] = b[n * (16 * k_outer + lid(1)) + 16 * gid(0) + lid(0)];",
        "barrier(CLK_LOCAL_MEM_FENCE) ;",
        "for (int k_inner = 0; k_inner <= 15; ++k_inner)",
        "acc = acc + a_fetch[16 * lid(1) + k_inner] * b_fetch[16 * k_inner + lid(0)];",
        "c[n * (16 * gid(1) + lid(1)) + 16 * gid(0) + lid(0)] = acc;",
    ]


def test_matmul_without_prefetching_does_not_split_k(one):
    lines = _lines(one("matmul_sq", "dtype:float32", "prefetch:False", "groups_fit:True", "n:512"))
    assert [line.replace("acc_k", "acc") for line in lines[1:]] == [
        "float acc;",
        "acc = 0.0f;",
        "for (int k = 0; k <= -1 + n; ++k)",
        "acc = acc + a[n * (16 * gid(1) + lid(1)) + k] * b[n * k + 16 * gid(0) + lid(0)];",
        "c[n * (16 * gid(1) + lid(1)) + 16 * gid(0) + lid(0)] = acc;",
    ]


@pytest.mark.parametrize("prefetch", [True, False])
def test_guards_appear_only_where_groups_need_not_fit(one, prefetch):
    fit, guarded = (
        _code(one("matmul_sq", "dtype:float32", f"prefetch:{prefetch}", f"groups_fit:{fit}", "n:512"))
        for fit in (True, False)
    )
    assert "if (" not in fit
    assert "if (" in guarded


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "form"),
    [
        ("flops_add", r"x\d+ \+ x\d+"),
        ("flops_mul", r"x\d+ \* x\d+"),
        ("flops_madd", r"x\d+ \* one \+ x\d+"),
        ("flops_div", r"x\d+ / x\d+"),
        ("flops_sqrt", r"sqrt\(x\d+\)"),
        ("iops_add", r"x\d+ \+ x\d+"),
        ("iops_bit", r"x\d+ \^ x\d+ & x\d+"),
    ],
)
def test_patterns_keep_32_variables_and_no_update_depends_on_the_last_four(one, operation, form):
    dtype, word = ("int32", "int") if operation.startswith("iops") else ("float32", "float")
    lines = _lines(one(f"{operation}_pattern", f"dtype:{dtype}", "groups_fit:True", "nelements:524288", "m:1024"))
    assert len([line for line in lines if re.fullmatch(rf"{word} x\d+;", line)]) == 32
    # One loop, with all 64 copies in it.
    (start,) = (number for number, line in enumerate(lines) if line.startswith("for ("))
    _check_updates([line for line in lines[start + 1 :] if line.startswith("x")], form, 64)


@pytest.mark.parametrize(
    ("operation", "form"),
    [
        ("rsqrt", r"rsqrt\(x\d+\)"),
        ("exp", r"exp\(-1\.0f \* x\d+\)"),
        ("sin", r"sin\(x\d+\)"),
        ("cos", r"cos\(x\d+\)"),
    ],
)
def test_function_patterns_are_not_unrolled(one, operation, form):
    lines = _lines(one(f"flops_{operation}_pattern", "dtype:float32", "groups_fit:True", "nelements:524288", "m:64"))
    (start,) = (number for number, line in enumerate(lines) if line.startswith("for ("))
    _check_updates([line for line in lines[start + 1 :] if line.startswith("x")], form, 1)


def _check_updates(updates, form, unroll):
    assert len(updates) == unroll * 32
    assert len({line.split(" = ")[0] for line in updates}) == 32
    latest: list[str] = []
    for line in updates:
        target, expression = line.rstrip(";").split(" = ")
        assert re.fullmatch(form, expression), line
        assert not set(latest[-4:]) & set(re.findall(r"x\d+", expression)), line
        latest.append(target)


@pytest.mark.parametrize("name", ["lmem_move", "overlap_ratio"])
def test_local_moves_need_no_barrier(one, name):
    code = _code(one(name, "dtype:float32", "m:8", "nelements:524288"))
    assert "barrier" not in code
    assert "target[256 * m_in + 16 * lid(1) + lid(0)] = source[256 * m_in + 16 * lid(1) + lid(0)];" in code


def test_barriers_are_in_the_loop_and_nowhere_else(one):
    lines = _lines(one("barrier_local", "dtype:float32", "m:64", "nelements:524288"))
    place = next(number for number, line in enumerate(lines) if line.startswith("for ("))
    assert lines[place + 1].startswith("barrier(CLK_LOCAL_MEM_FENCE)")
    assert sum("barrier(" in line for line in lines) == 1


def test_chains_are_independent_variables(one):
    lines = _lines(one("overlap_madd", "dtype:float32", "load:both", "m:4", "chains:2", "groups_fit:True", "n:512"))
    assert [line for line in lines if re.match(r"x\d = x", line)] == [
        "x0 = x0 * row + col;",
        "x1 = x1 * 0.5f + col;",
        "x0 = x0 * 0.5f + row;",
        "x1 = x1 * 0.5f + col;",
    ]


def test_streams_use_vector_types(one):
    code = _code(one("gmem_triad", "dtype:float32", "width:4", "groups_fit:True", "nelements:524288"))
    assert code.count("__global float4") == 3
    assert "result[256 * gid(0) + lid(0)] = a[256 * gid(0) + lid(0)] + 3.0f * b[256 * gid(0) + lid(0)];" in code


def test_a_working_set_is_loaded_whole_before_it_is_loaded_again(one):
    lines = _lines(one("gmem_working_set", "dtype:float32", "chains:2", "working_set:2048", "m:8"))
    start = next(number for number, line in enumerate(lines) if line.startswith("for ("))
    assert lines[start : start + 5] == [
        "for (int round = 0; round <= -1 + m; ++round)",
        "for (int j = 0; j <= -1 + nrows; ++j)",
        "x0 = x0 + in0[512 * nrows * gid(0) + 512 * j + lid(0)];",
        "x1 = x1 + in0[512 * nrows * gid(0) + 512 * j + 256 + lid(0)];",
        "barrier(CLK_LOCAL_MEM_FENCE) ;",
    ]
