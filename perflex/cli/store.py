"""``perflex store``: what was measured, taken out, checked and thinned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.columns import Column
from perflex.cli.json_output import picked, print_json
from perflex.cli.options import JsonOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of
from perflex.store.records import numbers_in_words

if TYPE_CHECKING:
    from perflex.store.overview import KernelOverview
    from perflex.store.removal import Removal
    from perflex.store.verify import Verdict

store = typer.Typer(
    no_args_is_help=True,
    help="List, export, check and prune the stored measurements.",
    epilog="Example: perflex store list",
)

_StoreOption = Annotated[
    Path | None, typer.Option("--store", help="The store's file; by default PERFLEX_STORE's, or the cache directory's.")
]


@store.command(
    "list", short_help="List the measurements of each kernel and device.", epilog="Example: perflex store list --json"
)
def list_(
    context: typer.Context,
    *,
    place: _StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what was measured of each kernel on each device; the median is that of the undisturbed samples."""
    from perflex.cli.store_place import existing_store
    from perflex.store.overview import counts_size, overview

    terminal = terminal_of(context)
    kept = existing_store(place)
    kernels, counts = overview(kept), counts_size(kept)
    aside = kept.set_asides()
    if as_json:
        facts = {
            "path": kept.path,
            "bytes": kept.path.stat().st_size,
            "kernels": [kernel.as_dict() for kernel in kernels],
            "counts": counts,
            "set_aside": aside,
        }
        print_json(facts)
        return
    for device in dict.fromkeys(kernel.device for kernel in kernels):
        rows = [_row(kernel) for kernel in kernels if kernel.device == device]
        terminal.show_table(_COLUMNS, rows, title=device or "(unnamed device)")
    samples, failures = sum(k.samples for k in kernels), sum(k.failures for k in kernels)
    tables = f"{counts.kernels} kernels, {counts.scops} descriptions, {counts.counts} portions"
    lines = [
        f"{kept.path}: {numbers_in_words(samples, failures)}, {kept.path.stat().st_size / 1e6:.1f} MB",
        f"counts, made again when needed: {tables}, {counts.text_bytes / 1e6:.1f} MB",
    ]
    lines += [f"damaged and set aside: {path}; delete it when you need nothing of it" for path in aside]
    terminal.show(*lines)


_COLUMNS = (
    Column("kernel", left=True, wraps=True),
    Column("samples"),
    Column("disturbed"),
    Column("failures"),
    Column("first", spare=1),
    Column("last", spare=2),
    Column("median"),
)


def _row(kernel: KernelOverview) -> tuple[str, ...]:
    from perflex.store.overview import utc

    median = "" if kernel.median_s is None else f"{1e3 * kernel.median_s:.4g} ms"
    numbers = map(str, (kernel.samples, kernel.disturbed, kernel.failures))
    return (kernel.label, *numbers, utc(kernel.first)[:10], utc(kernel.last)[:10], median)


@store.command(
    short_help="Write every sample and failure, a line each.", epilog="Example: perflex store export --out samples.csv"
)
def export(
    context: typer.Context,
    *,
    place: _StoreOption = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="File to write: .csv, or .jsonl for JSON lines. Else CSV.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON lines, whatever the file is called.")] = False,
) -> None:
    """Write every sample and failure with all that is known of it, a line each.

    Of a sample this is also whether it was disturbed, and what the system reported meanwhile:

    elapsed_s, processor_s, waited_s, stolen_s, others_s (seconds), switches, throttled.
    """
    from perflex.cli.arguments import ArgumentError, require_writable_file
    from perflex.cli.store_place import existing_store
    from perflex.file_io import writing
    from perflex.store.overview import write_rows

    if out is not None:
        require_writable_file(out)
    kept = existing_store(place)
    # JSON lines by the option or by the suffix; standard output has none.
    lines_of_json = as_json or (out is not None and out.suffix in {".json", ".jsonl", ".ndjson"})
    if out is None:
        write_rows(kept, typer.get_text_stream("stdout"), as_json=lines_of_json)
        return
    try:
        with writing(out) as stream:
            rows = write_rows(kept, stream, as_json=lines_of_json)
    except OSError as error:
        msg = f"cannot write {out}: {error.strerror or error}; name another file with --out"
        raise ArgumentError(msg, path=out) from error
    terminal = terminal_of(context)
    terminal.remarks.print(f"{rows} samples and failures", markup=False)
    terminal.show_paths(out)


@store.command(epilog="Example: perflex store verify --mend")
def verify(
    context: typer.Context,
    *,
    place: _StoreOption = None,
    mend: Annotated[
        bool, typer.Option("--mend", help="Set a damaged file aside and begin a new one with what can be read of it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check that the store is sound; the exit code is 0 when it is."""
    from perflex.cli.store_place import existing_store, verified

    terminal = terminal_of(context)
    kept = existing_store(place)
    verdict = verified(kept)
    # Mending is asked for, never done by the way: the damaged file is evidence.
    if verdict.problems and mend:
        if not as_json:
            terminal.show(_unsound(kept.path, verdict))
        with terminal.warnings_shown():
            kept.set_aside(verdict.problems[0])
        verdict = verified(kept)
    if as_json:
        numbers = picked(verdict, "samples", "failures", "nameless", "problems")
        print_json({"path": kept.path, "sound": not verdict.problems, **numbers, "set_aside": kept.set_asides()})
        if verdict.problems:
            raise typer.Exit(1)
        return
    if verdict.problems:
        terminal.show(_unsound(kept.path, verdict))
        advice = "'perflex store verify --mend' begins a new file with every row that is whole, and keeps this one"
        terminal.remarks.print(advice, style="red", markup=False, soft_wrap=True)
        raise typer.Exit(1)
    sound = f"{kept.path} is sound: {numbers_in_words(verdict.samples, verdict.failures, verdict.nameless)}"
    terminal.show(sound)


def _unsound(path: Path, verdict: Verdict) -> str:
    lines = [f"{path} is damaged: {numbers_in_words(verdict.samples, verdict.failures)} can be read in order"]
    return "\n".join([*lines, *(f"    {problem}" for problem in verdict.problems)])


@store.command(
    short_help="Delete measurements by age, device or number.",
    epilog="Example: perflex store prune --older-than 90d --yes",
)
def prune(
    context: typer.Context,
    *,
    place: _StoreOption = None,
    older_than: Annotated[
        str, typer.Option("--older-than", help="Started longer ago than this: 90d, 12h, 2w, 1y.")
    ] = "",
    device: Annotated[str, typer.Option("-D", "--device", help="Of devices with these parts in the name.")] = "",
    failures: Annotated[bool, typer.Option("--failures", help="Failures only, so that they are tried again.")] = False,
    keep_newest: Annotated[
        int, typer.Option("--keep-newest", min=0, help="Keep this many samples and failures of each measurement.")
    ] = 0,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without this, only show what would be deleted.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the measurements that meet all given conditions; without --yes, only show what would be deleted."""
    from perflex.cli.arguments import ArgumentError
    from perflex.cli.store_place import existing_store, time_before
    from perflex.store.removal import Selection, remove, selected

    # Without a condition everything would go, which nobody means to ask for in passing.
    if not (older_than or device.strip() or failures or keep_newest):
        msg = "choose what to delete: --older-than, --device, --failures or --keep-newest"
        raise ArgumentError(msg)
    selection = Selection(time_before(older_than) if older_than else None, device, failures, keep_newest)
    kept = existing_store(place)
    removal = remove(kept, selection) if yes else selected(kept, selection)
    if as_json:
        print_json(_removal_content(removal, done=yes))
        return
    terminal_of(context).show(*_removed(removal, done=yes))


def _removal_content(removal: Removal, *, done: bool) -> dict[str, Any]:
    devices = [
        {"device": device, "samples": samples, "failures": failures}
        for device, (samples, failures) in sorted(removal.by_device.items())
    ]
    return {
        "deleted": done, "samples": len(removal.samples), "failures": len(removal.failures), "devices": devices,
    }  # fmt: skip


def _removed(removal: Removal, *, done: bool) -> list[str]:
    verb = "deleted" if done else "would delete"
    lines = [
        f"{device or '(unnamed device)'}: {numbers_in_words(samples, failures)}"
        for device, (samples, failures) in sorted(removal.by_device.items())
    ]
    lines.append(f"{verb} {numbers_in_words(len(removal.samples), len(removal.failures))}")
    if not done and removal.by_device:
        lines.append("nothing was deleted; give --yes to do it")
    return lines
