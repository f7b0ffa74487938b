"""Times of perflex's own kernels on a simulated GPU: each row names the tags of its measurement kernel."""

from __future__ import annotations

import csv
from functools import cache
from typing import TYPE_CHECKING

from uipick import ALL_GENERATORS, KernelCollection

from .rows import MeasuredRow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from uipick import MeasurementKernel

MACHINES = {"gpgpusim_20sm": "GPGPU-Sim-QV100-20SM", "gpgpusim_2sm": "GPGPU-Sim-QV100-2SM"}
# What the variants of a study have in common; all other kernels compete with none.
_STUDIES = {"study": "matmul", "study_fdiff": "finite differences"}


@cache
def kernel_of(tags: str) -> MeasurementKernel:
    """Return the one measurement kernel that the tags select."""
    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags.split())
    return kernel


def rows(folder: Path) -> Iterator[MeasuredRow]:
    """Yield the rows of ``simulated_gpu.csv``; notes are their roles, e.g. ``cal`` or ``study``."""
    # One kernel for all sizes of a variant, so that it is counted once.
    variants: dict[str, Any] = {}
    with (folder / "simulated_gpu.csv").open(newline="") as stream:
        for line in csv.DictReader(stream):
            kernel = kernel_of(line["tags"])
            if kernel.name != line["kernel"]:
                msg = f"the tags of {line['kernel']} select {kernel.name}"
                raise ValueError(msg)
            fixed = str({name: value for name, value in kernel.arguments.items() if name not in kernel.sizes})
            shared = variants.setdefault(f"{kernel.generator} {fixed}", kernel.kernel)
            study = _STUDIES.get(line["role"])
            sizes = ", ".join(f"{name}={value}" for name, value in kernel.sizes.items())
            yield MeasuredRow(
                data="simulated",
                gpu=line["device"],
                machine=MACHINES[line["device"]],
                program=line["generator"],
                case=f"{study} {sizes}" if study else kernel.name,
                label=kernel.name,
                launches=((shared, kernel.sizes, 1),),
                seconds=float(line["seconds"]),
                # Copying the inputs left them in L2.
                note=line["role"],
            )
