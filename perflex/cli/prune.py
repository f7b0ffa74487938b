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

from perflex.cli.options import MachineOption  # noqa: TC001 - typer reads the annotations
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

__all__ = ["prune", "read_keep"]

_SHOWN = 20
_WORD = re.compile(r"(?P<kind>promise)(?::(?P<loss>[^,]*)(?:,(?P<confidence>.*))?)?|(?P<share>[\d.]+)%|(?P<number>\d+)")


def prune(  # noqa: PLR0913 - one parameter per option
    context: typer.Context,
    calibration: Annotated[Path | None, typer.Argument(help="A calibration file.")] = None,
    space: Annotated[
        str | None, typer.Argument(help="SPACE.py:name of a VariantSpace, or of a function that returns one.")
    ] = None,
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
    described: Annotated[
        str | None,
        typer.Option(
            "--description", help="Description of a kernel from elsewhere: a name or a YAML file; needs --space."
        ),
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option("--space", help="Measured configurations: Kernel Tuner's cache, a T4 file, or a table (CSV)."),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option("--samples", min=1, help="Take so many of --space as measured, and judge by the others."),
    ] = None,
    analytic: Annotated[
        bool, typer.Option("--analytic", help="With --description: no learned correction (extra learn).")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of the variants drawn by chance.")] = 0,
    machine: MachineOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for table (CSV) and picture (PNG).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Choose the few variants of a space that are worth being compiled and run, and say why.

    The variants are those of a loopy kernel (CALIBRATION SPACE [SIZES]), or configurations of a kernel that a
    description tells of (--description, --space).
    """
    from perflex.cli.arguments import require_writable_folder

    _require_one_kind(calibration, space, described, measured)
    wanted = read_keep(keep)
    if out is not None:
        require_writable_folder(out)
    session = terminal_of(context)
    if described is not None and measured is not None:
        from perflex.cli.prune_described import prune_description

        _refuse({"--measure": measure is not None, "--workers": workers != 1}, "a loopy space")
        prune_description(
            session, described, measured, wanted, samples=samples, learned=not analytic, device=device,
            machine=machine, seed=seed, out=out, as_json=as_json,
        )  # fmt: skip
    elif calibration is not None and space is not None:
        _refuse({"--samples": samples is not None, "--analytic": analytic}, "--description")
        run = (wanted, measure, device, seed)
        _prune_space(session, calibration, space, sizes or [], machine, workers, run, out, as_json=as_json)


def _prune_space(  # noqa: PLR0913 - what the command was given
    session: Terminal,
    calibration: Path,
    space: str,
    sizes: list[str],
    machine: str | None,
    workers: int,
    run: tuple[Keep, int | None, str | None, int],
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    from perflex.calibration.calibration import Calibration
    from perflex.cli.arguments import read_sizes
    from perflex.search.pruning.report import check_pruning, draw_pruning

    loaded, found = Calibration.load(calibration), _space(space)
    with session.warnings_shown():
        candidates = _described(session, found, loaded, read_sizes(sizes), machine, workers)
        pruning, times = _prune_loopy(session, candidates, loaded, *run)
    check = check_pruning(pruning, times) if times else None
    if out is not None:
        pruning.to_csv(out / "pruning.csv")
        draw_pruning(pruning, out / "pruning.png", times)
    if as_json:
        typer.echo(json.dumps(_content(pruning, check), indent=2))
    else:
        _show(session, pruning, check)


def _require_one_kind(
    calibration: Path | None, space: str | None, described: str | None, measured: Path | None
) -> None:
    from perflex.cli.arguments import ArgumentError

    if (described is None) != (measured is None):
        lacking = "--description" if described is None else "--space"
        msg = f"{lacking} is missing: a kernel from elsewhere needs --description and --space"
        raise ArgumentError(msg)
    if described is not None and calibration is not None:
        msg = f"{calibration} is too much: with --description there is neither a calibration nor a loopy space"
        raise ArgumentError(msg)
    if described is None and (calibration is None or space is None):
        msg = "give a calibration file and SPACE.py:name, or --description and --space for a kernel from elsewhere"
        raise ArgumentError(msg)


def _refuse(options: dict[str, bool], home: str) -> None:
    from perflex.cli.arguments import ArgumentError

    for option, given in options.items():
        if given:
            msg = f"{option} goes only with {home}; leave it out"
            raise ArgumentError(msg)


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


def _described(
    session: Terminal,
    space: VariantSpace,
    calibration: Calibration,
    sizes: dict[str, int],
    machine: Path | str | None,
    workers: int,
) -> Candidates:
    from perflex.search.spaces.candidates import candidates_of

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
    session: Terminal,
    candidates: Candidates,
    calibration: Calibration,
    keep: Keep,
    measure: int | None,
    device: str | None,
    seed: int,
) -> tuple[Pruning, dict[str, float]]:
    """Prune, measuring a batch before and the kept variants after where that is asked for."""
    from perflex.search.pruning.batch import drawn, timed
    from perflex.search.pruning.pruning import prune as pruned

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


def _show(session: Terminal, pruning: Pruning, check: PruningCheck | None) -> None:
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
