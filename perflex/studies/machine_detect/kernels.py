"""The kernels that measure a CPU: loads and updates of a working set, a dependent chain, and streams."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import loopy as lp

# Work-items of a work-group, and rows that each has in an iteration: a vector each, and few enough to be registers.
_ITEMS, _CHAINS = 16, 8
_ELEMENT_BYTES = 4
CHUNK_BYTES = _ITEMS * _CHAINS * _ELEMENT_BYTES
"""Working sets are multiples of this."""
# Private variables, each a vector: more than the multiply-adds that are under way at once.
_VARIABLES = 16
MADD_SIZES = {"nelements": 16}
"""Sizes of `madd_kernel` for one work-group; beside them there is ``m``, the iterations."""
MADDS = _VARIABLES * _ITEMS
"""Multiply-adds of one iteration of `madd_kernel`."""
CHAIN_LENGTH = 32
"""Dependent operations of one iteration of the chain, each of one cycle."""


@lru_cache(maxsize=1)
def load_kernel() -> lp.TranslationUnit:
    """Return the kernel that loads a work-group's working set, m times over: the catalog's ``gmem_working_set``."""
    return _catalog("gmem_working_set", f"lsize_0:{_ITEMS}", f"chains:{_CHAINS}", "working_set:131072", "m:8")


@lru_cache(maxsize=2)
def madd_kernel(dtype: str) -> lp.TranslationUnit:
    """Return the catalog's ``flops_madd_pattern`` with `MADDS` multiply-adds per iteration and work-group."""
    return _catalog(
        "flops_madd_pattern", f"dtype:{dtype}", f"lsize_0:{_ITEMS}", "lsize_1:1", "groups_fit:True",
        f"lid_stride_1:{_ITEMS}", f"nvars:{_VARIABLES}", f"nelements:{_ITEMS}", "m:128",
    )  # fmt: skip


@lru_cache(maxsize=2)
def stream_kernel(name: str) -> lp.TranslationUnit:
    """Return the catalog's ``gmem_copy`` or ``gmem_triad``, in double precision as STREAM is."""
    return _catalog(name, "dtype:float64", "width:1", "lsize_0:1024", "groups_fit:True", "nelements:4194304")


def _catalog(*tags: str) -> lp.TranslationUnit:
    from uipick import ALL_GENERATORS, KernelCollection

    wanted = tags if any(tag.startswith("dtype:") for tag in tags) else (*tags, "dtype:float32")
    return KernelCollection(ALL_GENERATORS).generate_kernels(wanted)[0].kernel


@lru_cache(maxsize=1)
def update_kernel() -> lp.TranslationUnit:
    """Return the kernel that loads and stores every element of a work-group's working set, m times over.

    Sizes as of ``gmem_working_set``: work-groups, rows of a work-group, and m.
    """
    # Values tend to 1: no number of rounds makes them overflow or denormal.
    rows = [f"data[g0, j, {c}, l0] = 0.5*data[g0, j, {c}, l0] + 0.5" for c in range(_CHAINS)]
    shape = f"ngroups, nrows, {_CHAINS}, {_ITEMS}"
    return _kernel(
        "update_working_set",
        ["{[round, j]: 0 <= round < m and 0 <= j < nrows}"],
        ["for round", "for j", *rows, "end", "... lbarrier", "end"],
        ("data", "float32", shape),
        ["m", "nrows", "ngroups"],
    )


@lru_cache(maxsize=1)
def chain_kernel() -> lp.TranslationUnit:
    """Return the kernel that does ``m`` times `CHAIN_LENGTH` integer operations, each waiting for the one before.

    Additions of, and exclusive ors with, numbers that the compiler does not know: on x86 each takes one cycle, of
    scalars and of vectors, and no sequence of them is shorter.
    """
    operations = ["x = x + step", "x = x ^ pattern"] * (CHAIN_LENGTH // 2)
    body = ["<int32> step = ngroups + 12345", "<int32> pattern = m + 67890", "<int32> x = l0", "for round", *operations]
    # One work-item: a runtime that makes no vectors of them would run one after the other.
    return _kernel(
        "dependent_chain",
        ["{[round]: 0 <= round < m}"],
        [*body, "end", "data[g0, l0] = x"],
        ("data", "int32", "ngroups, 1"),
        ["m", "ngroups"],
        items=1,
    )


def _kernel(
    name: str,
    loops: Sequence[str],
    body: Sequence[str],
    array: tuple[str, str, str],
    sizes: Sequence[str],
    items: int = _ITEMS,
) -> lp.TranslationUnit:
    import loopy as lp
    import numpy as np

    import perflex.isl  # noqa: F401 - mends what loopy misses

    kernel = lp.make_kernel(
        [f"{{[g0, l0]: 0 <= g0 < ngroups and 0 <= l0 < {items}}}", *loops],
        "\n".join(["for g0, l0", *body, "end"]),
        [
            lp.GlobalArg(array[0], np.dtype(array[1]), array[2], is_input=True, is_output=True),
            lp.ValueArg(", ".join(sizes), np.int32),
        ],
        name=name,
        lang_version=(2018, 2),
        target=lp.PyOpenCLTarget(),
        seq_dependencies=True,
    )
    kernel = lp.assume(kernel, " and ".join(f"{size} >= 1" for size in sizes))
    kernel = lp.tag_inames(kernel, "g0:g.0, l0:l.0")
    return lp.prioritize_loops(kernel, "round, j") if "nrows" in sizes else kernel
