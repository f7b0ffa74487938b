"""Values of counted features for one kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.features.target import DEFAULT_SUB_GROUP_SIZE, Target, resolve_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from perflex.machines.machine import Machine


def kernel_of(kernel: Any) -> Any:
    """Return the loopy kernel (or Scop) of a measurement kernel, or the argument itself."""
    return getattr(kernel, "kernel", kernel)


def with_own_sizes(kernel: Any, sizes: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Return a measurement kernel's kernel, and its own sizes where none are given; others as they are."""
    # A measurement kernel; uipick is not imported to find that out.
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
    names = list(features)
    return feature_values(names, kernel, sizes, target_of(names, sub_group_size, machine))


def feature_values(features: Iterable[str], kernel: Any, sizes: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Return the values of counted features for one kernel on a target; see `kernel_feature_values`."""
    from perflex.features.counting.counts import counts_of
    from perflex.features.families.registry import parse_feature
    from perflex.features.from_loopy.extract import extract_scop

    scop = extract_scop(kernel_of(kernel))
    checked = scop.checked(sizes)
    values = {name: parse_feature(name).value(scop, checked, target) for name in features}
    counts_of(scop).keep()
    return values


def target_of(
    features: Iterable[str],
    sub_group_size: int = DEFAULT_SUB_GROUP_SIZE,
    machine: str | Path | Machine | None = None,
    *,
    otherwise: str | Machine = "",
) -> Target:
    """Return the target that features are counted for; arguments and errors as `resolve_target`.

    A machine called `otherwise` is looked up only if a feature needs one: few devices have a machine file.
    """
    from perflex.features.families.machine import needs_machine
    from perflex.features.families.registry import parse_feature

    if otherwise and not any(needs_machine(parse_feature(name)) for name in features):
        otherwise = ""
    return resolve_target(sub_group_size, machine, otherwise=otherwise)
