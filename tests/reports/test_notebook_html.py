"""Results in notebooks and on pages: well formed, escaped, warnings first, with the numbers of the objects."""

import math
import pickle
import subprocess
import sys
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from perflex import Calibration, Model, VariantSpace, diagnose, load_machine, prune, rank
from perflex.analysis.roofline import ceilings_of, place_of
from perflex.calibration.interval import PredictionInterval
from perflex.errors import FileFormatError, MeasurementError
from perflex.features import count_features, extract_scop
from perflex.reports.calibration_part import calibration_part
from perflex.reports.evaluation_part import evaluation_part
from perflex.reports.page import write_page
from perflex.reports.roofline_part import roofline_part
from perflex.testing import FakeDevice
from sample_kernels import matmul
from studies.small_evaluation import MEASURED, small_evaluation
from support.html_structure import Document, checked
from support.spaces_for_tests import small_space

NASTY = "<b>&\"'--></script>"


@pytest.fixture(scope="module")
def calibration():
    return Calibration.load("matmul_sq_amd_epyc_4cores_pocl")


def shown(thing):
    text = thing._repr_html_()
    assert isinstance(text, str)
    return text


def failing(name):
    msg = f"{name} does not run"
    raise MeasurementError(msg)


def test_a_fit_and_a_calibration(calibration):
    fit = checked(shown(calibration.fit))
    assert fit.table("Parameters").numbers("value") == [p.value for p in calibration.fit.parameters]
    errors = fit.table("Relative errors")
    assert errors.numbers("maximum (%)") == [pytest.approx(max(map(abs, calibration.fit.relative_errors)))]
    whole = checked(shown(replace(calibration, device={"name": NASTY})))
    assert NASTY in whole.text
    assert " ".join(calibration.model.expression.split()) in whole.text


def test_a_fit_that_is_not_to_be_trusted_says_so(calibration):
    fit = calibration.fit
    wrong = replace(fit, status=msgspec.structs.replace(fit.status, valid=False, reason=NASTY))
    assert [kind for kind, _ in checked(shown(wrong)).notices] == ["problem"]


def test_a_diagnosis(calibration):
    diagnosis = diagnose(calibration)
    found = checked(shown(diagnosis))
    assert [text.partition(": ")[2] for _, text in found.notices] == [f.text for f in diagnosis.findings]
    generators = found.table("Errors by generator")
    assert generators.numbers("rms in the fit (%)") == [g.error for g in diagnosis.generators]
    # The errors of kernels are those of their generators.
    for generator in diagnosis.generators:
        own = [k.cross_validation_error for k in diagnosis.kernels if k.generator == generator.name]
        rms = math.sqrt(np.mean(np.square(own)))
        assert rms == pytest.approx(generator.cross_validation_error, nan_ok=True)


def test_a_model_as_a_formula():
    model = Model("f_cl_wall_time", "p_a * f_op_float32_add - (p_b + 2) * f_sync_kernel_launch / 3")
    latex = model._repr_latex_()
    assert latex.startswith("$\\displaystyle ")
    assert latex.count("{") == latex.count("}")
    for piece in ("p_{\\mathtt{a}}", "f_{\\mathtt{op\\_float32\\_add}}", r"\quad -"):
        assert latex.count(piece) == 1
    found = checked(shown(model))
    assert "Parameters: p_a, p_b" in found.text
    assert latex in found.text
    # Braces in identifiers stay balanced, too.
    strided = Model("f_cl_wall_time", "p_a * f_mem_access_global_float32_load_lstrides:{0:1}")._repr_latex_()
    assert r"\{0:1\}" in strided
    assert strided.replace(r"\{", "").replace(r"\}", "").count("{") == strided.replace(r"\{", "").count("}") - 1


@pytest.mark.filterwarnings("ignore::perflex.errors.PerflexWarning")
def test_pruned_and_ranked_variants(calibration):
    space = small_space()
    sizes = {"n": 1024}
    ranking = rank(space, calibration, sizes)
    assert [v.rank for v in ranking[:2]] == [1, 2]
    assert list(pickle.loads(pickle.dumps([(v.name, v.predicted) for v in ranking])))
    table = checked(shown(ranking)).tables[0]
    assert table.column("variant") == [v.name for v in ranking]
    (predicted,) = (heading for heading in table.head if heading.startswith("predicted"))
    assert table.numbers(predicted) == [v.predicted for v in ranking]
    assert table.caption == "Variants by predicted time"
    # One is not timed.
    seconds = {v.name: 1e-3 * place for place, v in enumerate(ranking[1:], start=1)}
    timed = rank(space, calibration, sizes, time=FakeDevice(lambda name, _sizes: seconds.get(name) or failing(name)))
    table = checked(shown(timed)).table("Variants by measured time")
    assert table.numbers("measured (µs)") == [*(pytest.approx(time) for time in seconds.values()), None]
    assert table.numbers("predicted (µs)") == [v.predicted for v in timed]
    pruning = prune(space, calibration, sizes, keep=2)
    found = checked(shown(pruning))
    kept = next(table for table in found.tables if table.caption.startswith("Kept"))
    assert kept.column("variant") == [v.name for v in pruning.kept]
    assert pruning.decision.explanation in found.text


def test_intervals(calibration):
    time, low, high = np.array([[1e-3, 2e-3, 3.0], [5e-4, 1e-3, 1.0], [2e-3, 4e-3, 9.0]])
    interval = PredictionInterval(time, low, high, 0.9, 0 * time, 0 * time, 5, doubts=(NASTY,))
    found = checked(shown(interval))
    assert [text for _, text in found.notices] == [f"Warning: {NASTY}"]
    table = found.table("Predictions and their 90 % intervals")
    assert table.column("prediction") == ["1", "2", "3"]
    for heading, values in (("time", time), ("from", low), ("to", high)):
        assert table.numbers(heading) == values.tolist()
    one = replace(interval, predicted=time[2], low=low[2], high=high[2])
    assert checked(shown(one)).table("Predictions").numbers("to") == [9.0]
    many = replace(interval, predicted=np.ones(101), low=np.ones(101), high=np.ones(101))
    table = checked(shown(many)).table("Predictions and their 90 % intervals")
    assert table.column("prediction")[-1] == "100"
    rows = calibration.predict_rows(calibration.table.take(range(20)), 0.9)
    assert checked(shown(rows)).table("Predictions and their 90 % intervals").column("prediction") == list(rows.kernels)


def test_a_space():
    space = VariantSpace(lambda **_: None, {"tile": (8, 16), "order": ("<b>", "ji")}, ["tile < 16"], name=NASTY)
    found = checked(shown(space))
    assert f"{NASTY}: 4 combinations" in found.text
    assert found.table("Parameters").rows[1:] == [["tile", "8, 16"], ["order", "'<b>', 'ji'"]]
    assert "tile < 16" in found.text


@pytest.mark.parametrize("make", [lambda _: load_machine("V100"), count_features])
def test_results_are_shown_by_their_tables_in_a_style_of_their_own(make):
    thing = make(extract_scop(matmul(prefetch=True)))
    text = shown(thing)
    tables = thing.tables() if hasattr(thing, "tables") else [thing.table()]
    assert [table.caption for table in checked(text).tables] == [table.caption for table in tables]
    style = text.partition("<style>")[2].partition("</style>")[0]
    rules = [line for line in style.splitlines() if "{" in line]
    assert rules
    assert all(part.strip().startswith(".perflex") for rule in rules for part in rule.partition("{")[0].split(","))


def test_showing_loads_its_code_only_when_it_is_asked_for():
    code = (
        "import sys\nfrom perflex import Calibration, FeatureTable, Machine, Model, VariantSpace\n"
        "print(*[m for m in sys.modules if m.endswith(('_html', 'expression.latex'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


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


def test_the_page_of_a_calibration(pages, calibration, diagnosis):
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


def test_the_page_of_a_roofline(pages):
    found = checked(pages["roofline"])
    assert found.table("Kernels and their limits").numbers("time (µs)") == [1e-3] * 4
    assert [text for _, text in found.notices] == [f"Warning: no transactions of f_txn_x: {NASTY}"]
    assert "times measured on a GPU" in found.text
    # Three kernels in a picture.
    assert pages["roofline"].count("<figure>") == 2


def test_the_page_of_an_evaluation(pages):
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
