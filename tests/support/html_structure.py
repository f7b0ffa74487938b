"""Reads HTML as strictly as XML: tags closed in order, no attribute twice; identifiers unique, tables whole."""

import re
from dataclasses import dataclass
from functools import cached_property
from xml.etree import ElementTree as ET


def text_of(node):
    return "".join(node.itertext())


def local(name):
    """Return a name without its namespace, which those of pictures have."""
    return name.rpartition("}")[2]


@dataclass
class Table:
    node: ET.Element

    @property
    def caption(self):
        return self.node.findtext("caption", "")

    def _cells(self, make):
        return [[make(cell) for cell in row] for row in self.node.iter("tr")]

    @cached_property
    def rows(self):
        return self._cells(text_of)

    @cached_property
    def values(self):
        return self._cells(lambda cell: cell.get("data-value"))

    @property
    def head(self):
        return self.rows[0]

    def column(self, heading):
        place = self.head.index(heading)
        return [row[place] for row in self.rows[1:]]

    def numbers(self, heading):
        place = self.head.index(heading)
        return [None if row[place] is None else float(row[place]) for row in self.values[1:]]


class Document:
    """A parsed page, or a piece of one, without its styles and scripts."""

    def __init__(self, text):
        text = re.sub(r"(?is)<!doctype html>|<(script|style)\b.*?</\1>|<\?xml.*?\?>", "", text)
        text = re.sub(r"<(meta|br)\b([^>]*?)/?>", r"<\1\2/>", text)
        self.nodes = [*ET.fromstring(f"<piece>{text}</piece>").iter()]  # noqa: S314 - our own
        self.text = text_of(self.nodes[0])
        given = [(local(name), value) for node in self.nodes for name, value in node.items()]
        self.identifiers = [value for name, value in given if name == "id"]
        self.links = [value for name, value in given if name in {"href", "src", "action"}]
        self.tables = [Table(node) for node in self.nodes if node.tag == "table"]
        self.headings = [(node.tag, text_of(node)) for node in self.nodes if node.tag in {"h1", "h2", "h3"}]
        classes = [(node.get("class", "").split(), node) for node in self.nodes]
        self.notices = [(words[1], text_of(node)) for words, node in classes if words[:1] == ["notice"]]

    def table(self, caption):
        (found,) = [table for table in self.tables if table.caption.startswith(caption)]
        return found


def checked(text):
    """Return a document that is well formed, and loads nothing."""
    found = Document(text)
    assert sorted(found.identifiers) == sorted(set(found.identifiers))
    assert all(link.startswith("#") for link in found.links)
    assert {link[1:] for link in found.links} <= set(found.identifiers)
    for table in found.tables:
        assert len({len(row) for row in table.rows}) == 1
    return found
