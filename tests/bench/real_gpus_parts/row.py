"""One timed configuration of a data set, as the readers of all folders give it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class MeasuredRow:
    """What ran where, and how long it took.

    Attributes
    ----------
    data
        "nvbench", "gpuperf", "sgemm", "neusight", "hub_convolution",
        "hub_pnpoly" or "simulated".
    gpu
        As in the column of the data.
    machine
        Name of the file of the machine.
    program
        What is left out as a whole, e.g. "matmul_tiled".
    case
        What variants compete for: same result, same size
        (e.g. "matmul n=1024"); choices are judged within (gpu, case).
    label
        Unique within a GPU: program, sizes, launch shape; the same for the
        same configuration on other GPUs.
    launches
        Kernel (loopy kernel or Scop), its sizes, and how often it is
        launched; nearly always one, launched once.
    sub_group_size
        Work-items of a sub-group (warp, wavefront).
    seconds
        Measured time of all launches together.
    warm
        Whether data may still lie in L2 (launched back to back).
    note
        Remark of the reader, e.g. "repeat".
    registers
        Registers per work-item where the data give them.
    host_code
        Whether the time includes host code: allocations, copies, the host's
        part of several launches.
    """

    data: str
    gpu: str
    machine: str
    program: str
    case: str
    label: str
    launches: tuple[tuple[Any, Mapping[str, int], int], ...]
    sub_group_size: int
    seconds: float
    warm: bool
    note: str = ""
    registers: int | None = None
    host_code: bool = False
