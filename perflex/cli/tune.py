"""``perflex tune``: the fastest variant, found by timing some."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from perflex.cli.cluster import device_named
from perflex.cli.json_output import print_json
from perflex.cli.options import SPACE_FILES, DeviceOption, JsonOption, MachineOption
from perflex.cli.rank import SPACE_HELP, SPACE_WORDS, CompileOption, SeedOption, counting
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from perflex.calibration.calibration import Calibration
    from perflex.search.promise import Promise
    from perflex.search.tuning import Tuning

_SHOWN = 10


def tune(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar=SPACE_WORDS, help=SPACE_HELP)],
    *,
    measurements: Annotated[
        int | None, typer.Option(min=1, help="Most variants to time.  [default: 10%, at least 30]")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Most time of building and timing, such as 90s or 5min.")
    ] = None,
    promise: Annotated[
        str,
        typer.Option(
            metavar="LOSS[,CONFIDENCE]",
            help="Stop when no variant is faster by more than the loss, with this confidence; none: search on.",
        ),
    ] = "0.05,0.95",
    times: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Known times to start from: of Kernel Tuner, T4, or a table (CSV)."),
    ] = None,
    compiled: CompileOption = 0,
    check: Annotated[
        bool, typer.Option("--check", help="Leave out variants whose results differ from those of the first.")
    ] = False,
    device: DeviceOption = "",
    machine: MachineOption = None,
    seed: SeedOption = 0,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE.json", help="Write all measurements as a T4 file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Search a kernel's variants for the fastest: time some, learn, time the most promising, and so on.

    The calibration says what to expect of each variant; what is timed corrects it. Without one, counts and settings are
    learned from. Variants are timed on --device, else on the device of the calibration or of --machine.
    """
    from perflex.cli.arguments import ArgumentError, names_kernel, read_calibration, read_seconds, read_sizes
    from perflex.cli.kernel_files import load_variants, require_sizes_of
    from perflex.cli.launches import is_launch
    from perflex.file_io import require_writable
    from perflex.search.tuner import SearchOptions
    from perflex.search.tuning import tune as searched

    options = SearchOptions(
        measurements,
        None if budget is None else read_seconds(budget, "--budget"),
        _read_promise(promise),
        seed=seed,
        measured={} if times is None else times,
        compiled=compiled,
        answer=True if check else None,
    )
    if out is not None:
        require_writable(out)
    loaded: Calibration | None = None
    if machine is not None or not names_kernel(words[0]):
        loaded, words = read_calibration(words, machine, SPACE_FILES)
    elif compiled:
        raise ArgumentError("--compile takes what a calibration expects to be fast; give one, or --machine")
    space, *sizes = words
    terminal, given = terminal_of(context), read_sizes(sizes)
    variants: Any = load_variants(space)
    if is_launch(variants):
        msg = "perflex does not time Triton kernels; perflex.tune(..., measure=) takes a function of yours that does"
        raise ArgumentError(msg, word=space)
    require_sizes_of(variants, given)
    there = device_named(device, loaded)
    with terminal.warnings_shown(doubts=False), there as on, counting(terminal, "tune:", variants) as run:
        found = searched(variants, given, calibration=loaded, device=on, machine=machine, options=options, run=run)
    if out is not None:
        found.save(out)
    if as_json:
        print_json(_content(found))
        return
    terminal.show_result(found.table(), most=_SHOWN)
    terminal.show(str(found))


def _read_promise(word: str) -> Promise | Literal[False]:
    from perflex.cli.arguments import ArgumentError
    from perflex.search.promise import Promise

    if word == "none":
        return False
    try:
        return Promise(*map(float, word.split(",", 1)))
    except ValueError as error:
        msg = f"cannot read --promise {word!r} ({error}); write none, or loss and confidence, such as 0.05,0.95"
        raise ArgumentError(msg, word=word) from error


def _content(found: Tuning) -> dict[str, Any]:
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
