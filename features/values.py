"""Values of counted features for one kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.machines.choice import using_machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from perflex.machines import Machine

__all__ = ["DEFAULT_SUB_GROUP_SIZE", "kernel_feature_values", "kernel_of", "with_own_sizes"]

# Work-items per sub-group where no device says otherwise: NVIDIA's warp, on which the paper counts.
DEFAULT_SUB_GROUP_SIZE = 32


def kernel_of(kernel: Any) -> Any:
    """Return the loopy kernel (or Scop) of a measurement kernel, or the argument itself."""
    return getattr(kernel, "kernel", kernel)


def with_own_sizes(kernel: Any, sizes: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Return a measurement kernel's kernel, and its own sizes where none are given; others as they are."""
    if hasattr(kernel, "generator"):
        return kernel.kernel, {**kernel.sizes, **sizes}
    return kernel, sizes


def kernel_feature_values(
    features: Iterable[str],
    kernel: Any,
    sizes: Mapping[str, Any],
    sub_group_size: int = DEFAULT_SUB_GROUP_SIZE,
    *,
    machine: str | Path | Machine | None = None,
) -> dict[str, Any]:
    """Return the values of counted features for one kernel.

    Parameters
    ----------
    features
        Identifiers of counted features (not wall times).
    kernel
        A loopy translation unit, a measurement kernel, or a Scop.
    sizes
        An integer per size parameter, or integer arrays of one shape.
    sub_group_size
        Work-items per sub-group.
    machine
        For features that need one: a machine, its name, or its file; by default that of `using_machine`.

    Returns
    -------
    dict
        A number per feature, or an array where sizes are arrays; zero where the kernel has nothing of it.

    Raises
    ------
    UnknownFeatureError
        An identifier names no feature.
    MissingSizeError
        A size parameter has no value, or the kernel is not valid for it.
    UnsupportedKernelError
        The kernel cannot be described exactly.
    MachineError
        A feature needs a machine and there is none, or it lacks a fact.
    """
    from perflex.features.counting.counts import counts_of
    from perflex.features.families.registry import parse_feature
    from perflex.features.from_loopy.extract import extract_scop

    scop = extract_scop(kernel_of(kernel))
    checked = scop.checked(sizes)
    with using_machine(machine):
        values = {name: parse_feature(name).value(scop, checked, sub_group_size) for name in features}
    counts_of(scop).keep()
    return values
