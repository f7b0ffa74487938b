"""What a generator's kernel computes, as numpy says, and features that its docstring promises."""

from dataclasses import dataclass, field
from typing import Any

import loopy as lp
import numpy as np
from loopy.kernel.data import UnrollTag

UNTOUCHED = -77  # what output arrays hold before a kernel runs


@dataclass
class Truth:
    """Input arrays, the output array, features of single work-items, and how near results must come."""

    inputs: dict[str, np.ndarray]
    result: Any
    features: dict[str, float] = field(default_factory=dict)
    rtol: float = 0.0


def rolled(kernel):
    """Return a kernel without the unrolling that takes seconds to build and changes nothing of what it computes."""
    entry = kernel.default_entrypoint
    return (
        kernel.with_kernel(lp.untag_inames(entry, "k_inner", UnrollTag)) if "k_inner" in entry.all_inames() else kernel
    )


def places(rows, columns, lsize=(16, 16)):
    """Return the local ids of the work-items of a grid, axis 0 along columns."""
    j, i = np.indices((rows, columns))
    return i % lsize[0], j % lsize[1]
