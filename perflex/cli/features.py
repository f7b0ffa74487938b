"""``perflex features``: everything that is counted in a kernel."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.completion import complete_device
from perflex.cli.json_output import picked, print_json
from perflex.cli.options import CyclesName, CyclesOption, JsonOption, MachineOption, RegistersOption
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.compiled.in_core.source import CycleSource
    from perflex.compiled.program import CompiledProgram
    from perflex.features import CountedFeature


class Branches(StrEnum):
    """Which branches of a condition count."""

    domain = "domain"
    both = "both"


class Granularity(StrEnum):
    """What one count is."""

    paper = "paper"
    work_item = "work-item"


def features(  # noqa: PLR0913 - one argument per option
    context: typer.Context,
    kernel: Annotated[str, typer.Argument(help="KERNEL.py:function; the function returns a loopy kernel.")],
    sizes: Annotated[list[str] | None, typer.Argument(help="name=value; without sizes, counts are symbolic.")] = None,
    *,
    identifier: Annotated[
        list[str] | None, typer.Option("-f", "--feature", help="Count this feature only; may be repeated.")
    ] = None,
    sub_group_size: Annotated[int, typer.Option("--sub-group-size", min=1, help="Work-items per sub-group.")] = 32,
    per: Annotated[
        Granularity,
        typer.Option(
            "--per", help="paper: on-chip work and uniform accesses per sub-group; work-item: executed instances."
        ),
    ] = Granularity.paper,
    branches: Annotated[
        Branches | None,
        typer.Option(
            "--branches",
            help="domain: each branch where its affine condition holds (default); both: all branches everywhere.",
        ),
    ] = None,
    subscripts: Annotated[bool, typer.Option("--subscripts", help="Count integer arithmetic in subscripts.")] = False,
    trip_count: Annotated[
        list[str] | None, typer.Option("--trip-count", help="LOOP=AVERAGE of a data-dependent loop; may be repeated.")
    ] = None,
    access: Annotated[
        list[str] | None,
        typer.Option("--access", help="'x[idx[i]]=4*i' or '...=anywhere' for an indirect access; may be repeated."),
    ] = None,
    machine: MachineOption = None,
    registers: RegistersOption = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            autocompletion=complete_device,
            help="Build the kernel for this device and also read the machine code.",
        ),
    ] = None,
    code: Annotated[
        bool, typer.Option("--code", help="Compile for --machine, an NVIDIA GPU, and also read the machine code.")
    ] = False,
    cycles: CyclesOption = CyclesName.PORTS,
    as_json: JsonOption = False,
) -> None:
    """Count operations, accesses with strides and reuse, barriers and launches of a kernel."""
    from perflex.cli.arguments import load_kernel, read_pairs, read_sizes
    from perflex.cli.footprint_table import HEADING, footprint_lines
    from perflex.features import CountedFootprint, annotate, count_features, extract_scop
    from perflex.features.target import using_code, using_machine

    loaded = load_kernel(kernel)
    if branches or subscripts or trip_count or access:
        loaded = annotate(
            loaded,
            branches=branches and branches.value,
            subscripts=subscripts or None,
            trip_counts=read_pairs(trip_count or (), "--trip-count", "j=7.5"),
            accesses=read_pairs(access or (), "--access", "x[idx[i]]=4*i"),
        )
    scop = extract_scop(loaded)
    given = read_sizes(sizes or ())
    terminal_of(context).warn_of_unknown_sizes(given, scop.parameters)
    wanted = code or (machine is not None and _needs_code(identifier or ()))
    found = _code(loaded, given, device, machine if wanted else None, asked=code)
    with using_machine(machine, registers=registers), using_code(found, _cycle_source(cycles, found)):
        counted = count_features(
            scop,
            # None leaves counts symbolic; without parameters they are numbers anyway.
            given if given or not scop.parameters else None,
            identifiers=identifier or (),
            sub_group_size=sub_group_size,
            per_work_item=per is Granularity.work_item,
        )
    if as_json:
        print_json({entry.identifier: _content(entry) for entry in counted})
        return
    terminal = terminal_of(context)
    shown = ", ".join(f"{name}={value}" for name, value in given.items())
    heading = f"kernel {scop.name}" + (f" at {shown}" if shown else f", sizes {', '.join(scop.parameters) or 'none'}")
    terminal.show(f"{heading}; sub-groups of {sub_group_size} work-items")
    footprints = [entry for entry in counted if isinstance(entry, CountedFootprint)]
    for entry in counted:
        if isinstance(entry, CountedFootprint):
            continue
        terminal.show(entry.identifier, style="bold")
        terminal.show(f"    {_line(entry, given)}")
        if entry.note:
            terminal.show(f"    {entry.note}", style="dim")
    if footprints:
        terminal.show(HEADING, style="bold")
        with_sizes = bool(given) or not scop.parameters
        terminal.show(*footprint_lines(footprints, with_sizes=with_sizes, width=terminal.width))


def _cycle_source(cycles: CyclesName, code: tuple[CompiledProgram, ...] | None) -> CycleSource | None:
    from perflex.cli.arguments import ArgumentError
    from perflex.compiled.in_core.source import cycle_source

    if cycles is not CyclesName.PORTS and (code is None or any(one.gpu is not None for one in code)):
        msg = f"--cycles {cycles.value} is about compiled code of a CPU; give --device NAME of a CPU, too"
        raise ArgumentError(msg)
    return cycle_source(cycles.value)


def _needs_code(identifiers: Sequence[str]) -> bool:
    from perflex.features import parse_feature
    from perflex.features.families.code import needs_code

    return any(needs_code(parse_feature(one)) for one in identifiers)


def _code(
    kernel: Any, sizes: Mapping[str, int], device: str | None, machine: str | None, *, asked: bool
) -> tuple[CompiledProgram, ...] | None:
    from perflex.cli.arguments import ArgumentError
    from perflex.features.sized_kernel import sized_kernels

    if asked and (machine is None or device is not None):
        msg = "--code compiles for a machine without using a device; give --machine NAME and no --device"
        raise ArgumentError(msg)
    if device is not None:
        from perflex.timing.compiled_code import compiled_code
        from perflex.timing.measuring import chosen_device
        from perflex.timing.results import MeasurementFailure

        (found,) = compiled_code(sized_kernels([(kernel, sizes)]), chosen_device(device))
        if isinstance(found, MeasurementFailure):
            raise found.error
        return found
    if machine is None:
        return None
    from perflex.machines.lookup import load_machine
    from perflex.timing.launch.cuda_code import code_for_machine

    (job,) = sized_kernels([(kernel, sizes)])
    return code_for_machine(job, load_machine(machine))


def _content(entry: CountedFeature) -> dict[str, object]:
    value = entry.value
    if value is not None and value.is_integer():
        value = int(value)
    return {"value": value, **picked(entry, "expression", "unit", "exact")}


def _line(entry: CountedFeature, sizes: Mapping[str, int]) -> str:
    text = entry.expression
    if entry.value is not None and (sizes or entry.expression != f"{entry.value:g}"):
        # 17 significant digits tell any two doubles apart.
        text += f" = {entry.value:.17g}"
    return f"{text}  ({entry.unit}, {entry.certainty})"
