"""``perflex prune``, ``prune-table``, ``tune``: the few variants worth being compiled and run, and the fastest."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.completion import complete_description
from perflex.cli.json_output import print_json, stamped
from perflex.cli.options import SPACE_FILES, DeviceOption, JsonOption, MachineOption, OutFolderOption
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from perflex.calibration.calibration import Calibration
    from perflex.cli.terminal import Terminal
    from perflex.search.pruning.promise import Keep
    from perflex.search.pruning.pruned import Pruning
    from perflex.search.pruning.pruning import DescribedPruning
    from perflex.search.pruning.report import PruningCheck
    from perflex.search.spaces.extraction import Candidates
    from perflex.search.tuning.tuning import TuningResult

_SHOWN, _SHOWN_TIMED = 20, 10
_SPACE_WORDS = "[CALIBRATION] SPACE [SIZES]..."
_SPACE_HELP = f"A calibration file, unless --machine names a GPU; {SPACE_FILES}; name=value of sizes."
_WORD = re.compile(r"(?P<kind>promise)(?::(?P<loss>[^,]*)(?:,(?P<confidence>.*))?)?|(?P<share>[\d.]+)%|(?P<number>\d+)")
_TABLES = (".csv", ".json.gz", ".csv.gz")
_KeepOption = Annotated[
    str, typer.Option(help="Variants to keep: 5%, a number, or promise[:loss,confidence] such as promise:0.05,0.95.")
]
_SeedOption = Annotated[int, typer.Option(min=0, help="Seed of random draws.")]


def prune(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar=_SPACE_WORDS, help=_SPACE_HELP)],
    *,
    keep: _KeepOption = "10%",
    measure: Annotated[
        int | None, typer.Option(min=1, help="Time this many randomly drawn variants first, then the kept ones.")
    ] = None,
    device: DeviceOption = "",
    seed: _SeedOption = 0,
    machine: MachineOption = None,
    out: OutFolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the few variants of a kernel that are worth compiling and running, with the reasons.

    For configurations of other kernels that a tuner measured, use 'perflex prune-table'.
    """
    from perflex.cli.arguments import ArgumentError, read_calibration, read_sizes, require_writable_folder
    from perflex.cli.kernel_files import load_variants
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
    found = load_variants(space)
    with terminal.warnings_shown(doubts=False):
        with terminal.progress("prune:") as progress:
            given = read_sizes(sizes)
            run = RunOptions(progress=progress)
            candidates = candidates_of(found, loaded, given, machine=machine, run=run)
        terminal.warn_of_sizes(given, [candidates.kernel(0)], candidates.sizes[0])
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
            _ms(v.predicted) + (" (doubtful)" if v.doubts else ""),
            "" if math.isnan(v.low) else f"{_ms(v.low)} to {_ms(v.high)}",
            f"{v.ratio:.2f}",
            f"{v.dominating} {100 * v.share:.0f} %",
            _ms(v.measured),
        )
        for v in pruning.kept[:_SHOWN]
    ]
    terminal.show_table(("", "variant", "predicted", "95 % interval", "ratio", "dominates", "measured"), rows)
    if len(pruning.kept) > _SHOWN:
        terminal.show(f"and {len(pruning.kept) - _SHOWN} more are kept; --out writes all")
    left_out = [f"left out: {cause} ({count})" for cause, count in pruning.excluded.items()]
    doubtful = [f"doubtful: {line}" for line in pruning.doubt_lines]
    terminal.show(pruning.decision.explanation, *left_out, *doubtful, *([] if check is None else [f"{check}; on {on}"]))


def _ms(seconds: float) -> str:
    return "" if math.isnan(seconds) else f"{1e3 * seconds:.4g} ms"


def prune_table(
    context: typer.Context,
    table: Annotated[
        Path, typer.Argument(help="Measured configurations: what Kernel Tuner, KTT or CLBlast wrote, or a table (CSV).")
    ],
    description: Annotated[
        str,
        typer.Argument(autocompletion=complete_description, help="Description of the kernel: a name, or a YAML file."),
    ],
    *,
    keep: _KeepOption = "10%",
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="Use this many rows of TABLE as measurements, and the others to judge the result."),
    ] = None,
    device: Annotated[str, typer.Option(help="Name of the device; by default TABLE's.")] = "",
    seed: _SeedOption = 0,
    machine: MachineOption = None,
    out: OutFolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the few configurations of a kernel that are worth measuring, from a tuner's measurements of some.

    The kernel need not be a loopy kernel: a description states its tunables, and formulas of its features.
    """
    import numpy as np

    from perflex.cli.arguments import require_writable_folder
    from perflex.machines.files import load_machine
    from perflex.search.described.space_file import load_described_space
    from perflex.search.pruning.promise import Promise
    from perflex.search.pruning.pruning import prune as pruned
    from perflex.search.pruning.report import draw_times

    terminal, wanted = terminal_of(context), read_keep(keep)
    if out is not None:
        require_writable_folder(out, context)
    facts = load_machine(machine) if machine is not None else None
    with terminal.warnings_shown():
        space = load_described_space(table, description, device=device or None, machine=facts)
        # Without samples all of the file is the batch, and what it does not hold is what there is to choose from.
        batch = None if samples is None else space.sample(samples, seed)
        whole = space.complete() if samples is None else space
        pruning = pruned(whole, keep=wanted, measured=batch)
    promised = isinstance(wanted, Promise)
    if out is not None:
        pruning.to_csv(out / "pruning.csv")
        title = f"{len(pruning.kept)} of {len(whole)} configurations of {whole.description.name} kept"
        kept = np.isin(np.arange(len(whole)), pruning.decision.kept)
        draw_times(out / "pruning.png", 1e3 * pruning.predicted, 1e3 * whole.known, kept, title)
    if as_json:
        print_json(_table_content(pruning, promised=promised))
    else:
        _show_configurations(terminal, pruning, promised=promised)


def _table_content(pruning: DescribedPruning, *, promised: bool) -> dict[str, Any]:
    decision = pruning.decision
    return {
        "description": pruning.candidates.description.name,
        "facts": pruning.candidates.facts,
        "configurations": len(pruning.predicted),
        "batch": int(pruning.batch.sum()),
        "kept": len(pruning.kept),
        "explanation": decision.explanation if promised else None,
        "met": decision.met if promised else None,
        "covered": pruning.keeps_near_best,
        "errors": pruning.errors,
        "excluded": dict(pruning.excluded),
        "parameters": pruning.parameters,
        "table": pruning.table(),
    }


def _show_configurations(terminal: Terminal, pruning: DescribedPruning, *, promised: bool) -> None:
    from perflex.fit.result import describe_errors

    family, rows = pruning.candidates.description, pruning.table()[:_SHOWN]
    names = pruning.candidates.told_apart_by
    varied = [name for name in names if len({row[name] for row in rows}) > 1]
    cells = [
        (
            str(rank),
            *(_ms(row[name]) for name in ("predicted_s", "measured_s")),
            *(f"{row[name]:g}" for name in varied),
            _ms(row["analytic_s"]),
            f"{row['dominates']} {100 * row['share']:.0f} %",
        )
        for rank, row in enumerate(rows, start=1)
    ]
    terminal.show_table(["", "predicted", "measured", *varied, "analytic", "dominates"], cells)
    lines = []
    if alike := ", ".join(f"{name} {rows[0][name]:g}" for name in names if rows and name not in varied):
        lines.append(f"the same in all rows: {alike}")
    kept, measured = len(pruning.kept), int(pruning.batch.sum())
    lines.append(f"{kept} of {len(pruning.predicted)} configurations of {family.name} kept, {measured} measured")
    lines.append(pruning.candidates.facts)
    if kept > _SHOWN:
        lines.append(f"the first {_SHOWN} are shown; --out writes all")
    if promised:
        lines.append(pruning.decision.explanation)
    lines += [f"{name}: {family.parameters[name].meaning}" for name in sorted({str(row["dominates"]) for row in rows})]
    lines += [f"left out: {cause} ({count})" for cause, count in pruning.excluded.items()]
    lines += [f"relative error, {name}: {describe_errors(errors)}" for name, errors in pruning.relative_errors.items()]
    near = pruning.keeps_near_best
    if near is not None:
        within = f"{100 * pruning.allowed_loss:.3g} %"
        lines.append(f"a configuration within {within} of the best known is {'' if near else 'not '}kept")
    terminal.show(*lines)


def tune(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar=_SPACE_WORDS, help=_SPACE_HELP)],
    *,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Most variants to time.  [default: 10%, at least 30]")
    ] = None,
    device: DeviceOption = "",
    machine: MachineOption = None,
    seed: _SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Search a kernel's variants for the fastest: time some, learn, time the most promising, and so on.

    The calibration says what to expect of each variant; what is timed corrects it. Without one, counts and settings are
    learned from. Variants are timed on --device, else on the device of the calibration or of --machine.
    """
    from perflex.cli.arguments import names_kernel, read_calibration, read_sizes
    from perflex.cli.kernel_files import load_variants
    from perflex.progress import RunOptions
    from perflex.search.tuning.tuner import SearchOptions
    from perflex.search.tuning.tuning import tune as searched

    loaded: Calibration | None = None
    if machine is not None or not names_kernel(words[0]):
        loaded, words = read_calibration(words, machine, SPACE_FILES)
    space, *sizes = words
    terminal, variants, given = terminal_of(context), load_variants(space), read_sizes(sizes)
    with terminal.warnings_shown(doubts=False), terminal.progress("tune:") as progress:
        found = searched(
            variants,
            given,
            device=device or None,
            calibration=loaded,
            machine=machine,
            options=SearchOptions(budget=budget, seed=seed),
            run=RunOptions(progress=progress),
        )
    terminal.warn_of_sizes(given, [found.kernel()], {**variants.sizes, **given})
    if as_json:
        print_json(_tuning_content(found))
        return
    timed = sorted((step for step in found.history if not math.isnan(step.seconds)), key=lambda step: step.seconds)
    first = {step.number: step.seconds for step in timed}
    rows = [
        (str(place), step.name, _ms(first[step.number]), _ms(step.seconds), f"{step.seconds / found.best.seconds:.2f}")
        for place, step in enumerate((found.again or timed)[:_SHOWN_TIMED], start=1)
    ]
    terminal.show_table(("", "variant", "measured", "timed again", "ratio"), rows)
    terminal.show(str(found))


def _tuning_content(found: TuningResult) -> dict[str, Any]:
    return {
        "best": {"variant": found.best.name, "settings": dict(found.best.settings), "measured_s": found.best.seconds},
        "device": found.device,
        "variants": len(found.space),
        "kept_promise": found.kept_promise,
        "failures": dict(found.failures),
        "excluded": dict(found.space.excluded),
        "doubts": list(found.doubts),
        "seconds": {"describing": found.extract_s, "measuring": found.cost_s},
        "history": [{"variant": step.name, "measured_s": step.seconds} for step in found.history],
        "again": [{"variant": step.name, "measured_s": step.seconds} for step in found.again],
    }
