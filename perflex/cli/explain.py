"""``perflex explain``: what limits a kernel, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.completion import complete_device
from perflex.cli.json_output import picked, print_json, stamped
from perflex.cli.options import KERNEL_FILES, SERIES, JsonOption, OutFolderOption, RegistersOption, takes_options
from perflex.cli.predictor import Asked
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.analysis.explanation import Explanation
    from perflex.analysis.messages import Message
    from perflex.cli.terminal import Terminal


@takes_options("asked", Asked)
def explain(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CALIBRATION] KERNEL... [SIZES]...",
            help=f"A calibration file, unless --machine names a GPU; of each kernel {KERNEL_FILES}; {SERIES}.",
        ),
    ],
    *,
    asked: Asked,
    registers: RegistersOption = None,
    code: Annotated[
        str,
        typer.Option(
            autocompletion=complete_device,
            help="Compile the kernel, for registers and spills: for a device here, or 'machine': for --machine.",
        ),
    ] = "",
    warnings: Annotated[
        bool, typer.Option("--warnings", help="Print findings alone, a line each, as compilers write warnings.")
    ] = False,
    sarif: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write findings as SARIF 2.1.0, which code hosts show.")
    ] = None,
    as_json: JsonOption = False,
    out: OutFolderOption = None,
) -> None:
    """Say what limits a kernel, which flaws it has, and how long it would take without each of them.

    With --out a page is written (report.html): the source with a bar beside each line and access.
    """
    from perflex.analysis.explanation import explain as explained
    from perflex.analysis.messages import messages
    from perflex.cli.arguments import file_and_name, require_known_sizes, require_writable_folder
    from perflex.cli.features import built_code
    from perflex.cli.kernel_files import load_kernel
    from perflex.file_io import require_writable

    names, series, predictor = asked.read(words)
    units = [load_kernel(name) for name in names]
    require_known_sizes(series[0], units, series[0])
    if out is not None:
        require_writable_folder(out, context)
    if sarif is not None:
        require_writable(sarif)
    terminal = terminal_of(context)
    found: list[tuple[str, Explanation]] = []
    told: list[Message] = []
    with terminal.warnings_shown(doubts=False):
        for word, unit in zip(names, units, strict=True):
            (place, name), calibration = file_and_name(word), predictor.of(unit)
            for at in series:
                known: dict[str, Any] = {
                    "machine": asked.machine,
                    "registers": registers,
                    "name": name if place else "",
                }
                known["code"] = built_code(unit, at, code, asked.machine) if code else None
                one = explained(unit, at, calibration, asked.confidence, **known)
                found.append((word, one))
                told += messages(one, place or word, name, one.prediction.at if len(series) > 1 else "")
    paths = _write([one for _, one in found], told, out, sarif)
    if as_json:
        print_json([stamped("perflex-explanation/1", {"kernel": word, **_content(one)}) for word, one in found])
    elif warnings:
        # What reads them reads lines, however long.
        for line in dict.fromkeys(map(str, told)):
            typer.echo(line)
    else:
        for _, one in found:
            _show(terminal, one)
        terminal.show_paths(*paths)


def _write(found: Sequence[Explanation], told: Sequence[Message], out: Path | None, sarif: Path | None) -> list[Path]:
    """Write a page and a log, where they are wanted; return their paths."""
    paths = []
    if out is not None:
        from perflex.reports.explanation_part import explanation_part
        from perflex.reports.page import write_page

        paths.append(out / "report.html")
        write_page(paths[-1], [explanation_part(found)])
    if sarif is not None:
        import json

        from perflex.analysis.messages import sarif as log_of
        from perflex.file_io import saving

        paths.append(sarif)
        with saving(sarif) as stream:
            json.dump(log_of(told), stream, indent=2)
    return paths


def _content(one: Explanation) -> dict[str, Any]:
    """Return what ``--json`` prints of an explanation."""
    prediction = one.prediction
    return {
        "sizes": prediction.sizes,
        "predicted_s": prediction.seconds,
        "low_s": prediction.low,
        "high_s": prediction.high,
        **picked(prediction, "confidence", "knowledge", "doubts"),
        "limiters": one.limiter_table().records(),
        "findings": [
            picked(finding, "kind", "line", "column", "what", "cure", "found", "mended", "reason")
            | dict(zip(("mended_s", "low_s", "high_s"), row[3:6], strict=True))
            for finding, row in zip(one.findings, one.finding_table().rows, strict=True)
        ],
        "unknown": one.unknown,
    }


def _show(terminal: Terminal, one: Explanation) -> None:
    from perflex.analysis.messages import saving_text
    from perflex.calibration.prediction import doubt_lines, prediction_table

    terminal.show_result(prediction_table([one.prediction]))
    terminal.show(*doubt_lines([one.prediction]))
    terminal.show_result(one.limiter_table())
    for finding, following in zip(one.findings, (*one.findings, None)[1:], strict=True):
        terminal.show(f"{finding.where}: {finding.what} [{finding.kind}]", bold=len(finding.where))
        # What several lines have in common is said once.
        if following is None or (finding.cure, finding.change) != (following.cure, following.change):
            terminal.show(f"    {saving_text(one, finding)}", f"    cure: {finding.cure}")
    if one.unknown:
        terminal.show(one.unknown)
    elif not one.findings:
        terminal.show("no flaws found")
