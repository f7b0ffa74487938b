"""``perflex tune``: the fastest variant, found by timing some."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.json_output import print_json
from perflex.cli.options import SPACE_FILES, DeviceOption, JsonOption, MachineOption
from perflex.cli.prune import SPACE_HELP, SPACE_WORDS, SeedOption, ms
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from perflex.calibration.calibration import Calibration
    from perflex.search.tuning.tuning import TuningResult

_SHOWN = 10


def tune(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar=SPACE_WORDS, help=SPACE_HELP)],
    *,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Most variants to time.  [default: 10%, at least 30]")
    ] = None,
    device: DeviceOption = "",
    machine: MachineOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Search a kernel's variants for the fastest: time some, learn, time the most promising, and so on.

    The calibration says what to expect of each variant; what is timed corrects it. Without one, counts and settings are
    learned from. Variants are timed on --device, else on the device of the calibration or of --machine.
    """
    from perflex.cli.arguments import names_kernel, read_calibration, read_sizes
    from perflex.cli.kernel_files import load_variants, require_sizes_of
    from perflex.progress import RunOptions
    from perflex.search.tuning.tuner import SearchOptions
    from perflex.search.tuning.tuning import tune as searched

    loaded: Calibration | None = None
    if machine is not None or not names_kernel(words[0]):
        loaded, words = read_calibration(words, machine, SPACE_FILES)
    space, *sizes = words
    terminal, variants, given = terminal_of(context), load_variants(space), read_sizes(sizes)
    require_sizes_of(variants, given)
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
    if as_json:
        print_json(_tuning_content(found))
        return
    timed = sorted((step for step in found.history if not math.isnan(step.seconds)), key=lambda step: step.seconds)
    first = {step.number: step.seconds for step in timed}
    rows = [
        (str(place), step.name, ms(first[step.number]), ms(step.seconds), f"{step.seconds / found.best.seconds:.2f}")
        for place, step in enumerate((found.again or timed)[:_SHOWN], start=1)
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
