"""The page of file formats: its examples are read by what it says reads them."""

import re
from pathlib import Path

import pytest

from perflex import load_machine, load_times
from perflex.models import load_model
from uipick import ALL_GENERATORS, KernelCollection

TOP = Path(__file__).parents[1]
PAGE = (TOP / "docs" / "reference" / "files.md").read_text(encoding="utf-8")


@pytest.fixture
def files(tmp_path):
    """The page's examples, by name."""
    found = {}
    for name, text in re.findall(r"^```\w+ file=(\S+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        found[name] = tmp_path / name
        found[name].write_text(text, encoding="utf-8")
    return found


def test_the_examples_are_read(files):
    assert set(files) == {"model.yaml", "machine.yaml", "times.csv"}
    model = load_model(files["model.yaml"])
    assert set(model.parameters) == {"p_launch", "p_load"}
    for entry in model.measurement_kernels:
        assert KernelCollection(ALL_GENERATORS).matching_generators([tag for tag in entry.tags if ":" not in tag])
    machine = load_machine(files["machine.yaml"])
    assert (machine.kind, machine.compute_units, machine.clock_hz) == ("cpu", 8, 3.2e9)
    assert [row.seconds for row in load_times(files["times.csv"]).rows] == pytest.approx([180.5e-6, 1391e-6])


def test_the_page_names_every_schema():
    schema, used = r"perflex-[a-z]+/\d+", set()
    for folder in ("models", "calib_data"):
        for path in (TOP / folder).rglob("*.yaml"):
            used |= set(re.findall(schema, path.read_text(encoding="utf-8").partition("\n")[0]))
    assert used
    assert used <= set(re.findall(f"`({schema})`", PAGE))
