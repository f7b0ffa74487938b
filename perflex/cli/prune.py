"""``perflex prune``: which few variants of a loopy kernel are worth being compiled and run."""

from __future__ import annotations

import math
import os
import re
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.child_process import end_forked_with_parent
from perflex.cli.columns import Column
from perflex.cli.completion import complete_device
from perflex.cli.json_output import print_json, stamped
from perflex.cli.options import JsonOption, MachineOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.calibration.calibration import Calibration
    from perflex.cli.terminal import Terminal
    from perflex.search.pruning.keep import Keep
    from perflex.search.pruning.pruned import Pruning
    from perflex.search.pruning.report import PruningCheck
    from perflex.search.spaces.candidates import Candidates
    from perflex.search.spaces.space import VariantSpace

SHOWN = 20
_COLUMNS = (
    Column(""),
    Column("variant", left=True, wraps=True),
    Column("predicted"),
    Column("95 % interval", spare=2),
    Column("ratio"),
    Column("dominates", left=True, wraps=True, spare=1),
    Column("measured"),
)
_WORD = re.compile(r"(?P<kind>promise)(?::(?P<loss>[^,]*)(?:,(?P<confidence>.*))?)?|(?P<share>[\d.]+)%|(?P<number>\d+)")
_TABLES = (".json", ".csv", ".json.gz", ".csv.gz")

KeepOption = Annotated[
    str,
    typer.Option(
        "--keep", help="Variants to keep: 5%, a number, or promise[:loss,confidence] such as promise:0.05,0.95."
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of random draws.")]
OutOption = Annotated[Path | None, typer.Option("--out", help="Folder for a table (CSV) and a picture (PNG).")]


def _moved(value: str | None) -> None:
    """Stop where the command is given what `perflex prune-table` is for, as both were one command once."""
    if value is not None:
        from perflex.cli.arguments import ArgumentError

        msg = "for measured configurations use: perflex prune-table TABLE DESCRIPTION"
        raise ArgumentError(msg, word=value)


def prune(  # noqa: PLR0913 - one parameter per option
    context: typer.Context,
    calibration: Annotated[Path, typer.Argument(help="A calibration file.")],
    space: Annotated[str, typer.Argument(help="SPACE.py:name of a VariantSpace, or of a function that returns one.")],
    sizes: Annotated[list[str] | None, typer.Argument(help="name=value sizes.")] = None,
    *,
    keep: KeepOption = "10%",
    measure: Annotated[
        int | None,
        typer.Option("--measure", min=1, help="Time this many randomly drawn variants first, then the kept ones."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", autocompletion=complete_device, help="Device for timing; by default the model's."),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes that describe variants.")] = 1,
    seed: SeedOption = 0,
    machine: MachineOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
    moved: Annotated[
        str | None, typer.Option("--description", "--space", hidden=True, is_eager=True, callback=_moved)
    ] = None,
) -> None:
    """Choose the few variants of a loopy kernel that are worth compiling and running, with the reasons.

    For configurations of other kernels that a tuner measured, use 'perflex prune-table'.
    """
    from perflex.calibration.calibration import Calibration
    from perflex.cli.arguments import read_sizes, require_writable_folder
    from perflex.search.pruning.batch import random_batch
    from perflex.search.pruning.report import check_pruning, draw_pruning
    from perflex.search.spaces.candidates import candidates_of

    del moved
    if space.endswith(_TABLES):
        _moved(space)
    terminal, wanted = terminal_of(context), read_keep(keep)
    if out is not None:
        require_writable_folder(out)
    loaded, found = Calibration.load(calibration), _space(space)
    with terminal.warnings_shown():
        with _pool(workers) as executor, terminal.progress("prune:") as progress:
            given = read_sizes(sizes or [])
            candidates = candidates_of(found, loaded, given, machine=machine, executor=executor, progress=progress)
        batch = [] if measure is None else random_batch(candidates, measure, seed)
        pruning, times = _measured(terminal, candidates, loaded, wanted, batch, device)
    check = check_pruning(pruning, times) if times else None
    if out is not None:
        pruning.to_csv(out / "pruning.csv")
        draw_pruning(pruning, out / "pruning.png", times)
    if as_json:
        print_json(_content(pruning, check, times, loaded))
    else:
        _show(terminal, pruning, check)


def _measured(
    terminal: Terminal,
    candidates: Candidates,
    calibration: Calibration,
    keep: Keep,
    batch: list[int],
    device: str | None,
) -> tuple[Pruning, dict[str, float]]:
    """Prune, measuring a batch before and the kept variants after where there is a batch."""
    from perflex.search.pruning.batch import measure_variants
    from perflex.search.pruning.pruning import prune as pruned

    if not batch:
        return pruned(candidates, calibration, keep=keep), {}
    with terminal.progress("measure:") as progress:
        measured = measure_variants(candidates, batch, calibration, device, progress)
        pruning = pruned(candidates, calibration, keep=keep, measured=measured)
        # Kept variants of the batch have their times already.
        left = [variant.number for variant in pruning.kept if math.isnan(variant.measured)]
        times = measured | measure_variants(candidates, left, calibration, device, progress)
    return pruning, times


def read_keep(word: str) -> Keep:
    """Read how many variants to keep: ``5%``, ``20``, ``promise`` or ``promise:loss,confidence``.

    Raises
    ------
    ArgumentError
        The word has another form, or a number is out of range.
    """
    from perflex.cli.arguments import ArgumentError
    from perflex.errors import CalibrationError
    from perflex.search.pruning.keep import check_keep
    from perflex.search.pruning.promise import Promise

    form = "write 5%, 20, promise, or promise:0.05,0.95 (loss, confidence)"
    found = _WORD.fullmatch(word.strip())
    if found is None:
        msg = f"cannot read --keep {word!r}; {form}"
        raise ArgumentError(msg, word=word)
    try:
        if found["kind"]:
            given = {name: float(found[name]) for name in ("loss", "confidence") if found[name]}
            return Promise(**given)
        keep = int(found["number"]) if found["number"] else float(found["share"]) / 100
        check_keep(keep)
    except CalibrationError as error:
        msg = f"cannot read --keep {word!r}: a number is at least 1, a share above 0 and at most 100 %; {form}"
        raise ArgumentError(msg, word=word) from error
    except ValueError as error:
        msg = f"cannot read --keep {word!r} ({error}); {form}"
        raise ArgumentError(msg, word=word) from error
    return keep


def _space(reference: str) -> VariantSpace:
    from perflex.cli.arguments import ArgumentError, load_object
    from perflex.search.spaces.space import VariantSpace

    found = load_object(reference)
    if callable(found) and not isinstance(found, VariantSpace):
        found = found()
    if not isinstance(found, VariantSpace):
        msg = f"{reference} is a {type(found).__name__}; it must be a perflex.VariantSpace or return one"
        raise ArgumentError(msg, word=reference)
    return found


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor | None]:
    if workers == 1:
        yield None
        return
    # The space's file was executed here, under a name that only processes forked from this one know.
    with ProcessPoolExecutor(
        workers, get_context("fork"), initializer=end_forked_with_parent, initargs=(os.getpid(),)
    ) as executor:
        try:
            yield executor
        except BaseException:  # an interrupt, say; the pool would wait for what is at work
            for worker in active_children():
                worker.kill()
            raise


def _content(
    pruning: Pruning, check: PruningCheck | None, times: dict[str, float], calibration: Calibration
) -> dict[str, Any]:
    from perflex.reports.pruning_file import FORMAT

    # The kept variants' times, too, though the decision did not see them.
    rows = [{**row, "measured_s": times.get(row["variant"], row["measured_s"])} for row in pruning.table()]
    content: dict[str, Any] = {
        "device": dict(calibration.device),
        "calibrated": calibration.date,
        "variants": len(pruning.variants),
        "kept": [variant.name for variant in pruning.kept],
        "explanation": pruning.decision.explanation,
        "met": pruning.decision.met,
        "excluded": dict(pruning.excluded),
        "batch": [variant.name for variant in pruning.variants if not math.isnan(variant.measured)],
        "table": rows,
    }
    return stamped(FORMAT, content if check is None else {**content, "check": check})


def _show(terminal: Terminal, pruning: Pruning, check: PruningCheck | None) -> None:
    rows = []
    for variant in pruning.kept[:SHOWN]:
        interval = "" if math.isnan(variant.low) else f"{_ms(variant.low)} to {_ms(variant.high)}"
        measured = "" if math.isnan(variant.measured) else _ms(variant.measured)
        dominates = f"{variant.dominating} {100 * variant.share:.0f} %"
        row = (_ms(variant.predicted), interval, f"{variant.ratio:.2f}", dominates, measured)
        rows.append((str(variant.rank), variant.name, *row))
    # An empty column tells nothing.
    filled = [number for number in range(len(_COLUMNS)) if number < 3 or any(row[number] for row in rows)]
    terminal.show_table([_COLUMNS[n] for n in filled], [[row[n] for n in filled] for row in rows])
    lines = [pruning.decision.explanation]
    if len(pruning.kept) > SHOWN:
        lines.insert(0, f"and {len(pruning.kept) - SHOWN} more are kept; --out writes all")
    lines += [f"left out: {cause} ({count})" for cause, count in pruning.excluded.items()]
    if check is not None:
        lines.append(str(check))
    for line in lines:
        terminal.show(line)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.4g} ms"
