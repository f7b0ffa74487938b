"""``perflex features``: what a kernel does, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.completion import complete_device
from perflex.cli.json_output import picked, print_json
from perflex.cli.lines import LinesOption, lines_content, require_source, show_lines
from perflex.cli.options import JsonOption, KernelArgument, MachineOption, RegistersOption
from perflex.cli.terminal import sizes_text, terminal_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.cli.terminal import Terminal
    from perflex.compiled.program import CompiledProgram
    from perflex.features import CountedFeature

_FOR_MACHINE = "machine"


def features(
    context: typer.Context,
    kernel: KernelArgument,
    sizes: Annotated[list[str] | None, typer.Argument(help="name=value; without sizes, counts are symbolic.")] = None,
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
            help="Build the kernel to read its code: for a device here, or 'machine': for --machine, a GPU of NVIDIA.",
        ),
    ] = "",
    lines: LinesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Count operations, accesses with strides and reuse, barriers and launches of a kernel."""
    from perflex.cli.arguments import ArgumentError, read_sizes, require_known_sizes
    from perflex.cli.kernel_files import load_kernel
    from perflex.features import count_features, extract_scop
    from perflex.features.target import resolve_target, using_code, using_machine

    loaded = load_kernel(kernel)
    given = read_sizes(sizes or ())
    if lines and (identifier or code):
        msg = "--lines counts all operations and accesses by line, without features and code; leave -f and --code out"
        raise ArgumentError(msg)
    if lines:
        _show_lines(terminal_of(context), loaded, kernel, given, as_json=as_json)
        return
    scop = extract_scop(loaded, given)
    require_known_sizes(given, [scop, loaded], given)
    if not code and machine is not None and _needs_code(identifier or ()):
        code = _FOR_MACHINE
    found = _code(loaded, given, code, machine) if code else None
    with using_machine(machine, registers=registers), using_code(found):
        items = resolve_target(sub_group_size).sub_group_size
        counted = count_features(
            scop,
            # None leaves counts symbolic; without parameters they are numbers anyway.
            given if given or not scop.parameters else None,
            identifiers=identifier or (),
            sub_group_size=items,
        )
    if as_json:
        print_json({entry.identifier: _content(entry) for entry in counted})
        return
    terminal = terminal_of(context)
    shown = ", ".join(f"{name}={value}" for name, value in given.items())
    heading = f"kernel {scop.name}" + (f" at {shown}" if shown else f", sizes {', '.join(scop.parameters) or 'none'}")
    terminal.show(f"{heading}; sub-groups of {items} work-items")
    terminal.show_result(counted.table(), listed=True)


def _show_lines(terminal: Terminal, kernel: Any, word: str, sizes: Mapping[str, int], *, as_json: bool) -> None:
    from perflex.analysis.source_lines import source_lines
    from perflex.cli.arguments import require_known_sizes

    source = require_source(kernel, word)
    require_known_sizes(sizes, [source], sizes)
    found = source_lines(source, sizes)
    if as_json:
        print_json(lines_content(found))
        return
    terminal.show(f"kernel {source.name} at {sizes_text(sizes)}; counts of all work-items together")
    show_lines(terminal, found)


def _needs_code(identifiers: Sequence[str]) -> bool:
    from perflex.features import parse_feature

    return any(parse_feature(one).family.needs == "code" for one in identifiers)


def _code(kernel: Any, sizes: Mapping[str, int], code: str, machine: str | None) -> tuple[CompiledProgram, ...]:
    from perflex.cli.arguments import ArgumentError
    from perflex.features.sized_kernel import sized_kernels

    if code != _FOR_MACHINE:
        from perflex.timing.compiled_code import compiled_code
        from perflex.timing.measuring import chosen_device
        from perflex.timing.results import MeasurementFailure

        (found,) = compiled_code(sized_kernels([(kernel, sizes)]), chosen_device(code))
        if isinstance(found, MeasurementFailure):
            raise found.error
        return found
    if machine is None:
        raise ArgumentError("--code machine compiles for --machine, which is not given; give --machine NAME")
    from perflex.machines.files import load_machine
    from perflex.timing.launch.cuda_code import code_for_machine

    (job,) = sized_kernels([(kernel, sizes)])
    return code_for_machine(job, load_machine(machine))


def _content(entry: CountedFeature) -> dict[str, object]:
    value = entry.value
    if value is not None and value.is_integer():
        value = int(value)
    return {"value": value, **picked(entry, "expression", "unit", "exact")}
