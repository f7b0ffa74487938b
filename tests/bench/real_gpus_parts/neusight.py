"""Element-wise operators of PyTorch on data-centre GPUs (the NeuSight data set); its other operators are left out.

Memory operations of 16 bytes are a loop ``q`` over four neighbours in the kernels here, which run anywhere; `rows`
gives their Scops, in which that loop is the dimension ``lane`` of a vector.
"""

from __future__ import annotations

import csv
import gzip
from functools import cache
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np

from perflex.features import extract_scop

from .rows import MeasuredRow
from .writing import in_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator
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


@cache
def elementwise(op: str) -> Any:
    """Return an operator on ``4*n`` elements: work-groups of 128, four neighbours to each work-item."""
    expression = ELEMENTWISE[op]
    inputs = [name for name in ("a", "b") if f"{name}[" in expression]
    scalar = [lp.ValueArg("s", np.float32)] if expression.endswith(" s") else []
    kernel = lp.make_kernel(
        "{[i,q]: 0<=i<n and 0<=q<4}",
        f"for i, q\nout[4*i + q] = {expression.replace('E', '4*i + q')}\nend",
        [*(lp.GlobalArg(name, np.float32, shape="4*n") for name in (*inputs, "out")), *scalar, ...],
        name=f"elementwise_{op}",
        target=lp.PyOpenCLTarget(),
        lang_version=(2018, 2),
        seq_dependencies=True,
    )
    kernel = lp.split_iname(lp.assume(kernel, "n >= 1"), "i", 128, outer_tag="g.0", inner_tag="l.0")
    return lp.tag_inames(kernel, "q:unr")


@cache
def kernel_of(op: str) -> Scop:
    """Return an operator as it ran."""
    return in_vectors(extract_scop(elementwise(op)), {"q"})


def programs() -> dict[str, Any]:
    """Return the loopy kernels, which run anywhere, by name."""
    return {op: elementwise(op) for op in ELEMENTWISE}


def rows(folder: Path) -> Iterator[MeasuredRow]:
    """Yield the rows of ``vector_ops.csv.gz``."""
    seen: dict[tuple[str, str], int] = {}
    with gzip.open(folder / "vector_ops.csv.gz", "rt", newline="") as stream:
        for line in csv.DictReader(stream):
            op, gpu = line["op"], line["device"]
            if op not in ELEMENTWISE:
                continue
            height, width, launches = int(line["rows"]), int(line["cols"]), int(line["launches"])
            shape = f"{op} {height}x{width}"
            number = seen[gpu, shape] = seen.get((gpu, shape), 0) + 1
            yield MeasuredRow(
                data="neusight",
                gpu=gpu,
                machine=MACHINES[gpu],
                program=op,
                case=shape,
                label=shape if number == 1 else f"{shape} #{number}",
                launches=((kernel_of(op), {"n": -(-height * width // (4 * launches))}, launches),),
                # The shortest of 25 calls: data that fit stay in L2.
                seconds=float(line["time_s"]),
            )
