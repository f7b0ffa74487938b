"""The kernels whose best rate is a ceiling, and those that parameters are calibrated with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from uipick import MeasurementKernel

__all__ = ["Quantity", "copy_sizes", "kernels_of", "quantities", "with_count"]


@dataclass(frozen=True)
class Quantity:
    """A rate of the device.

    Attributes
    ----------
    name, unit
        For the table; the unit is that of the calibrated parameter's rate.
    parameter, feature
        The parameter of the model, and what it multiplies.
    configurations
        Filter tags of the kernels among which the fastest is the ceiling.
    calibration
        Filter tags of the measurement kernels that the parameter is calibrated with; none if there is no parameter.
    count
        The size argument that makes a kernel longer, and of what its values are multiples.
    amount
        What a kernel does, in the unit without "/s", from its arguments.
    """

    name: str
    unit: str
    parameter: str
    feature: str
    configurations: tuple[tuple[str, ...], ...]
    calibration: tuple[str, ...]
    count: tuple[str, int]
    amount: Callable[[Mapping[str, Any]], float]
    lengths_s: tuple[float, ...] = field(default=(2e-3, 4e-3, 6e-3))

    @property
    def expression(self) -> str:
        """The model that is calibrated."""
        return f"p_launch * f_sync_kernel_launch + p_group * f_thread_groups + {self.parameter} * {self.feature}"


def _madds(arguments: Mapping[str, Any]) -> float:
    return float(arguments["nelements"] * arguments["nvars"] * arguments["m"])


def _madd(dtype: str) -> Quantity:
    short = dtype.removeprefix("float")
    shapes = ((16, 16), (32, 8), (32, 32))
    base = ("flops_madd_pattern", f"dtype:{dtype}", "groups_fit:True")
    return Quantity(
        name=f"multiply-adds fp{short}",
        unit="op/s",
        parameter=f"p_f{short}madd",
        feature=f"f_op_{dtype}_madd",
        configurations=tuple(
            (*base, f"lsize_0:{x}", f"lsize_1:{y}", f"lid_stride_1:{x}", f"nvars:{variables}", "m:1024")
            for x, y in shapes
            for variables in (16, 32)
        ),
        calibration=(*base, "lsize_0:16", "lsize_1:16", "lid_stride_1:16", "nvars:32", "m:768"),
        count=("nelements", 1024),
        amount=_madds,
    )


def _local_bytes(arguments: Mapping[str, Any]) -> float:
    return 4.0 * arguments["ngroups"] * arguments["lsize_0"] * arguments["m"]


_LOCAL_LOADS = Quantity(
    name="local memory loads",
    unit="B/s",
    parameter="p_f32local",
    feature="f_mem_access_local_float32_load",
    configurations=tuple(
        ("lmem_load", "dtype:float32", "lid_stride_0:1", f"lsize_0:{size}", f"chains:{chains}", "m:1024")
        for size in (128, 256, 512)
        for chains in (2, 4, 8)
    ),
    calibration=("lmem_load", "dtype:float32", "lid_stride_0:1", "lsize_0:256", "chains:4", "m:768"),
    count=("ngroups", 1),
    amount=_local_bytes,
)


def _l2_loads(compute_units: int, set_bytes: int) -> Quantity:
    """Return loads of a set that all work-groups go through in step, and that no first cache holds."""
    base = ("gmem_working_set", "dtype:float64", "lid_stride_0:1", "shared:True", f"working_set:{set_bytes // 8}")
    return Quantity(
        name="L2 loads",
        unit="B/s",
        parameter="",
        feature="",
        configurations=tuple(
            (*base, f"lsize_0:{size}", f"chains:{chains}", f"ngroups:{compute_units * groups}")
            for size, groups in ((1024, 1), (512, 2), (1024, 2))
            for chains in (4, 8, 16)
        ),
        calibration=(),
        count=("m", 1),
        amount=lambda a: 8.0 * a["working_set"] * a["ngroups"] * a["m"],
    )


def quantities(compute_units: int, *, on_gpu: bool) -> tuple[Quantity, ...]:
    """Return the rates to find, beside that of copies."""
    l2 = _l2_loads(compute_units, 2**21 if on_gpu else 2**18)
    every = _madd("float32"), _madd("float64"), _LOCAL_LOADS, l2
    # Other devices are there to try this program only.
    return every if on_gpu else tuple(replace(one, configurations=one.configurations[1::3]) for one in every)


def copy_sizes(most_bytes: int) -> list[int]:
    """Return elements of arrays to copy: powers of two from 256 KiB to `most_bytes`."""
    return [2**power for power in range(16, 31) if 4 * 2**power <= most_bytes]


def kernels_of(tags: tuple[str, ...], **sizes: int) -> MeasurementKernel:
    """Return the one kernel that tags and sizes select."""
    from uipick import ALL_GENERATORS, KernelCollection

    every = [*tags, *(f"{name}:{value}" for name, value in sizes.items())]
    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(every)
    return kernel


def with_count(quantity: Quantity, tags: tuple[str, ...], wanted: float) -> MeasurementKernel:
    """Return a kernel with about the count that is wanted, a multiple of what is allowed."""
    name, step = quantity.count
    return kernels_of(tags, **{name: max(1, round(wanted / step)) * step})
