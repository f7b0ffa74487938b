"""Pages of live results: well formed, escaped, warnings first, and the numbers of the results in them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from perflex import Calibration, diagnose, load_machine
from perflex.analysis.roofline import ceilings_of, place_of
from perflex.errors import FileFormatError
from perflex.features import extract_scop
from perflex.reports.calibration_part import calibration_part
from perflex.reports.evaluation_part import evaluation_part
from perflex.reports.page import write_page
from perflex.reports.roofline_part import roofline_part
from sample_kernels import matmul
from support.evaluations import MEASURED, small_evaluation
from support.html_structure import Document, checked

NASTY = "<b>&\"'--></script>"


@pytest.fixture(scope="module")
def calibration():
    return Calibration.load("matmul_sq_amd_epyc_4cores_pocl")


@pytest.fixture(scope="module")
def diagnosis(calibration):
    return diagnose(calibration)


@pytest.fixture(scope="module")
def parts(calibration, diagnosis):
    nasty = {**calibration.device, "name": NASTY, "driver": NASTY}
    machine = load_machine("V100")
    place = place_of(extract_scop(matmul(prefetch=True)), {"n": 512}, machine, ceilings_of(machine))
    places = [replace(place, name=name, seconds=1e-3, seconds_kind="measured") for name in (NASTY, "b", "c", "d")]
    return {
        "calibration": calibration_part(replace(calibration, device=nasty, dropped=((NASTY, NASTY),)), diagnosis),
        "roofline": roofline_part([replace(places[0], absent={"f_txn_x": NASTY}), *places[1:]], machine, "a GPU"),
        "evaluation": evaluation_part(small_evaluation(NASTY)),
    }


@pytest.fixture(scope="module")
def pages(parts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    write_page(folder / "all", list(parts.values()))
    for name, part in parts.items():
        write_page(folder / name, [part])
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["calibration", "roofline", "evaluation", "all"])
def test_a_page_is_whole_and_needs_nothing_from_outside(pages, name):
    found = checked(pages[name])
    assert NASTY in found.text
    assert NASTY not in pages[name]
    assert all(link.startswith(("#picture-", "#part-", "#provenance")) for link in Document(pages[name]).links)
    style = pages[name].partition("<style>")[2].partition("</style>")[0]
    assert not [word for word in ("@import", "url(") if word in style]
    assert all(word in style for word in ("prefers-color-scheme: dark", "@media print"))
    # Warnings, results, provenance, in this order.
    titles = [title for level, title in found.headings if level == "h2"]
    assert (titles[0], titles[-1], len(titles)) == ("Warnings", "Provenance", 5 if name == "all" else 2)
    assert 'class="notice warning"' not in pages[name].partition('id="part-1"')[2]


def test_a_calibration(pages, calibration, diagnosis):
    found = checked(pages["calibration"])
    shown = [(kind, text.partition(": ")[2]) for kind, text in found.notices]
    assert set(diagnosis.notices()) <= set(shown)
    assert all(value in found.text for value in (calibration.date, *calibration.versions.values()))
    parameters = found.table("Parameters")
    assert parameters.column("parameter") == list(calibration.fit)
    assert parameters.numbers("value") == [p.value for p in calibration.fit.parameters]
    kernels = found.table("Measurement kernels")
    assert sorted(kernels.column("kernel")) == sorted(calibration.fit.kernels)
    sizes = [abs(e) for e in kernels.numbers("without itself (%)") if e is not None]
    assert sizes == sorted(sizes, reverse=True)
    accuracy = found.table("Relative errors")
    errors = np.abs(calibration.fit.relative_errors)
    measures = {"rms": math.sqrt(np.mean(errors**2)), "median": np.median(errors), "maximum": errors.max()}
    for heading, value in measures.items():
        assert accuracy.numbers(f"{heading} (%)")[0] == pytest.approx(value)
    # The baseline, computed the long way: each kernel's time is the geometric mean of those of other generators.
    table = calibration.table
    seconds = dict(zip(table.kernels, table.column(table.output), strict=True))
    owner = dict(zip(table.kernels, table.groups, strict=True))
    held_out = [k.name for k in diagnosis.kernels if not math.isnan(k.cross_validation_error)]
    rest = {name: [s for other, s in seconds.items() if owner[other] != owner[name]] for name in held_out}
    baseline = [math.prod(s ** (1 / len(own)) for s in own) / seconds[name] - 1 for name, own in rest.items()]
    assert accuracy.numbers("rms (%)")[-1] == pytest.approx(math.sqrt(np.mean(np.square(baseline))))
    assert accuracy.numbers("cases")[-2:] == [len(held_out)] * 2
    assert accuracy.numbers("rms (%)")[-2] == pytest.approx(diagnosis.cross_validation_error)


def test_a_roofline(pages):
    found = checked(pages["roofline"])
    assert found.table("Kernels and their limits").numbers("time (µs)") == [1e-3] * 4
    assert [text for _, text in found.notices] == [f"Warning: no transactions of f_txn_x: {NASTY}"]
    assert "times measured on a GPU" in found.text
    # Three kernels in a picture.
    assert pages["roofline"].count("<figure>") == 2


def test_an_evaluation(pages):
    found = checked(pages["evaluation"])
    (result,) = small_evaluation().studies
    methods = found.table("Models and baselines")
    assert methods.column("predicted by") == ["linear", "overlap", "roofline"]
    for heading, measure in {"median": "median", "rms": "rms", "maximum": "maximum", "loss": "loss_mean"}.items():
        assert methods.numbers(f"{heading} (%)") == [getattr(result.accuracy(name), measure) for name in result.methods]
    assert methods.column("beats baselines") == ["no", "yes", ""]
    assert methods.column("used") == ["yes", "", ""]
    warned = " ".join(text for kind, text in found.notices if kind == "warning")
    assert result.judgement in warned
    assert "changed by +30.0 %" in warned
    assert "1 of 4 measured times rest on samples that others disturbed" in warned
    assert any(kind == "remark" and NASTY in text for kind, text in found.notices)
    assert found.table("Predicted and measured times").numbers("measured (ms)") == list(MEASURED.values())
    empty = replace(small_evaluation(), studies=(replace(result, points=()),))
    assert evaluation_part(empty).notices[0] == ("problem", "no study has measured times")


def test_a_page_that_cannot_be_written_is_an_error_in_one_line(parts, tmp_path):
    with pytest.raises(FileFormatError, match="cannot write"):
        write_page(tmp_path / "no" / "folder" / "x.html", [parts["roofline"]])
