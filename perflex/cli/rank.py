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
from perflex.cli.cluster import device_named
from perflex.cli.json_output import picked, print_json, stamped
from perflex.cli.launches import is_launch, predictor_of
from perflex.cli.options import (
    KERNEL_FILES,
    SERIES,
    SPACE_FILES,
    CachesOption,
    DeviceOption,
    JsonOption,
    LaunchesOption,
    MachineOption,
    OutFolderOption,
    TimeOption,
    takes_options,
)
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perflex.calibration.calibration import Calibration
    from perflex.cli.terminal import Terminal
    from perflex.progress import RunOptions
    from perflex.search.promise import Keep
    from perflex.search.ranked import Ranking
    from perflex.search.variants import Variants

SHOWN = 20
SPACE_WORDS = "[CALIBRATION] SPACE [SIZES]..."
SPACE_HELP = f"A calibration file, unless --machine names a GPU; {SPACE_FILES}; name=value of sizes."
_SERIES_HELP = SPACE_HELP.replace("name=value of sizes", SERIES)
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
CompileOption = Annotated[
    int,
    typer.Option(
        "--compile",
        metavar="N",
        min=0,
        help="Compile variants, for a GPU that need not be here, until the N best are predicted by their code.",
    ),
]
TimesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Known times of some variants: of Kernel Tuner, KTT or CLBlast, T4, or a table (CSV)."
    ),
]


@dataclass(frozen=True)
class Asked:
    """What `rank` and `prune` are told."""

    keep: KeepOption = "100%"
    measure: MeasureOption = None
    times: TimesOption = None
    time: TimeOption = False
    device: DeviceOption = ""
    seed: SeedOption = 0
    machine: MachineOption = None
    launches: LaunchesOption = None
    caches: CachesOption = None
    compiled: CompileOption = 0
    out: OutFolderOption = None
    as_json: JsonOption = False


@dataclass(frozen=True)
class AskedToPrune(Asked):
    """What `prune` is told; it keeps a tenth by default."""

    keep: KeepOption = "10%"


@takes_options("asked", Asked)
def rank(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CALIBRATION] KERNEL... [SIZES]...",
            help=f"A calibration file, unless --machine names a GPU; "
            f"of each kernel {KERNEL_FILES}, or one file of a source with tunables; {SERIES}.",
        ),
    ],
    *,
    asked: Asked,
) -> None:
    """Order variants by predicted run time, fastest first; with --time, by what is measured."""
    _ranked(context, words, asked, prunes=False)


@takes_options("asked", AskedToPrune)
def prune(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar=SPACE_WORDS, help=_SERIES_HELP)],
    *,
    asked: Asked,
) -> None:
    """Choose the few variants of a kernel that are worth compiling and running, with the reasons.

    Eight and more measured variants (--measure, --times) correct the predictions of all.
    """
    _ranked(context, words, asked, prunes=True)


def _ranked(context: typer.Context, words: list[str], asked: Asked, *, prunes: bool) -> None:
    """Do what both commands do: `prune` takes a space alone, and says in JSON what the choice rests on."""
    from perflex.cli.arguments import is_space, read_calibration, read_series, require_writable_folder, split_words
    from perflex.cli.kernel_files import load_kernel, load_variants

    _refuse(words, asked)
    terminal, keep = terminal_of(context), read_keep(asked.keep)
    loaded, rest = read_calibration(words, asked.machine, SPACE_FILES if prunes else KERNEL_FILES)
    given = len(rest) < len(words)
    words, sizes = split_words(rest)
    series = read_series(sizes)
    if len(series) > 1 and (asked.out is not None or asked.times is not None):
        raise ArgumentError("--times are of one value of each size, and --out writes one ranking; give one value each")
    if asked.out is not None:
        require_writable_folder(asked.out, context)
    alone = len(words) == 1 and (prunes or is_space(words[0]))
    found = load_variants(words[0]) if alone else {word: load_kernel(word) for word in words}
    found, loaded = _of_launch(found, loaded, asked, given=given)
    loaded = loaded.assuming(launches=asked.launches, caches=asked.caches)
    content: list[dict[str, Any]] = []
    for each in series:
        ranking, batch, on = _ranked_at(terminal, found, each, loaded, keep, asked)
        at: dict[str, Any] = {"sizes": each} if len(series) > 1 else {}
        if asked.out is not None:
            _write(ranking, on, asked.out)
        if asked.as_json:
            rows = [_content(ranking, batch, on)] if prunes else _rows(terminal, ranking, on)
            content += [row | at for row in rows]
            continue
        if at:
            terminal.show(", ".join(f"{name}={value}" for name, value in each.items()))
        _show(terminal, ranking, batch, on, most=None if isinstance(found, dict) else SHOWN)
    if asked.as_json:
        print_json(content[0] if prunes and len(series) == 1 else content)


def _ranked_at(
    terminal: Terminal, variants: Any, sizes: dict[str, int], loaded: Calibration, keep: Keep, asked: Asked
) -> tuple[Ranking, dict[str, float], str]:
    """Return a ranking at some sizes, with what was measured before, and where."""
    from perflex.cli.arguments import require_known_sizes
    from perflex.cli.kernel_files import require_sizes_of
    from perflex.search.counted_variants import variants_of

    if isinstance(variants, dict):
        require_known_sizes(sizes, variants.values(), sizes)
    else:
        require_sizes_of(variants, sizes)
    with terminal.warnings_shown(doubts=False):
        with counting(terminal, "rank:", variants) as run:
            found = variants_of(variants, loaded, sizes, machine=asked.machine, run=run)
            if asked.compiled:
                found = _compiled(found, loaded, asked, run)
        return _measured(terminal, found, loaded, keep, asked)


def _compiled(found: Variants, loaded: Calibration, asked: Asked, run: RunOptions) -> Variants:
    """Return variants of which the best are compiled, by Triton where it launches them."""
    from perflex.search import compiled_variants, triton_configurations

    if found.kernels and hasattr(found.kernels[0], "with_code"):
        return triton_configurations.with_code(found, loaded, asked.compiled, asked.machine)
    return compiled_variants.with_code(found, loaded, asked.compiled, machine=asked.machine, run=run)


def _of_launch(variants: Any, loaded: Calibration, asked: Asked, *, given: bool) -> tuple[Any, Calibration]:
    """Return variants, and what predicts them: a launch of a Triton kernel instead of kernels where it is one."""
    kernels = list(variants.values()) if isinstance(variants, dict) else [variants]
    if not any(map(is_launch, kernels)):
        return variants, loaded
    if len(kernels) > 1:
        msg = "a launch of a Triton kernel is ranked alone, for its configurations are; give one"
        raise ArgumentError(msg, word=list(variants)[1])
    times, assumed = asked.time or asked.measure is not None, asked.launches is not None or asked.caches is not None
    return kernels[0], predictor_of(kernels[0], loaded, asked.machine, given=given, time=times, assumed=assumed)


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


def _refuse(words: Sequence[str], asked: Asked) -> None:
    from perflex.search.measured_times import read_times

    tables = [word for word in words if word.endswith(_TABLES)]
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


def _measured(
    terminal: Terminal, variants: Variants, calibration: Calibration, keep: Keep, asked: Asked
) -> tuple[Ranking, dict[str, float], str]:
    """Rank, measuring all, or a batch before and the kept variants after; say which were the batch, and where."""
    from perflex.calibration.device_match import timing_device
    from perflex.features.sized_kernel import kernel_of
    from perflex.search.ranking import rank as ranked
    from perflex.search.variant_times import measure_variants, random_batch

    if not asked.time and asked.measure is None:
        ranking = ranked(variants, calibration, keep=keep, measured=asked.times, machine=asked.machine)
        return ranking, {place.name: place.measured for place in ranking if not math.isnan(place.measured)}, ""
    batch = random_batch(variants, asked.measure or len(variants), asked.seed)
    # Of a space one kernel stands for all, which are built anew each.
    kernels = [kernel_of(variants.kernel(number)) for number in (batch if variants.build is None else batch[:1])]
    with device_named(asked.device, calibration) as device, terminal.progress("measure:") as progress:
        on = timing_device(calibration, device, machine=asked.machine, kernels=kernels)
        if asked.time:
            return ranked(variants, calibration, keep=keep, machine=asked.machine, time=on), {}, str(on)
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
    for line in ranking.variants.left_out:
        terminal.remarks.print(f"left out: {line}", markup=False, soft_wrap=True)
    more = {"measured_on": on} if on else {}
    rows = [
        {"name": row.pop("variant"), **row, **({"settings": dict(place.settings)} if place.settings else {}), **more}
        for row, place in zip(ranking.table().records(), ranking, strict=True)
    ]
    return [*rows, *_missing(ranking)]


def _missing(ranking: Ranking) -> list[dict[str, Any]]:
    """Return what could not be predicted, and why."""
    return [picked(one, "name", "reason", "possible") for one in ranking.variants.missing]


def _content(ranking: Ranking, batch: dict[str, float], on: str) -> dict[str, Any]:
    content: dict[str, Any] = {
        "device": dict(ranking.calibration.device),
        "calibrated": ranking.calibration.date,
        "variants": len(ranking),
        "kept": [place.name for place in ranking.kept],
        "explanation": ranking.decision.explanation,
        "met": ranking.decision.met,
        "excluded": dict(ranking.excluded),
        "missing": _missing(ranking),
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
        *(f"left out: {line}" for line in ranking.variants.left_out),
        *(f"doubtful: {line}" for line in ranking.doubt_lines),
        *([str(ranking.check())] if on or batch else []),
        *([f"measured on {on}"] if on else []),
    )
