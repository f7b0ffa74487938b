"""Comments above the fields of results stand in the generated reference."""

import importlib.util
from pathlib import Path

SPEC = importlib.util.spec_from_file_location(
    "generated_reference", Path(__file__).parents[2] / "docs" / "_ext" / "generated_reference.py"
)
reference = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(reference)


class Said:
    """A result."""

    plain: int
    # Two of
    # them.
    low: float
    high: float = 0.0
    # No field.
    number = 3
    other: str = ""


class Named:
    """Another one.

    Attributes
    ----------
    low
        Stands here.
    """

    # Not this.
    low: float


def test_comments_belong_to_the_fields_below_them():
    assert reference.fields(Said) == ["", "   ``low``, ``high``", "      Two of them."]
    assert reference.fields(Named) == []


def test_every_result_says_something_of_its_fields():
    page = reference.results_page()
    for name in ("Ranking", "Tuning", "FitResult", "Volumes", "EcmEstimate", "BlockChoice"):
        assert "   ``" in page.partition(f"## `{name}`\n")[2].partition("\n## ")[0], name
