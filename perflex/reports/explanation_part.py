"""What a page says of why a kernel takes as long as it does: the source, with bars beside its lines and accesses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.calibration.prediction import doubt_lines, prediction_table
from perflex.html import render
from perflex.reports.page import Part, calibrated_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.analysis.explanation import Explanation
    from perflex.analysis.finding import Finding


@dataclass(frozen=True)
class ListedLine:
    """A line of the source on a page."""

    number: int
    # HTML.
    code: Any
    # Shares of the predicted time that go with it and with its accesses; None for lines that do nothing.
    share: float | None
    accesses: Sequence[tuple[str, float]]
    findings: Sequence[Finding]


def listing(one: Explanation) -> list[ListedLine]:
    """Return the lines of a kernel from source code, from that of its name on; none of others."""
    shares = {line.line: line.share for line in one.lines if line.line}
    if not shares or one.case is None or one.case.kernel is None:
        return []
    accesses, code = one.access_shares(), _highlighted(one.case.kernel.source)
    numbers = [*one.case.function_lines, *shares]
    return [
        ListedLine(
            number,
            code[number - 1],
            shares.get(number),
            accesses.get(str(number), ()),
            [finding for finding in one.findings if finding.line == str(number)],
        )
        for number in range(min(numbers), max(numbers) + 1)
    ]


def _highlighted(source: str) -> list[Any]:
    """Return the lines of C as HTML with classes for keywords, comments and so on."""
    from markupsafe import Markup
    from pygments import highlight
    from pygments.formatters.html import HtmlFormatter
    from pygments.lexers.c_cpp import CppLexer

    lexer = CppLexer(stripnl=False, ensurenl=False)
    text = highlight(source, lexer, HtmlFormatter(nowrap=True, classprefix="code-"))
    return [Markup(line) for line in text.split("\n")]  # noqa: S704 - made and escaped there


def explanation_part(found: Sequence[Explanation]) -> Part:
    """Return what a page says of some kernels, or of one at some sizes, side by side."""
    first = found[0].prediction
    body = render(
        "explanation_report.html",
        found=found,
        times=[prediction_table([one.prediction]) for one in found],
        listing=listing,
    )
    notices = [
        ("warning", f"{one.prediction.kernel}: {line}") for one in found for line in doubt_lines([one.prediction])
    ]
    notices += [("remark", f"{one.prediction.kernel}: {one.unknown}") for one in found if one.unknown]
    where = first.calibration.device.get("name") or "an unknown device"
    names = " and ".join(dict.fromkeys(one.prediction.kernel for one in found))
    return Part(f"What limits {names} on {where}", list(dict.fromkeys(notices)), body, calibrated_by(first.calibration))
