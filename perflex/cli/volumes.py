"""``perflex volumes``: cache and DRAM traffic of a kernel on a machine, and what limits it."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.columns import paged_table
from perflex.cli.completion import complete_machine
from perflex.cli.json_output import picked, print_json
from perflex.cli.options import JsonOption, RegistersOption, SourceLoadsOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.analysis.volumes.limiters import Limits
    from perflex.features import Scop
    from perflex.machines.machine import Machine


class Variant(StrEnum):
    """Whose rules."""

    paper2022 = "paper2022"
    current = "current"


class Caches(StrEnum):
    """What a run finds in the L2 cache."""

    warm = "warm"
    cold = "cold"


def volumes(  # noqa: PLR0913 - one parameter per option
    context: typer.Context,
    kernel: Annotated[str, typer.Argument(help="KERNEL.py:function; the function returns a loopy kernel.")],
    sizes: Annotated[list[str] | None, typer.Argument(help="name=value of each size.")] = None,
    *,
    machine: Annotated[
        str,
        typer.Option("--machine", autocompletion=complete_machine, help="A name of 'perflex machine list', or a file."),
    ],
    variant: Annotated[
        Variant, typer.Option("--variant", help="Rules of the 2022 paper, or the current ones.")
    ] = Variant.current,
    granule: Annotated[
        int | None, typer.Option("--granule", min=1, help="Bytes per DRAM transfer; by default the machine's.")
    ] = None,
    registers: RegistersOption = None,
    caches: Annotated[
        Caches | None,
        typer.Option(
            "--caches",
            help="L2 at the start of a run: what the same run before has left (warm, the default), or empty (cold).",
        ),
    ] = None,
    source_loads: SourceLoadsOption = False,
    series: Annotated[
        str | None,
        typer.Option("--series", help="NAME[,NAME]=FIRST:LAST:STEP, sizes to vary; a table of volumes per update."),
    ] = None,
    points: Annotated[
        int | None,
        typer.Option(
            "--points", min=1, help="With --series: product of all sizes, which gives the size that is left out."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the data volumes of a kernel between registers, L1, L2 and DRAM, per launch, without running it."""
    from perflex.cli.arguments import load_kernel, read_sizes
    from perflex.cli.volume_series import print_series, series_sizes
    from perflex.features import extract_scop
    from perflex.features.gpu.estimate import estimate_volumes
    from perflex.machines.lookup import load_machine

    where = load_machine(machine)
    scop = extract_scop(load_kernel(kernel))
    given = read_sizes(sizes or ())

    def estimate(chosen: Mapping[str, int]) -> Any:
        return estimate_volumes(
            scop,
            scop.checked(chosen),
            where,
            variant=variant.value,
            granule=granule,
            registers=registers,
            caches=None if caches is None else caches.value,
            register_reuse=not source_loads,
        )

    terminal = terminal_of(context)
    terminal.warn_of_unknown_sizes(given, scop.parameters)
    if series is not None:
        chosen = series_sizes(series, points, given, scop.parameters)
        rows = [(one, feature_values(estimate(one))) for one in chosen]
        print_series(terminal, scop, where, rows, registers=registers, as_json=as_json)
        return
    found = estimate(given)
    values = feature_values(found)
    # Volumes need fewer facts of a machine than limits do, so they are shown without them, too.
    limits, unknown = _limits({**values, "f_waves": found.waves}, scop, given, where)
    if as_json:
        asked = {"kernel": scop.name, "machine": where.name, "variant": variant.value, "caches": found.caches or None}
        parts = picked(found, "arrays", "total")
        print_json({**asked, **values, **_limit_content(limits, unknown), **parts})
        return
    at = ", ".join(f"{name}={value}" for name, value in given.items()) or "no sizes"
    title = f"kernel {scop.name} at {at} on {where.name}, rules: {variant.value}"
    lines = [title, *_CACHES_LINES[found.caches], *_component_lines(found, terminal.width), *_value_lines(values)]
    lines += _limit_lines(limits) if limits is not None else [f"limiter: not known: {unknown}"]
    terminal.show(*lines)


_CACHES_LINES = {
    "warm": ["caches: warm, L2 holds what the same run just before has left there (--caches cold: nothing)"],
    "cold": ["caches: cold, L2 holds nothing when the run begins, and stores are written back at its end"],
    "": [],
}


def feature_values(estimate: Any) -> dict[str, float]:
    """Return the features that an estimate gives, by identifier."""
    from perflex.features.families.machine import VOLUME_FEATURES

    values = estimate.features()
    return {name: float(values[name]) for name in VOLUME_FEATURES}


def _parts(volumes: Any) -> dict[str, float]:
    """Return what volumes are made of: component names and numbers, in bytes or wavefronts."""
    return {name: float(value) for name, value in asdict(volumes).items()}


def _limits(
    values: Mapping[str, float], scop: Scop, sizes: Mapping[str, int], machine: Machine
) -> tuple[Limits | None, str]:
    from perflex.analysis.volumes.limiters import limits_of
    from perflex.errors import MachineError

    try:
        return limits_of(values, scop, sizes, machine), ""
    except MachineError as error:
        # The volumes hold without it.
        return None, error.message


def _limit_content(limits: Limits | None, unknown: str) -> dict[str, object]:
    if limits is None:
        return {"limiter": None, "limiter_unknown": unknown}
    return picked(limits, "limiter", "seconds", "uncounted")


def _component_lines(estimate: Any, width: int | None) -> list[str]:
    arrays = {name: _parts(volumes) for name, volumes in estimate.arrays.items()}
    arrays["(all)"] = _parts(estimate.total)
    names = list(dict.fromkeys(name for parts in arrays.values() for name in parts))
    table = [["", *arrays]]
    table += [[name, *(f"{parts[name]:.6g}" if name in parts else "-" for parts in arrays.values())] for name in names]
    return paged_table(table, width, indent="  ")


def _value_lines(values: Mapping[str, float]) -> list[str]:
    from perflex.features import parse_feature

    return [f"{name} = {value:.6g} {parse_feature(name).unit}".removesuffix(" 1") for name, value in values.items()]


def _limit_lines(limits: Limits) -> list[str]:
    lines = [f"  {name}: {1e3 * seconds:.4g} ms" for name, seconds in limits.seconds.items()]
    if limits.uncounted:
        lines.append(f"  not in the arithmetic: {', '.join(limits.uncounted)}")
    return [*lines, f"limiter: {limits.limiter}, {1e3 * limits.predicted_s:.4g} ms"]
