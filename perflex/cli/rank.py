"""``perflex rank`` and ``perflex prune``: variants by predicted time, and the few that are worth being run."""

from __future__ import annotations

import math
import pickle
import re
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.arguments import ArgumentError
from perflex.cli.json_output import print_json, stamped
from perflex.cli.launches import calibration_of_launch, launch_of, rank_launch, refuse_for_launch
from perflex.cli.options import (
    KERNEL_FILES,
    SPACE_FILES,
    CachesOption,
    DeviceOption,
    JsonOption,
    LaunchesOption,
    MachineOption,
    OutFolderOption,
    TimeOption,
)
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perflex.calibration.calibration import Calibration
    from perflex.cli.terminal import Terminal
    from perflex.progress import RunOptions
    from perflex.search.promise import Keep
    from perflex.search.ranking import Ranking
    from perflex.search.variants import Variants

SHOWN = 20
SPACE_WORDS = "[CALIBRATION] SPACE [SIZES]..."
SPACE_HELP = f"A calibration file, unless --machine names a GPU; {SPACE_FILES}; name=value of sizes."
_SCHEMA = "perflex-pruning/1"
_WORD = re.compile(r"(?P<kind>promise)(?::(?P<loss>[^,]*)(?:,(?P<confidence>.*))?)?|(?P<share>[\d.]+)%|(?P<number>\d+)")
_TABLES = (".csv", ".json.gz", ".csv.gz")
# Counting so many combinations of settings takes longer than starting a process for each core.
_MANY = 100
KeepOption = Annotated[
    str, typer.Option(help="Variants to keep: 5%, a number, or promise[:loss,confidence] such as promise:0.05,0.95.")
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of random draws.")]
MeasureOption = Annotated[
    int | None, typer.Option(min=1, help="Time this many randomly drawn variants first, then the kept ones.")
]
TimesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Known times of some variants: of Kernel Tuner, KTT or CLBlast, T4, or a table (CSV)."
    ),
]


@dataclass(frozen=True)
class _Asked:
    """What a command was given."""

    words: list[str]
    keep: str
    measure: int | None
    times: Path | None
    time: bool
    device: str
    seed: int
    machine: str | None
    launches: Any
    caches: Any
    out: Path | None
    as_json: bool
    compiled: int = 0


def rank(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CALIBRATION] KERNEL... [SIZES]...",
            help=f"A calibration file, unless --machine names a GPU; "
            f"of each kernel {KERNEL_FILES}, or one file of a source with tunables; name=value of each size.",
        ),
    ],
    *,
    keep: KeepOption = "100%",
    measure: MeasureOption = None,
    times: TimesOption = None,
    time: TimeOption = False,
    device: DeviceOption = "",
    seed: SeedOption = 0,
    machine: MachineOption = None,
    launches: LaunchesOption = None,
    caches: CachesOption = None,
    compiled: Annotated[
        int,
        typer.Option(
            "--compile",
            metavar="N",
            min=0,
            help="Compile configurations of a Triton kernel until the N best are ordered by what their code takes.",
        ),
    ] = 0,
    out: OutFolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Order variants by predicted run time, fastest first; with --time, by what is measured."""
    given = dict(locals())
    _ranked(given.pop("context"), _Asked(**given), prunes=False)


def prune(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar=SPACE_WORDS, help=SPACE_HELP)],
    *,
    keep: KeepOption = "10%",
    measure: MeasureOption = None,
    times: TimesOption = None,
    time: TimeOption = False,
    device: DeviceOption = "",
    seed: SeedOption = 0,
    machine: MachineOption = None,
    launches: LaunchesOption = None,
    caches: CachesOption = None,
    out: OutFolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the few variants of a kernel that are worth compiling and running, with the reasons.

    Eight and more measured variants (--measure, --times) correct the predictions of all.
    """
    given = dict(locals())
    _ranked(given.pop("context"), _Asked(**given), prunes=True)


def _ranked(context: typer.Context, asked: _Asked, *, prunes: bool) -> None:
    """Do what both commands do: `prune` takes a space alone, and says in JSON what the choice rests on."""
    from perflex.cli.arguments import (
        is_space,
        read_calibration,
        read_kernels_and_sizes,
        require_known_sizes,
        require_writable_folder,
    )
    from perflex.cli.kernel_files import load_kernel, load_variants, require_sizes_of
    from perflex.search.variants import variants_of

    _refuse(asked)
    terminal, keep, machine = terminal_of(context), read_keep(asked.keep), asked.machine
    loaded, rest = read_calibration(asked.words, machine, SPACE_FILES if prunes else KERNEL_FILES)
    loaded = loaded.assuming(launches=asked.launches, caches=asked.caches)
    words, sizes = read_kernels_and_sizes(rest)
    if asked.out is not None:
        require_writable_folder(asked.out, context)
    alone = len(words) == 1 and (prunes or is_space(words[0]))
    found = load_variants(words[0]) if alone else {word: load_kernel(word) for word in words}
    if isinstance(found, dict) and _launches(terminal, found, sizes, loaded, asked):
        return
    if asked.compiled:
        msg = "--compile is for a function that launches a Triton kernel; leave it out"
        raise ArgumentError(msg)
    if isinstance(found, dict):
        require_known_sizes(sizes, found.values(), sizes)
    else:
        require_sizes_of(found, sizes)
    with terminal.warnings_shown(doubts=False):
        with counting(terminal, "rank:", found) as run:
            variants = variants_of(found, loaded, sizes, machine=machine, run=run)
        ranking, batch, on = _measured(terminal, variants, loaded, keep, asked)
    if asked.out is not None:
        _write(ranking, on, asked.out)
    if asked.as_json:
        print_json(_content(ranking, batch, on) if prunes else _rows(terminal, ranking, on))
    else:
        _show(terminal, ranking, batch, on, most=SHOWN if alone else None)


@contextmanager
def counting(terminal: Terminal, title: str, variants: Any) -> Iterator[RunOptions]:
    """Give where variants are counted: in a process for each core where there are many that can be sent there."""
    from perflex.child_process import process_pool
    from perflex.progress import RunOptions
    from perflex.search.tuned_source import TunedSource

    with ExitStack() as stack:
        executor = None
        # What a user's Python file makes cannot be imported by its name elsewhere.
        if isinstance(getattr(variants, "build", None), TunedSource) and variants.combinations >= _MANY:
            try:
                pickle.dumps(variants.build)
            except (pickle.PicklingError, AttributeError, TypeError):  # functions of a Kernel Tuner script
                pass
            else:
                executor = stack.enter_context(process_pool())
        yield RunOptions(executor, progress=stack.enter_context(terminal.progress(title)))


def _refuse(asked: _Asked) -> None:
    from perflex.search.measured_times import read_times

    tables = [word for word in asked.words if word.endswith(_TABLES)]
    if tables:
        msg = f"{tables[0]} is a table of times: give it as --times, and a space or kernels that they are of"
        raise ArgumentError(msg, word=tables[0])
    if asked.time + (asked.measure is not None) + (asked.times is not None) > 1:
        msg = "--time times all variants, --measure some, and --times gives times of some; give one of them"
        raise ArgumentError(msg)
    if asked.device and not asked.time and asked.measure is None:
        msg = "--device says where --time or --measure times variants, and nothing is timed without; give one, or none"
        raise ArgumentError(msg, word=asked.device)
    if asked.times is not None:
        # Before minutes of counting, on which it does not depend whether there are such times.
        read_times(asked.times)


def _launches(
    terminal: Terminal, kernels: dict[str, Any], sizes: dict[str, int], loaded: Calibration, asked: _Asked
) -> bool:
    """Show the configurations of a launch of a Triton kernel; return whether there is one."""
    launched = next(filter(None, map(launch_of, kernels.values())), None)
    if launched is None:
        return False
    if len(kernels) > 1:
        msg = "a launch of a Triton kernel is ranked alone, for its configurations are; give one"
        raise ArgumentError(msg, word=list(kernels)[1])
    if asked.keep != "100%" or asked.out is not None:
        msg = "all configurations of a launch are shown, and no files written; leave --keep and --out out"
        raise ArgumentError(msg)
    assumed = asked.launches is not None or asked.caches is not None
    refuse_for_launch(time=asked.time or bool(asked.measure or asked.times), assumed=assumed)
    given = asked.words[0] not in kernels
    calibration = calibration_of_launch(loaded, asked.machine, given=given)
    rank_launch(terminal, launched, sizes, calibration, compiled=asked.compiled, as_json=asked.as_json)
    return True


def _measured(
    terminal: Terminal, variants: Variants, calibration: Calibration, keep: Keep, asked: _Asked
) -> tuple[Ranking, dict[str, float], str]:
    """Rank, measuring all, or a batch before and the kept variants after; say which were the batch, and where."""
    from perflex.calibration.device_match import timing_device
    from perflex.features.sized_kernel import kernel_of
    from perflex.search.ranking import measure_variants, random_batch
    from perflex.search.ranking import rank as ranked

    if not asked.time and asked.measure is None:
        ranking = ranked(variants, calibration, keep=keep, measured=asked.times, machine=asked.machine)
        return ranking, {place.name: place.measured for place in ranking if not math.isnan(place.measured)}, ""
    batch = random_batch(variants, asked.measure or len(variants), asked.seed)
    # Of a space one kernel stands for all, which are built anew each.
    kernels = [kernel_of(variants.kernel(number)) for number in (batch if variants.build is None else batch[:1])]
    on = timing_device(calibration, asked.device or None, machine=asked.machine, kernels=kernels)
    if asked.time:
        return ranked(variants, calibration, keep=keep, machine=asked.machine, time=on), {}, str(on)
    with terminal.progress("measure:") as progress:
        measured = measure_variants(variants, batch, calibration, on, progress)
        ranking = ranked(variants, calibration, keep=keep, measured=measured, machine=asked.machine)
        # Kept variants of the batch have their times already.
        left = [place.number for place in ranking.kept if math.isnan(place.measured)]
        later = measure_variants(variants, left, calibration, on, progress)
    return ranking.with_times(later), measured, str(on)


def read_keep(word: str) -> Keep:
    """Return how many variants ``5%``, ``20``, ``promise`` or ``promise:loss,confidence`` keeps."""
    from perflex.errors import CalibrationError
    from perflex.search.promise import Promise, check_keep

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
    except (CalibrationError, ValueError) as error:
        limits = "" if found["kind"] else "a number is at least 1, a share above 0 and at most 100 %; "
        reason = f" ({error})" if isinstance(error, ValueError) else ""
        msg = f"cannot read --keep {word!r}{reason}; {limits}{form}"
        raise ArgumentError(msg, word=word) from error
    return keep


def _rows(terminal: Terminal, ranking: Ranking, on: str) -> list[dict[str, Any]]:
    for cause, count in ranking.excluded.items():
        terminal.remarks.print(f"left out: {cause} ({count})", markup=False, soft_wrap=True)
    more = {"measured_on": on} if on else {}
    return [{"name": row.pop("variant"), **row, **more} for row in ranking.table().records()]


def _content(ranking: Ranking, batch: dict[str, float], on: str) -> dict[str, Any]:
    content: dict[str, Any] = {
        "device": dict(ranking.calibration.device),
        "calibrated": ranking.calibration.date,
        "variants": len(ranking),
        "kept": [place.name for place in ranking.kept],
        "explanation": ranking.decision.explanation,
        "met": ranking.decision.met,
        "excluded": dict(ranking.excluded),
        "batch": [place.name for place in ranking if place.name in batch],
        "table": ranking.table().records(),
    }
    if on or batch:
        check = asdict(ranking.check())
        content |= {"check": check.pop("accuracy") | check}
    if on:
        content["measured_on"] = on
    return stamped(_SCHEMA, content)


def _write(ranking: Ranking, on: str, folder: Path) -> None:
    from perflex.reports.page import write_page
    from perflex.reports.ranking_part import ranking_part
    from perflex.search.ranking_picture import draw_ranking

    ranking.to_csv(folder / "ranking.csv")
    draw_ranking(ranking, folder / "ranking.png")
    write_page(folder / "report.html", [ranking_part(ranking, on)])


def _show(terminal: Terminal, ranking: Ranking, batch: Mapping[str, float], on: str, most: int | None) -> None:
    terminal.show_result(ranking.table(kept=True), most=most)
    terminal.show(
        *([ranking.decision.explanation] if ranking.dropped else []),
        *([ranking.correction] if ranking.correction else []),
        *(f"left out: {cause} ({count})" for cause, count in ranking.excluded.items()),
        *(f"doubtful: {line}" for line in ranking.doubt_lines),
        *([str(ranking.check())] if on or batch else []),
        *([f"measured on {on}"] if on else []),
    )
