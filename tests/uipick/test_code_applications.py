"""Applications: the generated code has the shape that is meant, and optimised code still executes it."""

from __future__ import annotations

import pytest

from oracles.oclgrind import needs_oclgrind, run_jobs
from uipick import ALL_GENERATORS, KernelCollection

FIT = ("dtype:float32", "groups_fit:True")


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
