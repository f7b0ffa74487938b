"""Reads HTML as strictly as a reader of its source would: tags closed in order, identifiers unique, tables whole."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br"}


@dataclass
class Table:
    caption: str = ""
    rows: list[list[str]] = field(default_factory=list)
    values: list[list[str | None]] = field(default_factory=list)

    @property
    def head(self):
        return self.rows[0]

    def column(self, heading):
        place = self.head.index(heading)
        return [row[place] for row in self.rows[1:]]

    def numbers(self, heading):
        place = self.head.index(heading)
        return [None if row[place] is None else float(row[place]) for row in self.values[1:]]


class Document(HTMLParser):
    """A parsed page, or a piece of one."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.errors: list[str] = []
        self.identifiers: list[str] = []
        self.links: list[str] = []
        self.tables: list[Table] = []
        self.notices: list[tuple[str, str]] = []
        self.headings: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self._within: list[list[str]] = []
        self._classes: list[str] = []
        self.feed(text)
        self.close()
        self.errors += [f"<{tag}> is never closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if len(given) < len(attrs):
            self.errors.append(f"<{tag}> has an attribute twice")
        if given.get("id") is not None:
            self.identifiers.append(str(given["id"]))
        self.links += [str(given[name]) for name in ("href", "src", "xlink:href", "action") if given.get(name)]
        if tag in VOID:
            return
        self.open.append(tag)
        self._within.append([])
        self._classes.append(given.get("class") or "")
        if tag == "table":
            self.tables.append(Table())
        elif tag == "tr":
            self.tables[-1].rows.append([])
            self.tables[-1].values.append([])
        elif tag in {"td", "th"}:
            self.tables[-1].values[-1].append(given.get("data-value"))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.errors.append(f"</{tag}> closes {self.open[-1:]}, line {self.getpos()[0]}")
            return
        self.open.pop()
        inside, classes = "".join(self._within.pop()), self._classes.pop()
        if self._within and tag not in {"style", "script"}:
            self._within[-1].append(inside)
        if tag in {"td", "th"}:
            self.tables[-1].rows[-1].append(inside)
        elif tag == "caption":
            self.tables[-1].caption = inside
        elif classes.startswith("notice"):
            self.notices.append((classes.split()[1], inside))
        elif tag in {"h1", "h2", "h3"}:
            self.headings.append((tag, inside))

    def handle_data(self, data):
        if self._within:
            self._within[-1].append(data)
        if not {"style", "script"} & set(self.open):
            self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)

    def table(self, caption):
        (found,) = [table for table in self.tables if table.caption.startswith(caption)]
        return found


def checked(text):
    """Return a document that is well formed, and loads nothing."""
    found = Document(text)
    assert found.errors == []
    assert sorted(found.identifiers) == sorted(set(found.identifiers))
    assert all(link.startswith("#") for link in found.links)
    assert {link[1:] for link in found.links} <= set(found.identifiers)
    for table in found.tables:
        assert len({len(row) for row in table.rows}) == 1
    return found
