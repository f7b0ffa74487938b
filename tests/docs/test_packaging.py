"""CITATION.cff says what pyproject.toml says."""

import re
import tomllib

import yaml

import perflex
from support.pages import TOP

PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def load(name):
    return yaml.safe_load((TOP / name).read_text(encoding="utf-8"))


def test_citation_has_the_keys_of_its_format():
    citation = load("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    assert (citation["title"], citation["version"]) == ("perflex", perflex.__version__)
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == [{"name": "the perflex developers"}]
    assert len(citation["references"]) == 5
    for reference in citation["references"]:
        assert {"type", "title", "authors"} <= set(reference)
        assert reference["type"] in {"article", "conference-paper"}
        assert all(set(author) == {"given-names", "family-names"} for author in reference["authors"])
        assert re.fullmatch(r"10\.\d{4,9}/\S+", reference.get("doi", "10.1234/none"))


def test_versions_are_one():
    assert PROJECT["version"] == perflex.__version__


def test_metadata_are_complete():
    assert {"description", "readme", "license", "keywords", "classifiers", "authors"} <= set(PROJECT)
    assert len(PROJECT["description"]) <= 120
    # An address of the project appears here when there is one.
    assert all(url.startswith("https://") for url in PROJECT.get("urls", {}).values())
