"""Loads that remain when compilers keep values in registers, against code that a compiler has optimised."""

from __future__ import annotations

import loopy as lp
import numpy as np
import pytest

from oracles.nvrtc import loads_in_ptx, nvrtc_library
from oracles.oclgrind import needs_oclgrind, run_jobs
from perflex.features import Target, extract_scop, parse_feature

N = 256


def made(domains, code, arrays, *, tags=""):
    """A kernel with a work-item for each i."""
    kernel = lp.make_kernel(domains, code, [*arrays, ...], lang_version=(2018, 2), seq_dependencies=True)
    kernel = lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")
    kernel = lp.tag_inames(kernel, tags) if tags else kernel
    extra = " and m >= 1" if "m" in kernel.default_entrypoint.arg_dict else ""
    return lp.assume(kernel, f"n mod 32 = 0 and n >= 32{extra}")


def floats(**shapes):
    return [lp.GlobalArg(name, dtype=np.float32, shape=shape) for name, shape in shapes.items()]


# Loads of global memory that remain per work-item, and why.
KERNELS = {
    "the same element twice": (1, made("{[i]: 0<=i<n}", "y[i] = x[i]*x[i]", floats(x="n", y="n"))),
    "two statements": (
        2,
        made(
            "{[i]: 0<=i<n}",
            """
            y[i] = x[i] + w[i]  {id=a}
            z[i] = x[i] * w[i]  {id=b, dep=a}
            """,
            floats(x="n", y="n", z="n", w="n"),
        ),
    ),
    "what was stored": (
        1,
        made(
            "{[i]: 0<=i<n}",
            """
            y[i] = 3*x[i]      {id=a}
            z[i] = y[i] + x[i] {id=b, dep=a}
            """,
            floats(x="n", y="n", z="n"),
        ),
    ),
    "a store somewhere in the same array": (
        2,
        made(
            "[n, m] -> {[i]: 0<=i<n}",
            """
            y[i] = x[i, 0]
            x[i, m] = 2.0
            z[i] = x[i, 0]
            """,
            [*floats(x="n, m + 1", y="n", z="n"), lp.ValueArg("m", np.int32)],
        ),
    ),
    "unrolled neighbours": (
        6,
        made(
            ["{[i]: 0<=i<n}", "{[k]: 0<=k<4}"],
            "y[4*i + k] = x[4*i + k] + x[4*i + k + 1] + x[4*i + k + 2]",
            floats(x="4*n + 2", y="4*n"),
            tags="k:unr",
        ),
    ),
    "an unrolled filter with two outputs": (
        3 * 4 + 3 * 3,
        made(
            ["{[i]: 0<=i<n}", "{[u]: 0<=u<2}", "{[a, b]: 0<=a,b<3}"],
            "y[2*i + u] = sum([a, b], f[a, b] * x[a, 2*i + u + b])",
            floats(x="3, 2*n + 3", y="2*n", f="3, 3"),
            tags="u:unr,a:unr,b:unr",
        ),
    ),
    "a load that does not depend on the loop": (
        1 + 8,
        made(
            ["{[i]: 0<=i<n}", "{[j]: 0<=j<m}"],
            "y[i] = sum(j, x[i] * w[j])",
            floats(x="n", y="n", w="m"),
        ),
    ),
    "neighbours along a loop that is not unrolled": (
        3 * 8,
        made(
            ["{[i]: 0<=i<n}", "{[j]: 0<=j<m}"],
            "y[j, i] = x[j, i] + x[j + 1, i] + x[j + 2, i]",
            floats(x="m + 2, n", y="m, n"),
        ),
    ),
    "a store in the loop": (
        2 * 8,
        made(
            ["{[i]: 0<=i<n}", "{[j]: 0<=j<m}"],
            "x[j + 1, i] = x[j, i] + x[0, i]",
            floats(x="m + 1, n"),
        ),
    ),
}  # fmt: skip
SIZES = {"n": N, "m": 8}


def staged(before, after):
    """Loads of a tile in local memory around a barrier; each element of the tile has been stored by another one."""
    kernel = lp.make_kernel(
        "[n] -> {[g, l]: 0<=32*g<n and 0<=l<32}",
        f"""
        t[l] = x[32*g + l]        {{id=fill}}
        y[32*g + l] = {before}    {{id=first, dep=fill}}
        ... lbarrier              {{id=again, dep=first}}
        z[32*g + l] = {after}     {{id=last, dep=again}}
        """,
        [
            *floats(x="n", y="n", z="n", c="n"),
            lp.ValueArg("n", np.int32),
            lp.TemporaryVariable("t", np.float32, shape=(32,), address_space=lp.AddressSpace.LOCAL),
        ],
        lang_version=(2018, 2),
        seq_dependencies=False,
    )
    kernel = lp.assume(kernel, "n mod 32 = 0 and n >= 32")
    return lp.tag_inames(kernel, "g:g.0,l:l.0")


def counted(kernel, space):
    """Loads that all work-items execute."""
    scop = extract_scop(kernel)
    sizes = {name: SIZES[name] for name in scop.parameters}
    both = parse_feature(f"f_inst_ldst_{space}").value(scop, sizes, Target(1))
    stores = [
        access
        for statement in scop.statements
        for access in statement.accesses
        if access.direction == "store" and scop.array(access.array).space == space
    ]
    return both - (parse_feature(f"f_mem_access_{space}_store").value(scop, sizes, Target(1)) if stores else 0)


@pytest.mark.parametrize("name", KERNELS)
def test_loads_that_remain(name: str) -> None:
    wanted, kernel = KERNELS[name]
    assert counted(kernel, "global") == wanted * N


BARRIERS = {
    "local memory": (2, 1, staged("t[31 - l] * t[31 - l]", "t[31 - l]")),
    "arrays that are only loaded": (1, 2, staged("t[31 - l] * c[32*g + l]", "c[32*g + l]")),
    "arrays that are stored to": (1, 2, staged("t[31 - l]", "y[32*g + l]")),
}


STRAIGHT = [name for name, (_, kernel) in KERNELS.items() if "m" not in kernel.default_entrypoint.arg_dict]


@pytest.mark.skipif(nvrtc_library() is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc")
def test_nvidias_compiler_leaves_as_many_loads() -> None:
    for name in STRAIGHT:
        assert loads_in_ptx(cuda(KERNELS[name][1])) == {"global": KERNELS[name][0]}, name
    for name, (local, of_global, kernel) in BARRIERS.items():
        # Pointers that nothing else points to keep even what a local barrier could change: ours is more there.
        wanted = of_global - (name == "arrays that are stored to")
        assert loads_in_ptx(cuda(kernel)) == {"global": wanted, "shared": local}, name


def cuda(kernel):
    return lp.generate_code_v2(kernel.copy(target=lp.CudaTarget())).device_code()


# Oclgrind's compiler neither sorts sums of subscripts nor moves loads out of loops; it keeps values over barriers, too.
OTHERWISE = {
    "unrolled neighbours": 12,
    "a load that does not depend on the loop": 16,
    "arrays that are stored to": 1,
}


@needs_oclgrind
def test_executed_loads_of_optimised_code() -> None:
    both = {name: kernel for name, (*_, kernel) in (KERNELS | BARRIERS).items()}
    jobs = [(kernel, {name: SIZES[name] for name in extract_scop(kernel).parameters}) for kernel in both.values()]
    for (name, kernel), executed in zip(both.items(), run_jobs(jobs, []), strict=True):
        wanted = OTHERWISE[name] * N if name in OTHERWISE else counted(kernel, "global")
        assert executed.load("global").count == wanted, name
        assert executed.load("local").count == counted(kernel, "local"), name
