"""``perflex volumes``, ``perflex layers``, ``perflex block``: traffic of caches and DRAM on GPUs and CPUs, blocks."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.json_output import picked, print_json
from perflex.cli.options import (
    CachesOption,
    JsonOption,
    KernelArgument,
    NeededMachineOption,
    RegistersOption,
    SeriesArgument,
    SizesArgument,
)
from perflex.cli.terminal import sizes_text, terminal_of, time_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.cli.terminal import Terminal
    from perflex.features import Scop
    from perflex.features.cpu.ecm_result import EcmEstimate


def volumes(
    context: typer.Context,
    kernel: KernelArgument,
    sizes: SizesArgument = None,
    *,
    machine: NeededMachineOption,
    registers: RegistersOption = None,
    caches: CachesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the data volumes of a kernel between registers, L1, L2 and DRAM, per launch, without running it."""
    from perflex.analysis.roofline import limits_of
    from perflex.cli.arguments import read_sizes, require_known_sizes
    from perflex.cli.kernel_files import load_work_items
    from perflex.features import extract_scop
    from perflex.features.gpu.volume_estimate import estimate_volumes
    from perflex.machines.files import load_machine

    where = load_machine(machine)
    given = read_sizes(sizes or ())
    loaded = load_work_items(kernel)
    scop = extract_scop(loaded, given)

    require_known_sizes(given, [scop, loaded], given)
    terminal = terminal_of(context)
    found = estimate_volumes(scop, scop.checked(given), where, registers=registers, caches=caches)
    values = found.features()
    limits = limits_of(found, scop, given, where)
    if as_json:
        asked = {"kernel": scop.name, "machine": where.name, "caches": found.caches or None}
        limited = picked(limits, "limiter", "seconds", "missing", "uncounted")
        print_json({**asked, **values, **limited, **picked(found, "arrays", "total")})
        return
    at = sizes_text(given)
    unlimited = ["registers: not given (--registers), so that they limit no work-groups"] if registers is None else []
    heading = f"kernel {scop.name} at {at} on {where.name}"
    terminal.show(heading, *_CACHES_LINES[found.caches], *unlimited, *_certainty_lines(scop))
    terminal.show_result(found.table().turned(), indent=2)
    terminal.show(*_value_lines(values))
    terminal.show_result(limits.table())
    if limits.uncounted:
        terminal.show(f"not in the arithmetic: {', '.join(limits.uncounted)}")
    of = " (of the limits that are known)" if limits.missing else ""
    terminal.show(f"limiter: {limits.limiter}, {time_text(limits.predicted_s)}{of}")


def _certainty_lines(scop: Scop) -> list[str]:
    """Return what volumes rest on that the code does not say."""
    from perflex.features.counting.touched import certainty_of_all

    found = certainty_of_all(scop)
    bounds = ["upper bounds: data decide what is executed under some conditions, and all of it counts"]
    stated = ["as stated: trip counts or subscripts that data decide"]
    return [*(bounds if found.bound else ()), *(stated if found.stated else ())]


_CACHES_LINES = {
    "warm": ["caches: warm, L2 holds what the same run just before has left there (--caches cold: nothing)"],
    "cold": ["caches: cold, L2 holds nothing when a launch begins, and stores are written back at its end"],
    "": [],
}


def _value_lines(values: Mapping[str, float]) -> list[str]:
    from perflex.features import parse_feature

    return [
        f"{name}: not known" if isnan(value) else f"{name} = {value:.6g} {parse_feature(name).unit}".removesuffix(" 1")
        for name, value in values.items()
    ]


# What JSON tells of a layer condition, and of a conflict.
_CONDITION = ("level", "loop", "inequality", "largest", "symbol", "met", "needed_bytes", "cache_bytes")
_CONFLICT = ("level", "array", "loop", "stride_bytes", "lines", "sets", "ways", "lost", "more", "padded_bytes")


def layers(
    context: typer.Context,
    kernel: KernelArgument,
    sizes: SeriesArgument = None,
    *,
    machine: NeededMachineOption,
    cores: Annotated[int, typer.Option(min=1, help="Active cores, which share caches.")] = 1,
    block: Annotated[
        list[str] | None,
        typer.Option(help="LOOP=SIZE: block a loop; lid0, lid1 are the work-group's axes; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="PNG file for the picture of a series of sizes.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show layer conditions, the sizes that meet them, and the bytes per iteration between a CPU's cache levels."""
    from perflex.cli.arguments import ArgumentError, read_series, read_sizes, require_known_sizes
    from perflex.cli.kernel_files import load_work_items
    from perflex.features import extract_scop
    from perflex.features.cpu.ecm_estimate import estimate_ecm
    from perflex.machines.files import load_machine

    terminal, where = terminal_of(context), load_machine(machine)
    members, blocks = read_series(sizes or ()), read_sizes(block or ())
    given = members[0]
    loaded = load_work_items(kernel)
    scop = extract_scop(loaded, given)
    require_known_sizes(given, [scop, loaded], given)

    def estimate(chosen: Mapping[str, int]) -> EcmEstimate:
        own = {name: value for name, value in chosen.items() if name in scop.parameters}
        return estimate_ecm(scop, own, where, cores=cores, blocks=blocks)

    varying = [name for name in given if any(member[name] != given[name] for member in members)]
    if out is not None:
        if not varying or any(member[name] != member[varying[0]] for member in members for name in varying):
            raise ArgumentError("--out is for the picture of one series of sizes; give it, such as n=128:1024:64")
        _check_picture(out)
    if varying:
        rows = [({name: member[name] for name in varying}, estimate(member)) for member in members]
        _show_series(terminal, rows, out, as_json=as_json)
        return
    found = estimate(given)
    if as_json:
        print_json({**_content(found), "sizes": given, "blocks": blocks})
    else:
        _show(terminal, found, given)
        terminal.show(*_certainty_lines(scop))


def _check_picture(out: Path) -> None:
    from perflex.cli.arguments import ArgumentError, require_writable_file

    if out.suffix.lower() != ".png":
        raise ArgumentError(f"the picture is a PNG file; name it with --out {out.with_suffix('.png')}")
    require_writable_file(out)


def _show_series(
    terminal: Terminal, rows: list[tuple[dict[str, int], EcmEstimate]], out: Path | None, *, as_json: bool
) -> None:
    sizes, first = rows[0]
    if out is not None:
        from perflex.analysis.volume_series import draw_layers

        # Those that vary together have one value.
        name = next(iter(sizes))
        draw_layers([(each[name], found) for each, found in rows], name, out)
    if as_json:
        content = [{**each, "volumes": _volumes(found)} for each, found in rows]
        print_json({**picked(first, "kernel", "machine"), "series": content})
        return
    from perflex.features.cpu.ecm_result import series_table

    terminal.show(f"kernel {first.heading}")
    terminal.show_result(series_table(rows), indent=2)
    if out is not None:
        terminal.show(f"picture: {out}")


def _volumes(found: EcmEstimate) -> dict[str, float]:
    return {level.name: float(level.bytes) for level in found.levels}


def _content(found: EcmEstimate) -> dict[str, Any]:
    return {
        **picked(found, "kernel", "machine", "cores"),
        "iterations": float(found.iterations),
        "varying": list(found.varying),
        "conditions": [picked(entry, *_CONDITION) for entry in found.conditions],
        "volumes": _volumes(found),
        "loads": {level.name: float(level.load_bytes) for level in found.levels},
        "stores": {level.name: float(level.store_bytes) for level in found.levels},
        "cycles": {level.name: None if level.cycles is None else float(level.cycles) for level in found.levels},
        "memory_stream": found.memory_stream,
        "conflicts": [{**picked(entry, *_CONFLICT), "text": str(entry)} for entry in found.conflicts],
        "approximated": list(found.approximated),
    }


def _show(terminal: Terminal, found: EcmEstimate, sizes: Mapping[str, int]) -> None:
    terminal.show(f"kernel {found.heading}, at {sizes_text(sizes)}")
    terminal.show_result(found.condition_table(), indent=2)
    if any("lid" in entry.inequality for entry in found.conditions):
        terminal.show("  lid0, lid1, ...: work-items of a work-group along axis 0, 1, ...")
    if found.varying:
        loops = ", ".join(found.varying)
        terminal.show(f"  loops whose range depends on others ({loops}): conditions for the longest, bytes as means")
    terminal.show(f"{found.iterations:.6g} iterations")
    terminal.show_result(found.table(), indent=2)
    lines = [f"  bandwidth of the memory: {found.memory_stream}"] if found.memory_stream else []
    if found.conflicts:
        lines.append("conflict misses, counted in the bytes above but not in the layer conditions")
    lines += [f"  {conflict}" for conflict in found.conflicts]
    if found.approximated:
        lines.append("not followed exactly")
    terminal.show(*lines, *(f"  {note}" for note in found.approximated))


def block(
    context: typer.Context,
    kernel: KernelArgument,
    sizes: SizesArgument = None,
    *,
    machine: NeededMachineOption,
    criterion: Annotated[
        list[str] | None, typer.Option(help="LEVEL=row or LEVEL=plane: what a cache must hold; may be repeated.")
    ] = None,
    cores: Annotated[int | None, typer.Option(min=1, help="Active cores; by default all.")] = None,
    lanes: Annotated[int, typer.Option(min=1, help="Make rows multiples of this number of points.")] = 1,
    tiles_per_core: Annotated[int, typer.Option(min=1, help="Minimum number of tiles per core.")] = 8,
    as_json: JsonOption = False,
) -> None:
    """Choose block sizes of a stencil so that caches hold rows or planes of a block, without running it."""
    from perflex.analysis.block_choice import choose_block
    from perflex.cli.arguments import read_pairs, read_sizes, require_known_sizes
    from perflex.cli.kernel_files import load_work_items

    loaded, given = load_work_items(kernel), read_sizes(sizes or ())
    require_known_sizes(given, [loaded], given)
    found = choose_block(
        loaded,
        given,
        machine,
        read_pairs(criterion or (), "--criterion", "L3=plane") or None,
        cores=cores,
        lanes=lanes,
        tiles_per_core=tiles_per_core,
    )
    if as_json:
        print_json(found)
        return
    x, y, z = found.block
    tiles = f"{found.tiles} tiles, {found.tiles_per_core} per core at most"
    tiles += f" (imbalance {100 * (found.imbalance - 1):.0f} %)"
    lines = [
        f"block: {x} x {y} x {z} points (x, y, z)",
        f"{tiles}, at most {100 * found.extra_loads:.0f} % more loads because of halos",
    ]
    lines += [
        f"{held.level} holds each {held.reuse}: {held.needed_bytes} B of {held.available_bytes} B per core"
        for held in found.conditions
    ]
    terminal_of(context).show(*lines)
