"""Element-wise operators, softmax and layer norm of PyTorch on data-centre GPUs (the NeuSight data set).

Memory operations of 16 bytes are loops ``q`` over four neighbours in the kernels here, which run anywhere; `rows` gives
their Scops, in which such a loop is the dimension ``lane`` of a vector. What shuffles do within a sub-group goes
through local memory here, since loopy has no shuffles: the Scops have no barriers there.
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import islpy as isl
import loopy as lp
import numpy as np

from perflex.features import extract_scop

from .row import MeasuredRow
from .vectors import in_vectors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from perflex.features import Scop

MACHINES = {"P4": "P4", "P100": "P100", "V100": "V100", "T4": "T4", "A100 40GB": "A100-40GB"}
# Elements of the output from those of the inputs a and b, or from a and a scalar s.
ELEMENTWISE = {
    "add": "a[E] + b[E]",
    "mul": "a[E] * b[E]",
    "div": "a[E] / b[E]",
    "pow": "a[E] ** b[E]",
    "addu": "a[E] + s",
    "mulu": "a[E] * s",
    # PyTorch divides by a scalar by multiplying with its reciprocal.
    "divu": "a[E] * s",
    "powu": "a[E] ** s",
    "relu": "fmax(a[E], 0.0f)",
    "gelu": "0.5f * a[E] * (1 + erf(0.70710678f * a[E]))",
    "tanh": "tanh(a[E])",
}
_WARP = 32
_SHUFFLES = 5
_BARRIERS_PER_STEP = 2
_LEAST = "-3e38f"


def _kernel(domain: str, around: str, body: str, name: str, arrays: dict[str, str], variables: list[Any]) -> Any:
    arguments = [lp.GlobalArg(each, np.float32, shape=shape) for each, shape in arrays.items()]
    return lp.make_kernel(
        domain,
        f"for {around}\n{body}\nend",
        [*arguments, *variables, ...],
        name=name,
        target=lp.PyOpenCLTarget(),
        lang_version=(2018, 2),
        seq_dependencies=True,
        # One work-item of a row stores its mean: a guard, which loopy does not look at.
        silenced_warnings=["write_race*"],
    )


@cache
def elementwise(op: str) -> Any:
    """Return an operator on ``4*n`` elements: work-groups of 128, four neighbours to each work-item."""
    expression = ELEMENTWISE[op]
    inputs = [name for name in ("a", "b") if f"{name}[" in expression]
    body = f"out[4*i + q] = {expression.replace('E', '4*i + q')}"
    scalar = [lp.ValueArg("s", np.float32)] if expression.endswith(" s") else []
    arrays = dict.fromkeys([*inputs, "out"], "4*n")
    kernel = _kernel("{[i,q]: 0<=i<n and 0<=q<4}", "i, q", body, f"elementwise_{op}", arrays, scalar)
    kernel = lp.assume(kernel, "n >= 1")
    kernel = lp.split_iname(kernel, "i", 128, outer_tag="g.0", inner_tag="l.0")
    return lp.tag_inames(kernel, "q:unr")


def _reduction(names: tuple[str, ...], combine: str, warp: str, lane: str, warps: int) -> str:
    """Return loopy instructions that reduce private variables, so that every work-item has the result.

    In steps that double, work-items combine their values with those of the lane, then of the sub-group, so many further
    on; `combine` has these as ``o_<name>``.
    """
    lines = []
    for distance in [1 << step for step in range(_SHUFFLES)]:
        lines += _step(names, combine, f"{_WARP}*{warp} + {lane}", f"{_WARP}*{warp} + ({lane} + {distance}) % {_WARP}")
    distance = 1
    while distance < warps:
        further = f"{_WARP}*(({warp} + {distance}) % {warps}) + {lane}"
        lines += _step(names, combine, f"{_WARP}*{warp} + {lane}", further)
        distance *= 2
    return "\n".join(lines)


def _step(names: tuple[str, ...], combine: str, place: str, further: str) -> list[str]:
    stores = [f"w_{name}[{place}] = {name}" for name in names]
    loads = [f"o_{name} = w_{name}[{further}]" for name in names]
    return [*stores, "... lbarrier", *loads, combine, "... lbarrier"]


def _variables(names: Iterable[str], items: int) -> list[Any]:
    """Return the variables that `_reduction` uses, for work-groups of so many work-items."""
    found: list[Any] = []
    for name in names:
        local = lp.AddressSpace.LOCAL
        found.append(lp.TemporaryVariable(f"w_{name}", np.float32, shape=(items,), address_space=local))
        found += [lp.TemporaryVariable(one, np.float32, shape=()) for one in (name, f"o_{name}")]
    return found


@cache
def softmax_warp() -> Any:
    """Return softmax of ``rows`` rows of ``cols`` elements, 1024 at most: a row to a sub-group, kept in registers."""
    body = f"""
    x[s0] = {_LEAST}
    x[s1] = a[4*g + warp, 32*s1 + u] {{if=32*s1 + u < cols}}
    m = {_LEAST}
    m = fmax(m, x[s2])
    {_reduction(("m",), "m = fmax(m, o_m)", "warp", "u", 1)}
    t = 0
    x[s3] = exp(x[s3] - m)
    t = t + x[s3]
    {_reduction(("t",), "t = t + o_t", "warp", "u", 1)}
    out[4*g + warp, 32*s4 + u] = x[s4]/t {{if=32*s4 + u < cols}}
    """
    domain = "{[g,warp,u,s0,s1,s2,s3,s4]: 0<=4*g+warp<rows and 0<=warp<4 and 0<=u<32 and 0<=s0,s1,s2,s3,s4<32}"
    variables = [
        lp.ValueArg("rows, cols", np.int32),
        lp.TemporaryVariable("x", np.float32, shape=(32,)),
        *_variables("mt", 128),
    ]
    kernel = _kernel(domain, "g, warp, u", body, "softmax_warp", dict.fromkeys(["a", "out"], "rows, cols"), variables)
    kernel = lp.assume(kernel, isl.BasicSet("[rows, cols] -> { : rows >= 1 and 1 <= cols <= 1024 }"))
    kernel = lp.tag_inames(kernel, "g:g.0, warp:l.1, u:l.0")
    return lp.tag_inames(kernel, "s0:unr, s1:unr, s2:unr, s3:unr, s4:unr")


@cache
def softmax_block(items: int) -> Any:
    """Return softmax of ``rows`` rows of ``4*quads`` elements: a row to a work-group, which reads it three times."""
    warps = items // _WARP
    body = f"""
    m = {_LEAST}
    m = fmax(m, a[g, 4*({items}*i0 + u) + q0])
    {_reduction(("m",), "m = fmax(m, o_m)", "(u//32)", "(u%32)", warps)}
    t = 0
    t = t + exp(a[g, 4*({items}*i1 + u) + q1] - m)
    {_reduction(("t",), "t = t + o_t", "(u//32)", "(u%32)", warps)}
    out[g, 4*({items}*i2 + u) + q2] = exp(a[g, 4*({items}*i2 + u) + q2] - m)/t
    """
    loops = " and ".join(f"0<=i{p} and {items}*i{p} + u < quads and 0<=q{p}<4" for p in range(3))
    domain = f"[rows, quads] -> {{[g,u,i0,q0,i1,q1,i2,q2]: 0<=g<rows and 0<=u<{items} and {loops}}}"
    variables = [lp.ValueArg("rows, quads", np.int32), *_variables("mt", items)]
    kernel = _kernel(domain, "g, u", body, "softmax_block", dict.fromkeys(["a", "out"], "rows, 4*quads"), variables)
    # Rows shorter than a work-group would leave work-items out that take part in the barriers.
    kernel = lp.assume(kernel, isl.BasicSet(f"[rows, quads] -> {{ : rows >= 1 and quads >= {items} }}"))
    return lp.tag_inames(kernel, "g:g.0, u:l.0, q0:unr, q1:unr, q2:unr")


@cache
def layer_norm() -> Any:
    """Return layer norm of ``rows`` rows of ``4*quads`` elements: a row to a work-group of 32 by 4, read twice.

    Mean ``m`` and squared deviation ``v`` of ``c`` elements are updated element by element, and combined as in Chan,
    Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances (1979).
    """
    combine = """n_m = o_m - m
    n_c = c + o_c
    m = (c*m + o_c*o_m)/n_c
    v = v + o_v + n_m*n_m*c*o_c/n_c
    c = n_c"""
    place = "4*(128*i0 + 32*y + u) + q0", "4*(128*i1 + 32*y + u) + q1"
    body = f"""
    m = 0
    v = 0
    c = 0
    for i0, q0
        d = a[g, {place[0]}] - m
        c = c + 1
        m = m + d/c
        v = v + d*(a[g, {place[0]}] - m)
    end
    {_reduction(("m", "v", "c"), combine, "y", "u", 4)}
    r = rsqrt(v/c + 1e-5f)
    out[g, {place[1]}] = (a[g, {place[1]}] - m)*r*gamma[{place[1]}] + beta[{place[1]}]
    mean[g] = m {{if=32*y + u < 1}}
    scale[g] = r {{if=32*y + u < 1}}
    """
    loops = " and ".join(f"0<=i{p} and 128*i{p} + 32*y + u < quads and 0<=q{p}<4" for p in range(2))
    domain = f"[rows, quads] -> {{[g,y,u,i0,q0,i1,q1]: 0<=g<rows and 0<=y<4 and 0<=u<32 and {loops}}}"
    plain = [lp.TemporaryVariable(name, np.float32, shape=()) for name in ("d", "r", "n_m", "n_c")]
    variables = [lp.ValueArg("rows, quads", np.int32), *plain, *_variables("mvc", 128)]
    arrays = dict.fromkeys(["a", "out"], "rows, 4*quads") | dict.fromkeys(["gamma", "beta"], "4*quads")
    arrays |= dict.fromkeys(["mean", "scale"], "rows")
    kernel = _kernel(domain, "g, y, u", body, "layer_norm", arrays, variables)
    kernel = lp.assume(kernel, isl.BasicSet("[rows, quads] -> { : rows >= 1 and quads >= 128 }"))
    return lp.tag_inames(kernel, "g:g.0, y:l.1, u:l.0, q0:unr, q1:unr")


def as_measured(kernel: Any, *, barriers_from: int = 0) -> Scop:
    """Return the Scop with loops ``q``, ``q0``, ... as lanes of vectors, and without the first barriers."""
    scop = in_vectors(extract_scop(kernel), ("q", "q0", "q1", "q2"))
    return replace(scop, barriers=scop.barriers[barriers_from:])


@cache
def kernel_of(op: str, items: int) -> Scop:
    """Return an operator as it ran, with work-groups of so many work-items where there are several."""
    if op in ELEMENTWISE:
        return as_measured(elementwise(op))
    if op == "layer_norm":
        return as_measured(layer_norm(), barriers_from=_BARRIERS_PER_STEP * _SHUFFLES)
    if items == _WARP:
        return as_measured(softmax_warp(), barriers_from=2 * _BARRIERS_PER_STEP * _SHUFFLES)
    scop = as_measured(softmax_block(items))
    per_reduction = len(scop.barriers) // 2
    shuffles = _BARRIERS_PER_STEP * _SHUFFLES
    kept = [one for place, one in enumerate(scop.barriers) if place % per_reduction >= shuffles]
    return replace(scop, barriers=tuple(kept))


def programs() -> dict[str, Any]:
    """Return the loopy kernels, which run anywhere, by name."""
    found = {op: elementwise(op) for op in ELEMENTWISE}
    blocks = {f"softmax_block_{items}": softmax_block(items) for items in (256, 512)}
    return {**found, "softmax_warp": softmax_warp(), **blocks, "layer_norm": layer_norm()}


def rows(folder: Path) -> Iterator[MeasuredRow]:
    """Yield the rows of ``vector_ops.csv.gz``; notes are ``train`` or ``test``, the authors' split."""
    seen: dict[tuple[str, str], int] = {}
    with gzip.open(folder / "vector_ops.csv.gz", "rt", newline="") as stream:
        for line in csv.DictReader(stream):
            op, gpu = line["op"], line["device"]
            height, width = int(line["rows"]), int(line["cols"])
            launches = int(line["launches"])
            # The grid covers a part of the rows: the call was split, in how many launches is not recorded.
            if op == "softmax" and line["variant"] == "warp" and 4 * int(line["grid_x"]) < height:
                continue
            if op in ELEMENTWISE:
                sizes = {"n": -(-height * width // (4 * launches))}
            elif line["variant"] == "warp":
                sizes = {"rows": height, "cols": width}
            else:
                sizes = {"rows": height, "quads": -(-width // 4)}
            shape = f"{op} {height}x{width}"
            number = seen[gpu, shape] = seen.get((gpu, shape), 0) + 1
            yield MeasuredRow(
                data="neusight",
                gpu=gpu,
                machine=MACHINES[gpu],
                program=op,
                case=shape,
                label=shape if number == 1 else f"{shape} #{number}",
                launches=((kernel_of(op, int(line["block_x"])), sizes, launches),),
                sub_group_size=32,
                seconds=float(line["time_s"]),
                # The shortest of 25 calls: data that fit stay in L2.
                warm=True,
                note=line["set"],
            )
