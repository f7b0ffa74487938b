"""CITATION.cff and the conda recipe say what pyproject.toml says."""

import re
import tomllib

import yaml
from packaging.requirements import Requirement

import perflex
from support.pages import TOP

PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# What conda-forge calls packages otherwise than the Python index.
CONDA_NAMES = {"islpy-barvinok": "islpy", "msgspec": "msgspec-python", "matplotlib": "matplotlib-base"}


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
    assert PROJECT["version"] == perflex.__version__ == load("packaging/conda/recipe.yaml")["context"]["version"]


def test_conda_recipe_asks_for_what_the_project_asks_for():
    recipe = load("packaging/conda/recipe.yaml")
    assert recipe["schema_version"] == 1
    assert set(recipe) <= {"schema_version", "context", "package", "source", "build", "requirements", "tests", "about"}
    wanted = set()
    for text in PROJECT["dependencies"]:
        requirement = Requirement(text)
        wanted.add(f"{CONDA_NAMES.get(requirement.name, requirement.name)} {requirement.specifier}")
    run = set(recipe["requirements"]["run"])
    assert wanted <= run
    assert run - wanted == {"__linux", "python >=${{ python_min }}", "pocl"}
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]
    assert recipe["build"]["python"]["entry_points"] == [f"perflex = {PROJECT['scripts']['perflex']}"]


def test_metadata_are_complete():
    assert {"description", "readme", "license", "keywords", "classifiers", "authors"} <= set(PROJECT)
    assert len(PROJECT["description"]) <= 120
    # An address of the project appears here when there is one.
    assert all(url.startswith("https://") for url in PROJECT.get("urls", {}).values())
