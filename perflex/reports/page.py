"""The page: its parts in order, its style for screen and print, and the script that sorts tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from perflex.html import STYLE, Html, element, joined
from perflex.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.html import Content


@dataclass(frozen=True)
class Part:
    """What a report says of one file.

    Attributes
    ----------
    title
        What the file is, and of what.
    notices
        What to know before the numbers are used, the gravest first; empty where there is nothing.
    body
        Summary, tables and pictures.
    provenance
        Where the numbers come from.
    """

    title: str
    notices: Sequence[Html]
    body: Content
    provenance: Content


def page(parts: Sequence[Part], title: str = "perflex report") -> str:
    """Return the page as a text: warnings of all parts first, then each part, then where the numbers come from."""
    several = len(parts) > 1
    names = [f"part-{number}" for number in range(1, len(parts) + 1)]
    made = datetime.now(UTC).isoformat(timespec="seconds")
    body = element(
        "main",
        element("h1", title if several else parts[0].title),
        _contents(parts, names) if several else None,
        _notices(parts, names, several=several),
        (
            element("section", element("h2", part.title) if several else None, part.body, id=name)
            for part, name in zip(parts, names, strict=True)
        ),
        element(
            "section",
            element("h2", "Provenance"),
            ((element("h3", part.title) if several else None, part.provenance) for part in parts),
            element("p", f"Report of perflex {__version__}, {made}"),
            id="provenance",
        ),
        class_="perflex",
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        # The page needs nothing from outside, and a name in it that slipped through could load nothing.
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", title if several else parts[0].title),
        element("style", Html(STYLE + _PAGE_STYLE)),
    )
    return f'<!DOCTYPE html>\n<html lang="en">{head}{element("body", body, element("script", Html(_SCRIPT)))}</html>\n'


def _contents(parts: Sequence[Part], names: Sequence[str]) -> Html:
    links = [element("li", element("a", part.title, href=f"#{name}")) for part, name in zip(parts, names, strict=True)]
    links.append(element("li", element("a", "Provenance", href="#provenance")))
    return element("nav", element("ul", links), aria_label="Contents")


def _notices(parts: Sequence[Part], names: Sequence[str], *, several: bool) -> Html:
    found = [
        joined(
            element("h3", element("a", part.title, href=f"#{name}")) if several else None,
            part.notices or element("p", "Nothing to warn of."),
        )
        for part, name in zip(parts, names, strict=True)
    ]
    return element("section", element("h2", "Warnings"), found, id="warnings")


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

_PAGE_STYLE = """
:root {
  color-scheme: light dark;
  --perflex-page: #ffffff; --perflex-text: #1b1b1b; --perflex-link: #0b57a4; --perflex-band: #e2e2e2;
  --perflex-grey: #666666; --perflex-shade: #f4f4f4;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --perflex-page: #16181b; --perflex-text: #e4e4e4; --perflex-link: #7db8f0; --perflex-band: #34383d;
    --perflex-grey: #a0a0a0; --perflex-shade: #212429;
    --perflex-blue: #56a8e0; --perflex-orange: #f08a4b; --perflex-green: #3fc49a; --perflex-pink: #dd9bc2;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--perflex-page); color: var(--perflex-text);
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
}
main { max-width: 66rem; margin: 0 auto; padding: 1.5rem 1.25rem 3rem; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 0.6rem; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 0.4rem; }
p { max-width: 75ch; }
a { color: var(--perflex-link); }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: 0.3rem 1.4rem; }
figure { margin: 1rem 0; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; color: var(--perflex-text); }
/* The fonts that the text was measured with, or narrower ones. */
figure svg text { fill: currentColor; font-family: "DejaVu Sans", Verdana, sans-serif; }
summary { cursor: pointer; padding: 0.3rem 0; }
pre, .formula { background: var(--perflex-shade); padding: 0.6rem 0.8rem; border-radius: 4px; }
.notice { background: var(--perflex-shade); max-width: none; }
th button {
  all: unset; cursor: pointer; font: inherit; color: inherit;
}
th button:focus-visible, .scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--perflex-link); }
th button::after { content: "\\a0\\2195"; opacity: 0.35; }
th.number button::before { content: "\\2195\\a0"; opacity: 0.35; }
th[aria-sort="ascending"] button::after { content: "\\a0\\2191"; opacity: 1; }
th[aria-sort="descending"] button::after { content: "\\a0\\2193"; opacity: 1; }
th.number[aria-sort="ascending"] button::before { content: "\\2191\\a0"; opacity: 1; }
th.number[aria-sort="descending"] button::before { content: "\\2193\\a0"; opacity: 1; }
/* Above its numbers a heading ends where they end. */
th.number button::after { content: none !important; }
tbody tr:hover { background: var(--perflex-shade); }
@media print {
  body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  nav, th button::after, th button::before { display: none; }
  .perflex .scroll { overflow: visible; }
  tr, figure, .notice { break-inside: avoid; }
  h2, h3, caption { break-after: avoid; }
}
"""

# Without it the tables stand as they are; so the buttons are made here, too.
_SCRIPT = """
"use strict";
const order = new Intl.Collator("en", { numeric: true });
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row) => {
        const cell = row.cells[column];
        const number = cell.dataset.value;
        return { row, value: number === undefined ? cell.textContent : Number(number), empty: !cell.textContent };
      });
      rows.sort((a, b) => {
        if (a.empty || b.empty) return a.empty - b.empty;
        const both = typeof a.value === "number" && typeof b.value === "number";
        const way = both ? Math.sign(a.value - b.value) || 0 : order.compare(String(a.value), String(b.value));
        return sign * way;
      });
      body.append(...rows.map((entry) => entry.row));
    });
  });
}
"""
