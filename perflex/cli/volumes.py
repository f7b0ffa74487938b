"""``perflex volumes``, ``perflex layers``, ``perflex block``: traffic of caches and DRAM on GPUs and CPUs, blocks."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.arguments import ArgumentError, described, read_pairs, read_series, read_sizes, require_known_sizes
from perflex.cli.json_output import picked, print_json, print_series
from perflex.cli.kernel_files import load_work_items
from perflex.cli.options import (
    CachesOption,
    JsonOption,
    KernelArgument,
    NeededMachineOption,
    RegistersOption,
    SeriesArgument,
    SizesArgument,
)
from perflex.cli.terminal import Terminal, sizes_text, terminal_of
from perflex.file_io import require_writable
from perflex.machines.files import load_machine
from perflex.tables import time_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.analysis.roofline import Limits
    from perflex.features import Scop
    from perflex.features.cpu.ecm_result import EcmEstimate
    from perflex.features.gpu.volume_result import Volumes


def volumes(
    context: typer.Context,
    kernel: KernelArgument,
    sizes: SeriesArgument = None,
    *,
    machine: NeededMachineOption,
    registers: RegistersOption = None,
    caches: CachesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the data volumes of a kernel between registers, L1, L2 and DRAM, per launch, without running it."""
    from perflex.analysis.roofline import limits_of
    from perflex.features.gpu.volume_estimate import estimate_volumes

    where, series, loaded = load_machine(machine), read_series(sizes or ()), load_work_items(kernel)
    found = []
    for given in series:
        scop = described(loaded, given)
        estimate = estimate_volumes(scop, scop.checked(given), where, registers=registers, caches=caches)
        found.append((scop, estimate, limits_of(estimate, scop, given, where)))
    if as_json:
        print_series(series, [_volume_content(estimate, limits) for _, estimate, limits in found])
        return
    terminal = terminal_of(context)
    for given, (scop, estimate, limits) in zip(series, found, strict=True):
        terminal.show(f"kernel {scop.name} at {sizes_text(given)} on {where.name}", _CACHES[estimate.caches])
        if registers is None:
            terminal.show("registers: not given (--registers), so that they limit no work-groups")
        terminal.show(*_certainty_lines(scop))
        _show_volumes(terminal, estimate, limits)


def _volume_content(found: Volumes, limits: Limits) -> dict[str, Any]:
    return {
        **picked(found, "kernel", "machine", "caches"),
        **found.features(),
        **picked(limits, "limiter", "seconds", "missing", "uncounted"),
        **picked(found, "arrays", "total"),
    }


def _show_volumes(terminal: Terminal, found: Volumes, limits: Limits) -> None:
    from perflex.features import parse_feature

    terminal.show_result(found.table().turned(), indent=2)
    for name, value in found.features().items():
        amount = f" = {value:.6g} {parse_feature(name).unit}".removesuffix(" 1")
        terminal.show(f"{name}{': not known' if isnan(value) else amount}")
    terminal.show_result(limits.table())
    if limits.uncounted:
        terminal.show(f"not in the arithmetic: {', '.join(limits.uncounted)}")
    of = " (of the limits that are known)" if limits.missing else ""
    terminal.show(f"limiter: {limits.limiter}, {time_text(limits.predicted_s)}{of}")


_CACHES = {
    "warm": "caches: warm, L2 holds what the same run just before has left there (--caches cold: nothing)",
    "cold": "caches: cold, L2 holds nothing when a launch begins, and stores are written back at its end",
}


def _certainty_lines(scop: Scop) -> list[str]:
    """Return what volumes rest on that the code does not say."""
    from perflex.features.counting.touched import certainty_of_all

    found = certainty_of_all(scop)
    bounds = ["upper bounds: data decide what is executed under some conditions, and all of it counts"]
    stated = ["as stated: trip counts or subscripts that data decide"]
    return [*(bounds if found.bound else ()), *(stated if found.stated else ())]


# What JSON tells of a layer condition, of a conflict, and of each level: the attribute.
_CONDITION = ("level", "loop", "inequality", "largest", "symbol", "met", "needed_bytes", "cache_bytes")
_CONFLICT = ("level", "array", "loop", "stride_bytes", "lines", "sets", "ways", "lost", "more", "padded_bytes")
_LEVEL = {"volumes": "bytes", "loads": "load_bytes", "stores": "store_bytes", "cycles": "cycles"}


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
    from perflex.features.cpu.ecm_estimate import estimate_ecm

    terminal, where = terminal_of(context), load_machine(machine)
    series, blocks, loaded = read_series(sizes or ()), read_sizes(block or ()), load_work_items(kernel)
    varying = [name for name in series[0] if len({member[name] for member in series}) > 1]
    if out is not None:
        if not varying or any(member[name] != member[varying[0]] for member in series for name in varying):
            raise ArgumentError("--out is for the picture of one series of sizes; give it, such as n=128:1024:64")
        if out.suffix.lower() != ".png":
            raise ArgumentError(f"the picture is a PNG file; name it with --out {out.with_suffix('.png')}")
        require_writable(out)
    found = []
    for given in series:
        scop = described(loaded, given)
        own = {name: value for name, value in given.items() if name in scop.parameters}
        found.append(estimate_ecm(scop, own, where, cores=cores, blocks=blocks))
    if varying:
        rows = [({name: member[name] for name in varying}, one) for member, one in zip(series, found, strict=True)]
        _show_series(terminal, rows, out, as_json=as_json)
    elif as_json:
        print_json({**_layer_content(found[0]), "sizes": given, "blocks": blocks})
    else:
        _show_layers(terminal, found[0], given)
        terminal.show(*_certainty_lines(scop))


def _show_series(
    terminal: Terminal, rows: Sequence[tuple[Mapping[str, int], EcmEstimate]], out: Path | None, *, as_json: bool
) -> None:
    from perflex.analysis.volume_series import draw_layers
    from perflex.features.cpu.ecm_result import series_table

    sizes, first = rows[0]
    if out is not None:
        # Those that vary together have one value.
        name = next(iter(sizes))
        draw_layers([(each[name], found) for each, found in rows], name, out)
    if as_json:
        content = [{**each, "volumes": _by_level(found, "bytes")} for each, found in rows]
        print_json({**picked(first, "kernel", "machine"), "series": content})
        return
    terminal.show(f"kernel {first.heading}")
    terminal.show_result(series_table(rows), indent=2)
    if out is not None:
        terminal.show(f"picture: {out}")


def _by_level(found: EcmEstimate, name: str) -> dict[str, Any]:
    return {level.name: getattr(level, name) for level in found.levels}


def _layer_content(found: EcmEstimate) -> dict[str, Any]:
    return {
        **picked(found, "kernel", "machine", "cores", "iterations", "varying", "memory_stream", "approximated"),
        "conditions": [picked(entry, *_CONDITION) for entry in found.conditions],
        **{key: _by_level(found, name) for key, name in _LEVEL.items()},
        "conflicts": [{**picked(entry, *_CONFLICT), "text": str(entry)} for entry in found.conflicts],
    }


def _show_layers(terminal: Terminal, found: EcmEstimate, sizes: Mapping[str, int]) -> None:
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
    else:
        terminal_of(context).show(str(found))
