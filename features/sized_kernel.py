"""A kernel with its sizes: what is counted, built and timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any

import numpy as np

from perflex.errors import CalibrationError, MeasurementError, MissingSizeError
from perflex.features.scop.checks import is_whole


@dataclass(frozen=True)
class SizedKernel:
    """A kernel with its sizes: what is counted, built and timed.

    Attributes
    ----------
    kernel
        A loopy translation unit, what `annotate` returned for one, one of `source_kernel`, or a Scop.
    sizes
        Value of each size parameter: a whole number of any numeric type (16.0 is 16, and 16.5 is refused).
    label
        Which kernel and sizes, for messages and tables; unique among those that are gathered or timed together.
    group
        Name of the generator, or of the kernel where there is none.
    """

    kernel: Any
    sizes: Mapping[str, Any]
    label: str
    group: str = ""

    @property
    def translation_unit(self) -> Any:
        """What is built and run: the kernel without what its user stated, which changes only how it is counted.

        Raises
        ------
        MeasurementError
            The kernel is a Scop or one of Triton's, which can only be counted.
        """
        from perflex.features.scop.scop import Scop
        from perflex.features.tiles.tile_kernel import TileKernel

        if isinstance(self.kernel, TileKernel):
            msg = (
                f"perflex does not run Triton kernel {self.kernel.name!r}; give tune(measure=), or an autotuner's times"
            )
            raise MeasurementError(msg, kernel=self.label)
        if isinstance(self.kernel, Scop):
            msg = (
                f"kernel {self.kernel.name!r} is a description (Scop), which can be counted but not built or launched; "
                "give a loopy kernel or source code instead"
            )
            raise MeasurementError(msg, kernel=self.label)
        return getattr(self.kernel, "translation_unit", self.kernel)


def kernel_of(kernel: Any) -> Any:
    """Return the loopy kernel (or Scop) of a measurement kernel, or the argument itself."""
    return getattr(kernel, "kernel", kernel)


def kernel_name(kernel: Any) -> str:
    """Return by which name tables and messages know a kernel."""
    names = getattr(kernel, "name", None) or ",".join(sorted(getattr(kernel, "entrypoints", ())))
    return str(names or type(kernel).__name__)


def with_own_sizes(kernel: Any, sizes: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Return a measurement kernel's kernel, and its own sizes where none are given; others as they are."""
    # A measurement kernel; uipick is not imported to find that out.
    if hasattr(kernel, "generator"):
        return kernel.kernel, {**kernel.sizes, **sizes}
    return kernel, sizes


def sized_kernels(kernels: Sequence[Any]) -> list[SizedKernel]:
    """Return measurement kernels and pairs ``(kernel, sizes)`` alike, each with a unique label."""
    if not kernels:
        msg = "there are no kernels; generate some, e.g. with uipick.KernelCollection(...).generate_kernels(...)"
        raise CalibrationError(msg)
    rows: list[SizedKernel] = []
    taken: set[str] = set()
    for entry in kernels:
        if isinstance(entry, SizedKernel):
            row = entry
        elif hasattr(entry, "kernel") and hasattr(entry, "sizes"):
            row = SizedKernel(entry.kernel, entry.sizes, str(entry.name), str(entry.generator))
        else:
            if not (isinstance(entry, tuple) and len(entry) == 2 and hasattr(entry[1], "items")):
                msg = f"expected a measurement kernel or a pair (loopy kernel, sizes), got {type(entry).__name__}"
                raise CalibrationError(msg)
            kernel, sizes = entry
            if several := [name for name, value in sizes.items() if is_whole(value) and np.ndim(value)]:
                msg = f"size {several[0]} has several values; give a pair (kernel, sizes) for each"
                raise MissingSizeError(msg, parameters=tuple(several))
            name = kernel_name(kernel)
            shown = ", ".join(f"{key}={value}" for key, value in sizes.items())
            row = SizedKernel(kernel, sizes, f"{name}({shown})", name)
        # Tables and messages name a row by its label alone.
        label = next(
            name for name in chain([row.label], map(f"{row.label} #{{}}".format, count(2))) if name not in taken
        )
        taken.add(label)
        rows.append(replace(row, label=label))
    return rows
