"""Applications: the generated code has the shape that is meant, and optimised code still executes it."""

from __future__ import annotations

import re

import loopy as lp
import pytest

from oracles.oclgrind import needs_oclgrind, run_jobs
from uipick import ALL_GENERATORS, KernelCollection

FIT = ("dtype:float32", "groups_fit:True")


def _lines(kernel):
    code = lp.generate_code_v2(kernel.kernel).device_code()
    code = re.sub(r" ?/\*.*?\*/", "", code[code.index("__kernel") :])
    return [line.strip() for line in code.splitlines() if line.strip() not in {"", "{", "}"}]


def test_register_blocks_are_unrolled(one):
    lines = _lines(one("matmul_rb", *FIT, "rows:2", "columns:4", "lsize:16", "n:512"))
    start = next(k for k, line in enumerate(lines) if "k_inner = 0" in line)
    assert lines[start + 1 : start + 15] == [
        "a_own[0] = a_tile[16 * lid(1) + k_inner];",
        "a_own[1] = a_tile[16 * (lid(1) + 16) + k_inner];",
        "b_own[0] = b_tile[64 * k_inner + lid(0)];",
        "b_own[1] = b_tile[64 * k_inner + lid(0) + 16];",
        "b_own[2] = b_tile[64 * k_inner + lid(0) + 16 * 2];",
        "b_own[3] = b_tile[64 * k_inner + lid(0) + 16 * 3];",
        *(f"sums[{4 * r + s}] = sums[{4 * r + s}] + a_own[{r}] * b_own[{s}];" for r in range(2) for s in range(4)),
    ]
    loops = [line.split()[2] for line in lines if line.startswith("for (")]
    assert loops == ["k_outer", "k_inner"]
    assert sum(line.startswith("barrier(") for line in lines) == 2


@pytest.mark.parametrize(("variant", "width"), [("tiled", 16), ("padded", 17)])
def test_transposition_through_local_memory(one, variant, width):
    assert _lines(one("transpose", *FIT, f"variant:{variant}", "n:512"))[1:] == [
        f"__local float tile[16 * {width}];",
        f"tile[{width} * lid(1) + lid(0)] = a[n * (16 * gid(1) + lid(1)) + 16 * gid(0) + lid(0)];",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        f"out[n * (16 * gid(0) + lid(1)) + 16 * gid(1) + lid(0)] = tile[{width} * lid(0) + lid(1)];",
    ]


def test_naive_transposition(one):
    assert _lines(one("transpose", *FIT, "variant:naive", "n:512"))[1:] == [
        "out[n * (16 * gid(0) + lid(0)) + 16 * gid(1) + lid(1)] = a[n * (16 * gid(1) + lid(1)) + 16 * gid(0) + lid(0)];"
    ]


@pytest.mark.parametrize(
    ("layout", "element"), [("rows", "m * (64 * gid(0) + lid(0)) + {j}"), ("columns", "64 * gid(0) + lid(0) + n * {j}")]
)
def test_gemv_layouts(one, layout, element):
    lines = _lines(one("gemv", *FIT, f"layout:{layout}", "prefetch:False", "lsize_0:64", "n:2048", "m:1024"))
    assert f"acc_j = acc_j + a[{element.format(j='j')}] * x[j];" in lines
    lines = _lines(one("gemv", *FIT, f"layout:{layout}", "prefetch:True", "lsize_0:64", "n:2048", "m:1024"))
    assert "x_fetch[lid(0)] = x[64 * j_outer + lid(0)];" in lines


def test_dot_is_two_launches_with_a_tree_each(one):
    lines = _lines(one("dot", *FIT, "lsize_0:16", "ngroups:8", "n:1048576"))
    assert sum(line.startswith("__kernel") for line in lines) == 2
    second = next(k for k, line in enumerate(lines) if k > 0 and line.startswith("__kernel"))
    assert [sum(line.startswith("barrier(") for line in part) for part in (lines[:second], lines[second:])] == [4, 3]
    assert "partial[gid(0)] = acc_item[0];" in lines[:second]
    assert lines[-1] == "result[0] = acc_last_item[0];"


@pytest.mark.parametrize("prefetch", [True, False])
def test_nbody_has_one_rsqrt_and_the_bodies_where_they_belong(one, prefetch):
    lines = _lines(one("nbody", *FIT, f"prefetch:{prefetch}", "n:2048"))
    assert sum("rsqrt(" in line for line in lines) == 1
    source = "tile_body[in_tile]" if prefetch else "body[256 * tile + in_tile]"
    assert f"d_x = {source} + -1.0f * own_x;" in lines
    assert sum(line.startswith("barrier(") for line in lines) == (2 if prefetch else 0)


# What optimised code executes in all: loads and stores by address space, operations, barriers.
OPTIMISED = {
    "block": (["matmul_rb", "rows:2", "columns:4", "lsize:4", "n:32"], {
        "global": (32**3 // 8 + 32**3 // 16, 32**2), "local": (32**3 // 4 + 32**3 // 2, 3 * 32**3 // 16),
        "madd": 32**3, "barrier": 2 * 8 * 128,
    }),
    "block a": (["matmul_rb_mem", "rows:2", "columns:4", "lsize:4", "n:32", "keep:aLD"], {
        "global": (32**3 // 16, 32**2 // 8), "add": 32**3 // 16,
    }),
    "naive": (["transpose", "variant:naive", "lsize:4", "n:16"], {"global": (256, 256)}),
    "padded": (["transpose", "variant:padded", "lsize:4", "n:16"], {
        "global": (256, 256), "local": (256, 256), "barrier": 256,
    }),
    "gemv": (["gemv", "layout:rows", "prefetch:True", "lsize_0:8", "n:16", "m:24"], {
        "global": (16 * 24 + 16 * 3, 16), "local": (16 * 24, 16 * 3), "madd": 16 * 24, "barrier": 2 * 3 * 16,
    }),
    "gemv a": (["gemv_mem", "layout:columns", "prefetch:True", "lsize_0:8", "n:16", "m:24", "keep:aLD"], {
        "global": (16 * 24, 16), "add": 16 * 24,
    }),
    "axpy": (["axpy", "lsize_0:8", "n:40"], {"global": (80, 40), "madd": 40}),
    "dot": (["dot", "lsize_0:8", "ngroups:4", "n:256"], {"global": (2 * 256 + 4, 4 + 1), "madd": 256}),
    "dot x": (["dot_mem", "lsize_0:8", "ngroups:4", "n:256", "keep:xLD"], {"global": (256, 32), "add": 256}),
    "batch": (["matmul_batch", "order:4", "per_group:2", "prefetch:True", "nbatch:6"], {
        "global": (2 * 96, 96), "local": (8 * 96, 2 * 96), "madd": 4 * 96, "barrier": 96,
    }),
    "bodies": (["nbody_mem", "prefetch:False", "lsize_0:8", "n:24", "keep:bodyLD"], {
        "global": (4 * 24 * 24, 24), "add": 4 * 24 * 24,
    }),
    "pairs": (["nbody", "prefetch:True", "lsize_0:8", "n:24"], {
        "global": (3 * 24 + 4 * 24 * 3, 3 * 24), "local": (4 * 24 * 24, 4 * 24 * 3), "barrier": 2 * 3 * 24,
        "rsqrt": 24 * 24,
    }),
}  # fmt: skip


@pytest.fixture(scope="module")
def executed():
    collection = KernelCollection(ALL_GENERATORS)
    kernels = [collection.generate_kernels([*tags, *FIT])[0] for tags, _ in OPTIMISED.values()]
    results = run_jobs([(kernel.kernel, kernel.sizes) for kernel in kernels], options=[])
    return dict(zip(OPTIMISED, results, strict=True))


@pytest.mark.slow
@needs_oclgrind
@pytest.mark.parametrize("name", OPTIMISED)
def test_optimised_code_executes_what_is_measured(executed, name):
    found, expected = executed[name], OPTIMISED[name][1]
    assert (found.load("global").count, found.store("global").count) == expected["global"]
    assert found.called("rsqrt") == expected.get("rsqrt", 0)
    # How the arithmetic of a pair is put together is the compiler's choice.
    if name != "pairs":
        assert found.madds("float32") == expected.get("madd", 0)
    # The tree of a reduction differs between the stages and holds stores that are overwritten at once.
    if name != "dot":
        assert (found.load("local").count, found.store("local").count) == expected.get("local", (0, 0))
        assert found.barriers == expected.get("barrier", 0)
        assert name == "pairs" or found.adds == expected.get("add", 0)
