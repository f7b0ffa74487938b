"""``perflex prune``: which few of many variants are worth being compiled and run."""

from __future__ import annotations

import json
import math
import re
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex._cli.machine_place import MachineOption  # noqa: TC001 - typer reads the annotations
from perflex._cli.session import session_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex._calibration import Calibration
    from perflex._cli.session import Session
    from perflex._prune.candidates import Candidates
    from perflex._prune.keep import Keep
    from perflex._prune.pruned import Pruning
    from perflex._prune.report import PruningCheck
    from perflex._prune.space import VariantSpace

__all__ = ["prune", "read_keep"]

_SHOWN = 20
_WORD = re.compile(r"(?P<kind>promise)(?::(?P<loss>[^,]*)(?:,(?P<confidence>.*))?)?|(?P<share>[\d.]+)%|(?P<number>\d+)")


def prune(  # noqa: PLR0913 - one parameter per option
    context: typer.Context,
    calibration: Annotated[Path, typer.Argument(help="A calibration file.")],
    space: Annotated[str, typer.Argument(help="SPACE.py:name of a VariantSpace, or of a function that returns one.")],
    sizes: Annotated[list[str] | None, typer.Argument(help="name=value sizes.")] = None,
    *,
    keep: Annotated[
        str, typer.Option("--keep", help="5%, a number, or promise[:loss,confidence] such as promise:0.05,0.95.")
    ] = "10%",
    measure: Annotated[
        int | None,
        typer.Option("--measure", min=1, help="Time so many variants drawn by chance first, then what is kept."),
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="Where to time; by default the model's.")] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes that describe variants.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Of the variants drawn by chance.")] = 0,
    machine: MachineOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for table (CSV) and picture (PNG).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Choose the few variants of a space that are worth being compiled and run, and say why."""
    from perflex._calibration import Calibration
    from perflex._cli.arguments import read_sizes
    from perflex._cli.writable import require_writable_folder
    from perflex._prune.report import check_pruning, draw_pruning

    wanted = read_keep(keep)
    if out is not None:
        require_writable_folder(out)
    session = session_of(context)
    loaded, found = Calibration.load(calibration), _space(space)
    with session.warnings_shown():
        candidates = _described(session, found, loaded, read_sizes(sizes or ()), machine, workers)
        pruning, times = _prune_loopy(session, candidates, loaded, wanted, measure, device, seed)
    check = check_pruning(pruning, times) if times else None
    if out is not None:
        pruning.to_csv(out / "pruning.csv")
        draw_pruning(pruning, out / "pruning.png", times)
    if as_json:
        typer.echo(json.dumps(_content(pruning, check), indent=2))
    else:
        _show(session, pruning, check)


def read_keep(word: str) -> Keep:
    """Read how many variants to keep: ``5%``, ``20``, ``promise`` or ``promise:loss,confidence``.

    Raises
    ------
    ArgumentError
        The word has another form, or a number is out of range.
    """
    from perflex._cli.arguments import ArgumentError
    from perflex._prune.promise import Promise

    form = "write 5%, 20, promise, or promise:0.05,0.95 (loss, confidence)"
    found = _WORD.fullmatch(word.strip())
    if found is None:
        msg = f"cannot read --keep {word!r}; {form}"
        raise ArgumentError(msg, word=word)
    try:
        if found["kind"]:
            given = {name: float(found[name]) for name in ("loss", "confidence") if found[name]}
            return Promise(**given)
        if found["number"]:
            return int(found["number"])
        return float(found["share"]) / 100
    except ValueError as error:
        msg = f"cannot read --keep {word!r} ({error}); {form}"
        raise ArgumentError(msg, word=word) from error


def _space(reference: str) -> VariantSpace:
    from perflex._cli.arguments import ArgumentError, load_object
    from perflex._prune.space import VariantSpace

    found = load_object(reference)
    if callable(found) and not isinstance(found, VariantSpace):
        found = found()
    if not isinstance(found, VariantSpace):
        msg = f"{reference} is a {type(found).__name__}; it must be a perflex.VariantSpace or return one"
        raise ArgumentError(msg, word=reference)
    return found


def _described(
    session: Session,
    space: VariantSpace,
    calibration: Calibration,
    sizes: dict[str, int],
    machine: Path | str | None,
    workers: int,
) -> Candidates:
    from perflex._prune.candidates import candidates_of

    with _pool(workers) as executor, session.progress("prune:") as progress:
        return candidates_of(space, calibration, sizes, machine=machine, executor=executor, progress=progress)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor | None]:
    if workers == 1:
        yield None
        return
    # The space's file was executed here, under a name that only processes forked from this one know.
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as executor:
        yield executor


def _prune_loopy(
    session: Session,
    candidates: Candidates,
    calibration: Calibration,
    keep: Keep,
    measure: int | None,
    device: str | None,
    seed: int,
) -> tuple[Pruning, dict[str, float]]:
    """Prune, measuring a batch before and the kept variants after where that is asked for."""
    from perflex._prune.batch import drawn, timed
    from perflex._prune.pruning import prune as pruned

    if measure is None:
        return pruned(candidates, calibration, keep=keep), {}
    with session.progress("measure:") as progress:
        batch = timed(candidates, drawn(candidates, measure, seed), calibration, device, progress)
        pruning = pruned(candidates, calibration, keep=keep, measured=batch)
        left = [variant.number for variant in pruning.kept if math.isnan(variant.measured)]
        times = batch | timed(candidates, left, calibration, device, progress)
    return pruning, times


def _content(pruning: Pruning, check: PruningCheck | None) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    decision = pruning.decision
    content: dict[str, Any] = {
        "variants": len(pruning.variants),
        "kept": [variant.name for variant in pruning.kept],
        "explanation": decision.explanation,
        "met": decision.met,
        "excluded": dict(pruning.excluded),
        "table": [{name: plain(value) for name, value in row.items()} for row in pruning.table()],
    }
    if check is not None:
        content["check"] = {name: plain(value) for name, value in vars(check).items()}
    return content


def _show(session: Session, pruning: Pruning, check: PruningCheck | None) -> None:
    from rich.table import Table

    table = Table("", "variant", "predicted", "95 % interval", "ratio", "dominates", "measured")
    for variant in pruning.kept[:_SHOWN]:
        interval = "" if math.isnan(variant.low) else f"{_ms(variant.low)} to {_ms(variant.high)}"
        measured = "" if math.isnan(variant.measured) else _ms(variant.measured)
        dominates = f"{variant.dominating} {100 * variant.share:.0f} %"
        row = (_ms(variant.predicted), interval, f"{variant.ratio:.2f}", dominates, measured)
        table.add_row(str(variant.rank), variant.name, *row)
    session.output.print(table)
    lines = [pruning.decision.explanation]
    if len(pruning.kept) > _SHOWN:
        lines.insert(0, f"and {len(pruning.kept) - _SHOWN} more are kept; --out writes all")
    lines += [f"left out: {cause} ({count})" for cause, count in pruning.excluded.items()]
    if check is not None:
        lines.append(str(check))
    for line in lines:
        session.output.print(line, markup=False, soft_wrap=True)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.4g} ms"
