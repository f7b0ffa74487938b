"""The page of a report: well formed, escaped, warnings first, and the numbers of the files in it."""

import csv
import json
import math
import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from perflex import Calibration, diagnose
from perflex.errors import FileFormatError, PerflexError
from perflex.reports.make import report, write_report
from perflex.reports.pruning_part import expected_loss
from perflex.studies.evaluation.files import FILES
from support.html_structure import Document, checked
from support.report_files import evaluation_folder, prediction_content, pruning_content, roofline_content

NAME = "matmul_sq_amd_epyc_4cores_pocl"
NASTY = "<b>&\"'--></script>"


@pytest.fixture(scope="module")
def calibration():
    return Calibration.load(NAME)


@pytest.fixture(scope="module")
def calibration_page(calibration, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "calibration.yaml"
    nasty = {**calibration.device, "name": NASTY, "driver": NASTY}
    replace(calibration, device=nasty, dropped=((NASTY, NASTY),)).save(path)
    return report([path])


def written(folder, name, content):
    path = folder / name
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def place(text, *pieces):
    found = [text.index(piece) for piece in pieces]
    assert found == sorted(found)
    return found


def test_a_calibration(calibration_page, calibration):
    found = checked(calibration_page)
    assert NASTY in found.text
    assert NASTY not in calibration_page
    # Warnings, results, provenance, in this order.
    names = [name for level, name in found.headings if level in {"h1", "h2"}]
    assert names == [f"Calibration of {NASTY}", "Warnings", "Provenance"]
    place(calibration_page, "<h2>Warnings", "Summary", "Relative errors", "<svg", "Measurement kernels", "<h2>Prov")
    wanted = [(f.severity, f.text) for f in diagnose(calibration).findings]
    shown = [(kind, text.partition(": ")[2]) for kind, text in found.notices]
    assert set(wanted) <= set(shown)
    assert [kind for kind, _ in shown if kind == "problem"] == [kind for kind, _ in shown][: shown.count("problem")]
    first_table = calibration_page.index("<table")
    assert all(calibration_page.index(f'{kind}"><strong>') < first_table for kind, _ in wanted if kind != "remark")
    assert all(value in found.text for value in (calibration.date, *calibration.versions.values()))


def test_numbers_of_a_calibration(calibration_page, calibration):
    found = checked(calibration_page)
    parameters = found.table("Parameters")
    assert parameters.column("parameter") == list(calibration.fit)
    assert parameters.numbers("value") == [p.value for p in calibration.fit.parameters]
    errors = np.abs(calibration.fit.relative_errors)
    accuracy = found.table("Relative errors")
    assert accuracy.numbers("rms (%)")[0] == pytest.approx(math.sqrt(np.mean(errors**2)))
    assert accuracy.numbers("median (%)")[0] == pytest.approx(np.median(errors))
    assert accuracy.numbers("maximum (%)")[0] == pytest.approx(errors.max())
    # The baseline, computed the long way: each kernel's time is the geometric mean of those of other generators.
    table, diagnosis = calibration.table, diagnose(calibration)
    seconds = dict(zip(table.kernels, table.column(table.output), strict=True))
    owner = dict(zip(table.kernels, table.groups, strict=True))
    held_out = [k.name for k in diagnosis.kernels if not math.isnan(k.cross_validation_error)]
    rest = {name: [s for other, s in seconds.items() if owner[other] != owner[name]] for name in held_out}
    baseline = [math.prod(s ** (1 / len(own)) for s in own) / seconds[name] - 1 for name, own in rest.items()]
    assert accuracy.numbers("rms (%)")[-1] == pytest.approx(math.sqrt(np.mean(np.square(baseline))))
    assert accuracy.numbers("cases")[-2:] == [len(held_out)] * 2
    assert accuracy.numbers("rms (%)")[-2] == pytest.approx(diagnosis.cross_validation_error)
    kernels = found.table("Measurement kernels")
    assert sorted(kernels.column("kernel")) == sorted(calibration.fit.kernels)
    shown = dict(zip(kernels.column("kernel"), kernels.values[1:], strict=True))
    place_of = next(i for i, name in enumerate(kernels.head) if name.startswith("measured"))
    assert all(float(str(row[place_of])) == seconds[name] for name, row in shown.items())
    sizes = [abs(e) for e in kernels.numbers("without itself (%)") if e is not None]
    assert sizes == sorted(sizes, reverse=True)


def test_a_pruning(tmp_path):
    content = pruning_content(NASTY)
    found = checked(report([written(tmp_path, "p.json", content)]))
    kept = found.table("Kept variants")
    assert kept.column("variant") == [row["variant"] for row in content["table"] if row["kept"]]
    assert kept.numbers("predicted (ms)") == [row["predicted_s"] for row in content["table"] if row["kept"]]
    assert kept.numbers("measured (ms)") == [row["measured_s"] for row in content["table"] if row["kept"]]
    loss = found.table("Loss")
    timed = sorted((row["predicted_s"], row["measured_s"]) for row in content["table"] if row["measured_s"])
    best = min(measured for _, measured in timed)
    assert loss.numbers("loss (%)")[0] == pytest.approx(timed[0][1] / best - 1)
    assert loss.numbers("loss (%)")[1] == pytest.approx(np.mean([m for _, m in timed]) / best - 1)
    accuracy = found.table("Relative errors")
    errors = [p / m - 1 for p, m in timed]
    assert accuracy.numbers("rms (%)")[0] == pytest.approx(math.sqrt(np.mean(np.square(errors))))
    assert [text for kind, text in found.notices if kind == "warning"] == [
        f"Warning: the promise is not met: {NASTY}",
        # Of the kept variants.
        f"Warning: doubtful: {NASTY}=2: {NASTY}",
        "Warning: the fastest kept variant is 5 % slower than the fastest timed",
        "Warning: only 25 % of the timings lie inside the 95 % intervals",
    ]
    assert "driver 7" in found.text


def test_a_pruning_that_is_worse_than_a_constant_says_so(tmp_path):
    content = pruning_content()
    for row in content["table"]:
        row["predicted_s"] *= 10
    found = checked(report([written(tmp_path, "p.json", content)]))
    assert any("worse than one time for all (rms 9" in text for _, text in found.notices)


def test_a_pruning_without_timings(tmp_path):
    content = {**pruning_content(), "batch": []}
    del content["check"]
    for row in content["table"]:
        row.update(dict.fromkeys(("measured_s", "low_s", "high_s")))
    found = checked(report([written(tmp_path, "p.json", content)]))
    assert any("rest on predictions alone" in text for _, text in found.notices)
    assert not [name for name in found.table("Kept variants").head if name.startswith(("measured", "95", "error"))]


@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_expected_loss_is_the_mean_over_all_draws(count):
    chance = random.Random(count)  # noqa: S311
    seconds = [chance.uniform(1, 9) for _ in range(6)]
    draws = [min(draw) / min(seconds) - 1 for draw in combinations(seconds, count)]
    assert expected_loss(np.array(seconds), count) == pytest.approx(np.mean(draws))


def test_an_evaluation(tmp_path):
    folder = evaluation_folder(tmp_path, NASTY)
    found = checked(report([folder]))
    with (folder / "summary.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["variant"] == "all"]
    methods = found.table("Models and baselines")
    assert methods.column("predicted by") == ["linear (used)", "overlap", "roofline"]
    for heading, column in (
        ("median (%)", "median_error"), ("rms (%)", "rms_error"), ("maximum (%)", "max_error"),
        ("loss (%)", "loss_mean"), ("geometric mean (%)", "geomean_error"),
    ):  # fmt: skip
        assert methods.numbers(heading) == [float(row[column]) for row in rows]
    assert methods.column("beats baselines") == ["no", "yes", ""]
    summary = found.table("The used models")
    assert summary.column("predicted by") == ["linear (used)", "roofline"]
    warned = " ".join(text for kind, text in found.notices if kind == "warning")
    assert "Not recommended: a baseline is better: roofline has mean loss 5.0 %; linear has 10.0 %." in warned
    assert "changed by +30.0 %" in warned
    assert "1 of 4 measured times rest on samples that others disturbed" in warned
    assert any(kind == "remark" and NASTY in text for kind, text in found.notices)
    times = found.table("Predicted and measured times")
    assert times.numbers("measured (ms)") == [0.002, 0.004, 0.003, 0.006]
    # A table of it stands for all.
    assert checked(report([folder / "points.csv"])).tables[0].rows == found.tables[0].rows


def test_a_roofline(tmp_path):
    content = roofline_content(NASTY)
    found = checked(report([written(tmp_path, "r.json", content)]))
    limits = found.table("Kernels and their limits")
    assert limits.numbers("least time (ns)") == [kernel["bound_s"] for kernel in content["kernels"]]
    assert limits.column("limiter") == ["L1", "L2"]
    assert limits.numbers("work-items (GIPS)") == [kernel["gips"] for kernel in content["kernels"]]
    intensities = found.table("Instructions per transaction")
    assert intensities.numbers("all, DRAM") == [
        pytest.approx(kernel["intensities"]["dram"]) for kernel in content["kernels"]
    ]
    assert [text for _, text in found.notices] == [f"Warning: no transactions of f_txn_x: {NASTY}"]
    assert "measured on a GPU" in found.text


def test_predictions(tmp_path):
    content = prediction_content(NASTY)
    found = checked(report([written(tmp_path, "p.json", content)]))
    times = found.table("Predicted times")
    assert times.column("sizes") == ["n=1", "n=2"]
    assert times.numbers("predicted (ms)") == [entry["predicted_s"] for entry in content]
    assert times.numbers("error (%)") == [pytest.approx(-0.2)] * 2
    costs = found.table("Costs at n=2")
    assert costs.column("cost") == ["p_b * f_b", "p_a * f_a"]
    assert costs.numbers("share (%)") == [0.5, 0.25]
    lines = found.table("Lines of the source at n=2")
    assert lines.head == ["line", "source", "operations", "accesses", "bytes", "share (%)", "remarks"]
    assert lines.rows[2][:2] == ["7", NASTY]
    assert lines.column("remarks") == ["", "upper bound"]
    assert lines.numbers("share (%)") == [0.5, 0.25]
    assert [text for _, text in found.notices] == [f"Warning: n=2: doubtful: {NASTY}"]
    assert "driver 7" in found.text


def test_several_files_in_one_page(calibration, tmp_path):
    calibration.save(tmp_path / "c.yaml")
    paths = [
        tmp_path / "c.yaml",
        written(tmp_path, "p.json", pruning_content()),
        evaluation_folder(tmp_path / "e"),
        written(tmp_path, "r.json", roofline_content()),
    ]
    write_report(paths, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    found = checked(text)
    titles = [name for level, name in found.headings if level == "h2"]
    assert titles[0] == "Warnings"
    assert titles[-1] == "Provenance"
    assert len(titles) == 6
    # Warnings of all files come before the first result.
    place(text, "<h2>Warnings", 'id="part-1"', 'id="part-2"', 'id="part-3"', 'id="part-4"', 'id="provenance"')
    assert 'class="notice warning"' not in text.partition('id="part-1"')[2]
    assert found.identifiers.count("part-2") == 1


def test_the_page_needs_nothing_from_outside(calibration_page):
    assert all(link.startswith("#picture-") for link in Document(calibration_page).links)
    style = calibration_page.partition("<style>")[2].partition("</style>")[0]
    assert not [word for word in ("@import", "url(") if word in style]
    assert all(word in style for word in ("prefers-color-scheme: dark", "@media print"))


def with_kernel(**counts):
    content = roofline_content()
    content["kernels"][0] |= counts
    return content


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", r"a.json is damaged: .*; make it again"),
        ("a.json", "[1]", r"a.json is no file that a report can show; name a calibration"),
        ("a.json", json.dumps([{"schema": "perflex-prediction/2"}]), r"update perflex to read it"),
        ("a.json", json.dumps([*prediction_content(), 3]), r"make it again with perflex predict --json"),
        ("a.json", json.dumps([dict(prediction_content()[0], terms=[])]), r"damaged: Expected `object`"),
        ("a.json", json.dumps({"schema": "perflex-other/1"}), r"no file that a report can show"),
        ("a.json", json.dumps(dict(pruning_content(), schema="perflex-pruning/2")), r"update perflex to read it"),
        ("a.json", json.dumps(dict(pruning_content(), schema="perflex-pruning/0")), r"make it again with perflex"),
        ("a.json", json.dumps(dict(pruning_content(), met="x")), r"damaged: Expected `bool`.*prune --json"),
        ("a.json", json.dumps(dict(pruning_content(), table=[{}])), r"missing required field `rank`"),
        ("a.json", json.dumps(dict(roofline_content(), schema="perflex-roofline/9")), r"update perflex"),
        ("a.json", json.dumps(dict(roofline_content(), kernels=[])), r"it has no kernel; make it again"),
        ("a.json", json.dumps(dict(roofline_content(), ceilings={})), r"it has no ceiling of instructions"),
        ("a.json", json.dumps(with_kernel(f_txn_l1="many")), "f_txn_l1 is no count"),
        ("a.json", json.dumps(with_kernel(f_inst_total=None)), "f_inst_total"),
        ("a.yaml", "schema: perflex-calibration/7\ncomplete: true\n", r"update perflex to read it"),
        ("a.yaml", "x: [", r"a.yaml"),
        ("a.txt", "x", r"a.txt is no file that a report can show"),
        ("a.csv", "x", r"a.csv is no file that a report can show"),
        ("points.csv", "x", r"has no summary.csv, which perflex evaluate writes; make it again"),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_an_error_in_one_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(FileFormatError, match=message) as caught:
        report([path])
    assert "\n" not in caught.value.message


FOREIGN = "does not fit the other tables; the folder is damaged"


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        *((name, "device,", "device,future,", "unknown column 'future'; it is of a newer version") for name in FILES),
        *((name, "device,", "gadget,", "has no column 'device'; it is damaged or of an earlier") for name in FILES),
        *(
            ("points.csv", ",0.002,", f",{wrong},", r"points.csv, line 2: Expected `float`.* - at `measured_s`")
            for wrong in ("0.0", "-0.002", "inf", "nan", "", "fast")
        ),
        ("choices.csv", ",fdiff,", ",matmul,", FOREIGN),
    ],
)
def test_damaged_tables_of_an_evaluation(tmp_path, name, old, new, message):
    folder = evaluation_folder(tmp_path)
    path = folder / name
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(FileFormatError, match=message):
        report([folder])


@pytest.mark.parametrize("name", FILES)
def test_each_table_of_an_evaluation_is_needed(tmp_path, name):
    folder = evaluation_folder(tmp_path)
    (folder / name).unlink()
    with pytest.raises(FileFormatError, match=f"has no {name}"):
        report([folder])


def test_no_file_and_missing_files(tmp_path):
    for paths, message in (
        ([], "there is nothing to report"),
        ([tmp_path / "none"], "there is no file"),
        ([tmp_path], r"has no summary.csv.*it is no folder of perflex evaluate"),
    ):
        with pytest.raises(PerflexError, match=message):
            report(paths)
    with pytest.raises(FileFormatError, match="cannot write"):
        write_report([written(tmp_path, "r.json", roofline_content())], tmp_path / "no" / "folder" / "x.html")
