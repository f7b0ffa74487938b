"""``perflex store``: what was measured, taken out, checked and thinned."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perflex.cli.arguments import ArgumentError, read_seconds
from perflex.cli.json_output import print_json
from perflex.cli.options import JsonOption
from perflex.cli.terminal import terminal_of
from perflex.errors import StoreError
from perflex.file_io import require_writable, saving

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.store.store import Store

store = typer.Typer(no_args_is_help=True, help="List, export, check and prune the stored measurements.")

_StoreOption = Annotated[
    Path | None, typer.Option("--store", help="The store's file; by default PERFLEX_STORE's, or the cache directory's.")
]


@store.command(
    "list", short_help="List the measurements of each kernel and device.", epilog="Example: perflex store list --json"
)
def list_(context: typer.Context, *, place: _StoreOption = None, as_json: JsonOption = False) -> None:
    """List what was measured of each kernel on each device; the median is that of the undisturbed samples."""
    from perflex.store.contents import overview, overview_table, size_of_made

    terminal = terminal_of(context)
    kept = _existing_store(place)
    kernels, counts = overview(kept), size_of_made(kept)
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
        terminal.show_result(overview_table(kernels, device))
    samples, failures = sum(k.samples for k in kernels), sum(k.failures for k in kernels)
    tables = f"{counts['kernels']} kernels, {counts['scops']} descriptions, {counts['counts']} portions"
    lines = [
        f"{kept.path}: {_numbers_in_words(samples, failures)}, {kept.path.stat().st_size / 1e6:.1f} MB",
        f"counts, made again when needed: {tables}, {counts['text_bytes'] / 1e6:.1f} MB",
        f"machine code, too: of {counts['code']} kernels, {counts['code_bytes'] / 1e6:.1f} MB",
    ]
    lines += [f"set aside: {path}; delete it when you need nothing of it" for path in aside]
    terminal.show(*lines)


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
) -> None:
    """Write every sample and failure with all that is known of it, a line each.

    Of a sample this is also whether it was disturbed, and what the system reported meanwhile:

    elapsed_s, processor_s, waited_s, stolen_s, others_s (seconds), switches, throttled.
    """
    from perflex.store.contents import write_rows

    if out is not None:
        require_writable(out)
    kept = _existing_store(place)
    if out is None:
        write_rows(kept, typer.get_text_stream("stdout"), as_json=False)
        return
    with saving(out) as stream:
        rows = write_rows(kept, stream, as_json=out.suffix in {".json", ".jsonl", ".ndjson"})
    terminal = terminal_of(context)
    terminal.remark(f"{rows} samples and failures")
    terminal.show_paths(out)


@store.command(epilog="Example: perflex store verify")
def verify(context: typer.Context, *, place: _StoreOption = None) -> None:
    """Check that the store is sound; the exit code is 0 when it is."""
    terminal = terminal_of(context)
    kept = _existing_store(place)
    found = kept.examine()
    if found.problems:
        readable = _numbers_in_words(found.sound["samples"], found.sound["failures"])
        terminal.show(f"{kept.path} is damaged: {readable} can be read in order")
        terminal.show(*(f"    {problem}" for problem in found.problems))
        advice = f"'perflex store export' writes what can be read; then delete or move {kept.path}, and measure again"
        terminal.remark(advice, style="red")
        raise typer.Exit(1)
    numbers_of = (found.sound[name] for name in ("samples", "failures", "nameless"))
    terminal.show(f"{kept.path} is sound: {_numbers_in_words(*numbers_of)}")


@store.command(
    short_help="Delete measurements by age, or failures.", epilog="Example: perflex store prune --older-than 90d --yes"
)
def prune(
    context: typer.Context,
    *,
    place: _StoreOption = None,
    older_than: Annotated[str, typer.Option(help="Started longer ago than this: 90d, 12h, 2w, 1y.")] = "",
    failures: Annotated[bool, typer.Option("--failures", help="Failures only, so that they are tried again.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without this, only show what would be deleted.")] = False,
) -> None:
    """Delete the measurements that meet all given conditions; without --yes, only show what would be deleted."""
    from perflex.store.contents import remove

    # Without a condition everything would go, which nobody means to ask for in passing.
    if not (older_than or failures):
        raise ArgumentError("choose what to delete: --older-than or --failures")
    # Who leaves the unit out does not mean seconds.
    if older_than and older_than.strip()[-1:].isdigit():
        raise ArgumentError(f"--older-than {older_than} has no unit; write e.g. 12h, 90d or 1y")
    before = time.time() - read_seconds(older_than, "--older-than") if older_than else None
    removed = remove(_existing_store(place), before, failures_only=failures, dry=not yes)
    terminal_of(context).show(*_removed_lines(removed, done=yes))


def _numbers_in_words(samples: int, failures: int, nameless: int = 0) -> str:
    """Return how many there are, such as ``1 sample and 0 failures``, and how many kernels lost their name if any."""
    text = f"{samples} sample{'s'[: samples != 1]} and {failures} failure{'s'[: failures != 1]}"
    return text + (f" (kernels without their names: {nameless})" if nameless else "")


def _removed_lines(removed: Mapping[str, tuple[int, int]], *, done: bool) -> list[str]:
    lines = [
        f"{device or '(unnamed device)'}: {_numbers_in_words(*counts)}" for device, counts in sorted(removed.items())
    ]
    samples, failures = (sum(counts[place] for counts in removed.values()) for place in (0, 1))
    lines.append(f"{'deleted' if done else 'would delete'} {_numbers_in_words(samples, failures)}")
    if not done and removed:
        lines.append("nothing was deleted; give --yes to do it")
    return lines


def _existing_store(place: Path | None) -> Store:
    """Return the store in a file, or the one in use; what was named by mistake must not be taken for a damaged one."""
    from perflex.store.file import is_database
    from perflex.store.store import required_store

    store = required_store(place)
    path = store.path
    try:
        if not path.exists():
            raise ArgumentError(f"there is no store at {path}; measuring makes one, --store names another")
        if not path.is_file():
            what = "a folder" if path.is_dir() else "a device, a pipe or a socket"
            raise ArgumentError(f"{path} is {what}; name a regular file with --store")
        if place is not None and not is_database(path):
            raise ArgumentError(f"{path} is no store of perflex; name another file with --store")
    except OSError as error:
        msg = f"the store {path} cannot be used ({error.strerror}); name another file with --store"
        raise StoreError(msg, path=path) from error
    return store
