"""``perflex prune``: the few variants worth being compiled and run."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.json_output import print_json, stamped
from perflex.cli.options import SPACE_FILES, DeviceOption, JsonOption, MachineOption, OutFolderOption
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from perflex.calibration.calibration import Calibration
    from perflex.cli.terminal import Terminal
    from perflex.search.pruning.promise import Keep
    from perflex.search.pruning.pruned import Pruning
    from perflex.search.pruning.report import PruningCheck
    from perflex.search.spaces.extraction import Candidates

SHOWN = 20
SPACE_WORDS = "[CALIBRATION] SPACE [SIZES]..."
SPACE_HELP = f"A calibration file, unless --machine names a GPU; {SPACE_FILES}; name=value of sizes."
_WORD = re.compile(r"(?P<kind>promise)(?::(?P<loss>[^,]*)(?:,(?P<confidence>.*))?)?|(?P<share>[\d.]+)%|(?P<number>\d+)")
_TABLES = (".csv", ".json.gz", ".csv.gz")
KeepOption = Annotated[
    str, typer.Option(help="Variants to keep: 5%, a number, or promise[:loss,confidence] such as promise:0.05,0.95.")
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of random draws.")]


def prune(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar=SPACE_WORDS, help=SPACE_HELP)],
    *,
    keep: KeepOption = "10%",
    measure: Annotated[
        int | None, typer.Option(min=1, help="Time this many randomly drawn variants first, then the kept ones.")
    ] = None,
    device: DeviceOption = "",
    seed: SeedOption = 0,
    machine: MachineOption = None,
    out: OutFolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the few variants of a kernel that are worth compiling and running, with the reasons.

    For configurations of other kernels that a tuner measured, use 'perflex prune-table'.
    """
    from perflex.cli.arguments import ArgumentError, read_calibration, read_sizes, require_writable_folder
    from perflex.cli.kernel_files import load_variants, require_sizes_of
    from perflex.progress import RunOptions
    from perflex.search.pruning.pruning import random_batch
    from perflex.search.pruning.report import check_pruning, draw_pruning
    from perflex.search.spaces.space import candidates_of

    tables = [word for word in words if word.endswith(_TABLES)]
    if tables:
        msg = "for measured configurations use: perflex prune-table TABLE DESCRIPTION"
        raise ArgumentError(msg, word=tables[0])
    if device and measure is None:
        msg = "--device says where --measure times variants, and nothing is timed without it; give both, or neither"
        raise ArgumentError(msg, word=device)
    loaded, (space, *sizes) = read_calibration(words, machine, SPACE_FILES)
    terminal, wanted = terminal_of(context), read_keep(keep)
    if out is not None:
        require_writable_folder(out, context)
    found, given = load_variants(space), read_sizes(sizes)
    require_sizes_of(found, given)
    with terminal.warnings_shown(doubts=False):
        with terminal.progress("prune:") as progress:
            run = RunOptions(progress=progress)
            candidates = candidates_of(found, loaded, given, machine=machine, run=run)
        batch = [] if measure is None else random_batch(candidates, measure, seed)
        pruning, times, on = _measured(
            terminal, candidates, loaded, wanted, batch, device=device or None, machine=machine
        )
    check = check_pruning(pruning, times) if times else None
    if out is not None:
        pruning.to_csv(out / "pruning.csv")
        draw_pruning(pruning, out / "pruning.png", times)
    if as_json:
        print_json(_content(pruning, check, times, on, loaded))
    else:
        _show(terminal, pruning, check, on)


def _measured(
    terminal: Terminal,
    candidates: Candidates,
    calibration: Calibration,
    keep: Keep,
    batch: list[int],
    *,
    device: str | None,
    machine: str | None,
) -> tuple[Pruning, dict[str, float], str]:
    """Prune, measuring a batch before and the kept variants after where there is a batch; say where, too."""
    from perflex.calibration.device_match import timing_device
    from perflex.features.sized_kernel import kernel_of
    from perflex.search.pruning.pruning import measure_variants
    from perflex.search.pruning.pruning import prune as pruned

    if not batch:
        return pruned(candidates, calibration, keep=keep, machine=machine), {}, ""
    # Of a space one kernel stands for all, which are built anew each.
    kernels = [kernel_of(candidates.kernel(number)) for number in (batch if candidates.build is None else batch[:1])]
    on = timing_device(calibration, device, machine=machine, kernels=kernels)
    with terminal.progress("measure:") as progress:
        measured = measure_variants(candidates, batch, calibration, on, progress)
        pruning = pruned(candidates, calibration, keep=keep, measured=measured, machine=machine)
        # Kept variants of the batch have their times already.
        left = [variant.number for variant in pruning.kept if math.isnan(variant.measured)]
        times = measured | measure_variants(candidates, left, calibration, on, progress)
    return pruning, times, str(on)


def read_keep(word: str) -> Keep:
    """Return how many variants ``5%``, ``20``, ``promise`` or ``promise:loss,confidence`` keeps."""
    from perflex.cli.arguments import ArgumentError
    from perflex.errors import CalibrationError
    from perflex.search.pruning.promise import Promise, check_keep

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


def _content(
    pruning: Pruning, check: PruningCheck | None, times: dict[str, float], on: str, calibration: Calibration
) -> dict[str, Any]:
    from perflex.reports.json_files import PRUNING

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
    return stamped(PRUNING, content if check is None else {**content, "check": check, "measured_on": on})


def _show(terminal: Terminal, pruning: Pruning, check: PruningCheck | None, on: str) -> None:
    rows = [
        (
            str(v.rank),
            v.name,
            ms(v.predicted) + (" (doubtful)" if v.doubts else ""),
            "" if math.isnan(v.low) else f"{ms(v.low)} to {ms(v.high)}",
            f"{v.ratio:.2f}",
            f"{v.dominating} {100 * v.share:.0f} %",
            ms(v.measured),
        )
        for v in pruning.kept[:SHOWN]
    ]
    terminal.show_table(("", "variant", "predicted", "95 % interval", "ratio", "dominates", "measured"), rows)
    if len(pruning.kept) > SHOWN:
        terminal.show(f"and {len(pruning.kept) - SHOWN} more are kept; --out writes all")
    left_out = [f"left out: {cause} ({count})" for cause, count in pruning.excluded.items()]
    doubtful = [f"doubtful: {line}" for line in pruning.doubt_lines]
    terminal.show(pruning.decision.explanation, *left_out, *doubtful, *([] if check is None else [f"{check}; on {on}"]))


def ms(seconds: float) -> str:
    """Return a time in ms; nothing where there is none."""
    return "" if math.isnan(seconds) else f"{1e3 * seconds:.4g} ms"
