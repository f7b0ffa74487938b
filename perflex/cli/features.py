"""``perflex features``: what a kernel does, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.arguments import ArgumentError, described, read_series
from perflex.cli.completion import complete_device
from perflex.cli.json_output import picked, print_series
from perflex.cli.kernel_files import load_kernel
from perflex.cli.lines import LinesOption, lines_content, require_source, show_lines
from perflex.cli.options import SERIES, JsonOption, KernelArgument, MachineOption, RegistersOption
from perflex.cli.terminal import Terminal, sizes_text, terminal_of
from perflex.features.target import resolve_target, using_code, using_machine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.compiled.program import CompiledProgram
    from perflex.features import CountedFeature, SourceKernel

_FOR_MACHINE = "machine"


def features(
    context: typer.Context,
    kernel: KernelArgument,
    sizes: Annotated[list[str] | None, typer.Argument(help=f"{SERIES}; without sizes, counts are symbolic.")] = None,
    *,
    identifier: Annotated[
        list[str] | None, typer.Option("-f", "--feature", help="Count this feature only; may be repeated.")
    ] = None,
    sub_group_size: Annotated[
        int | None, typer.Option(min=1, help="Work-items per sub-group.  [default: the machine's, else 32]")
    ] = None,
    machine: MachineOption = None,
    registers: RegistersOption = None,
    code: Annotated[
        str,
        typer.Option(
            autocompletion=complete_device,
            help="Build the kernel to read its code: for a device here, or 'machine': for the GPU of --machine.",
        ),
    ] = "",
    lines: LinesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Count operations, accesses with strides and reuse, barriers and launches of a kernel."""
    from perflex.features import count_features, parse_feature

    terminal, loaded, series = terminal_of(context), load_kernel(kernel), read_series(sizes or ())
    if lines and (identifier or code):
        what = "all operations and accesses by line, without features and code"
        raise ArgumentError(f"--lines counts {what}; leave -f and --code out")
    if lines:
        _show_lines(terminal, require_source(loaded, kernel), series, as_json=as_json)
        return
    wanted = identifier or ()
    if not code and machine is not None and any(parse_feature(one).family.needs == "code" for one in wanted):
        code = _FOR_MACHINE
    found = []
    for given in series:
        scop = described(loaded, given)
        built = built_code(loaded, given, code, machine) if code else None
        with using_machine(machine, registers=registers), using_code(built):
            items = resolve_target(sub_group_size).sub_group_size
            # None leaves counts symbolic; without parameters they are numbers anyway.
            at = given if given or not scop.parameters else None
            found.append(count_features(scop, at, identifiers=wanted, sub_group_size=items))
    if as_json:
        content = [{entry.identifier: _content(entry) for entry in counted} for counted in found]
        print_series(series, content, "features")
        return
    for given, counted in zip(series, found, strict=True):
        at_sizes = f" at {sizes_text(given)}" if given else f", sizes {', '.join(scop.parameters) or 'none'}"
        terminal.show(f"kernel {scop.name}{at_sizes}; sub-groups of {items} work-items")
        terminal.show_result(counted.table(), listed=True)


def _show_lines(
    terminal: Terminal, source: SourceKernel, series: Sequence[Mapping[str, int]], *, as_json: bool
) -> None:
    from perflex.analysis.source_lines import source_lines

    described(source, series[0])
    found = [source_lines(source, given) for given in series]
    if as_json:
        print_series(series, list(map(lines_content, found)), "lines")
        return
    for given, lines in zip(series, found, strict=True):
        terminal.show(f"kernel {source.name} at {sizes_text(given)}; counts of all work-items together")
        show_lines(terminal, lines)


def built_code(kernel: Any, sizes: Mapping[str, int], code: str, machine: str | None) -> tuple[CompiledProgram, ...]:
    """Return what the kernel is compiled to, for a device of this machine or the machine that is named."""
    from perflex.timing.results import MeasurementFailure

    if code == _FOR_MACHINE:
        from perflex.timing.machine_code import machine_code

        if machine is None:
            raise ArgumentError("--code machine compiles for --machine, which is not given; give --machine NAME")
        (found,) = machine_code([(kernel, sizes)], machine)
    else:
        from perflex.features.sized_kernel import sized_kernels
        from perflex.timing.compiled_code import compiled_code
        from perflex.timing.measuring import chosen_device

        (found,) = compiled_code(sized_kernels([(kernel, sizes)]), chosen_device(code))
    if isinstance(found, MeasurementFailure):
        raise found.error
    return found


def _content(entry: CountedFeature) -> dict[str, object]:
    value = entry.value
    if value is not None and value.is_integer():
        value = int(value)
    return {"value": value, **picked(entry, "expression", "unit", "exact")}
