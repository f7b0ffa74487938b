"""External addresses are well-formed, pictures are shown with the command that made them, tables are narrow."""

import re
from urllib.parse import urlsplit

import pytest

from support.pages import TOP, pages

WIDEST_TABLE = 100
BENCHMARKS = sorted((TOP / "docs" / "benchmarks").glob("*.md"))
ADDRESS = re.compile(r"\bhttps?://[^\s<>()\[\]`\"'\\]+(?:\([^\s()]*\)[^\s<>()\[\]`\"']*)?")
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)|```\{(?:figure|image)\} +(\S+)")


def addresses():
    """Return the external addresses in pages and citations, with the file that each stands in."""
    files = [*pages(), TOP / "CHANGELOG.md", TOP / "CITATION.cff"]
    return {
        found.rstrip(".,;:*"): str(path.relative_to(TOP))
        for path in files
        for found in ADDRESS.findall(path.read_text(encoding="utf-8"))
    }


def fault(address):
    """Return what is wrong with an address, nothing where it is right."""
    parts = urlsplit(address)
    if parts.scheme != "https":
        return "not https"
    if not re.fullmatch(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}", parts.hostname or ""):
        return "no public host name"
    if parts.username or parts.port:
        return "a user or a port"
    return (
        "" if re.fullmatch(r"[\w./~%+@:;,=()&#?!-]*", parts.path + parts.query + parts.fragment) else "odd characters"
    )


def test_external_addresses_are_well_formed():
    assert addresses()
    # Addresses of a program on the reader's machine are examples, not links.
    local = re.compile(r"https?://(?:localhost|127\.0\.0\.1)\b")
    faults = {address: (fault(address), place) for address, place in addresses().items() if not local.match(address)}
    assert {address: wrong for address, wrong in faults.items() if wrong[0]} == {}


@pytest.mark.parametrize(
    "address", ["http://example.org/", "https://host/x", "https://a..org", "https://u@example.org", "https://x.org:81/"]
)
def test_wrong_addresses_are_found(address):
    assert fault(address)


def shown_pictures():
    """Return the pictures that pages show, each with those pages."""
    shown: dict[str, set[str]] = {}
    for page in pages():
        for groups in PICTURE.findall(page.read_text(encoding="utf-8")):
            target = groups[0] or groups[1]
            if "://" not in target:
                path = (page.parent / target).resolve().relative_to(TOP)
                shown.setdefault(str(path), set()).add(str(page.relative_to(TOP)))
    return shown


def kept_pictures():
    ends = {".png", ".svg", ".jpg"}
    made = {"_build", "jupyter_execute", "generated"}
    found = [path.relative_to(TOP) for path in (TOP / "docs").rglob("*") if path.suffix in ends]
    return {str(path) for path in found if not made & set(path.parts)}


def test_each_picture_is_shown_and_each_shown_is_there():
    assert set(shown_pictures()) == kept_pictures()


def test_the_gallery_shows_each_picture_with_the_command_that_made_it():
    gallery = (TOP / "docs" / "gallery.md").read_text(encoding="utf-8")
    sections = re.split(r"(?m)^#+ ", gallery)
    commands_of = {}
    for section in sections:
        for groups in PICTURE.findall(section):
            path = (TOP / "docs" / (groups[0] or groups[1])).resolve().relative_to(TOP)
            commands_of[str(path)] = re.findall(r"(?m)^\$ (?:perflex|python) .+$", section)
    assert kept_pictures() - set(commands_of) == set()
    assert [picture for picture, found in commands_of.items() if not found] == []


@pytest.mark.parametrize("page", BENCHMARKS, ids=lambda page: page.name)
def test_benchmarks_have_narrow_tables(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("|") and len(line) > WIDEST_TABLE] == []


@pytest.mark.parametrize("page", [page for page in BENCHMARKS if page.name != "index.md"], ids=lambda page: page.name)
def test_benchmarks_begin_with_when_where_and_how(page):
    """Each page of figures names, before its first section, the date, the machine and the command."""
    beginning = re.split(r"(?m)^## ", page.read_text(encoding="utf-8"))[0]
    assert [word for word in ("Measured:", "Machine:", "Command:") if f"**{word}**" not in beginning] == []
