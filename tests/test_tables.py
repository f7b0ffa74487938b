"""Tables: how cells are shown; and of each result, that all places show the same."""

import csv
import math
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from perflex import Calibration, FeatureTable, diagnose, estimate_volumes, load_machine, prune, source_kernel, tune
from perflex.analysis.roofline import ceilings_of, place_of
from perflex.analysis.roofline_report import ceiling_table, roofline_tables
from perflex.analysis.source_lines import source_lines
from perflex.calibration.prediction import prediction_table
from perflex.cli.json_output import as_json
from perflex.cli.terminal import Terminal
from perflex.devices.device import Device, DeviceInfo
from perflex.devices.listing import DeviceInfos
from perflex.features import count_features, extract_scop
from perflex.features.cpu.ecm_estimate import estimate_ecm
from perflex.features.cpu.ecm_result import series_table
from perflex.features.scop.scop_tables import scop_tables
from perflex.html import shown
from perflex.store.contents import KernelOverview, overview_table
from perflex.studies.demo import demo_table
from perflex.studies.evaluation.tables import evaluation_tables
from perflex.studies.judged import MODEL, Judgement
from perflex.tables import Column, Table, fixed, number, percent, seconds, significant, text
from perflex.timing.results import Timing
from sample_kernels import matmul
from studies.small_evaluation import small_evaluation
from support.html_structure import checked
from support.spaces_for_tests import small_space

NASTY = "<script>alert('&')</script>\"'"
SOURCE = "__kernel void f(__global float *a) { int i = get_global_id(0);\n  a[i] = a[i] * 2.0f;\n}\n"


@cache
def diagnosis():
    return diagnose(Calibration.load("matmul_sq_amd_epyc_4cores_pocl"))


def scop():
    return extract_scop(matmul(prefetch=True))


def roofline():
    machine = load_machine("V100")
    ceilings = ceilings_of(machine)
    place = place_of(scop(), {"n": 512}, machine, ceilings)
    timed = replace(place, name="other", seconds=1e-3, seconds_kind="measured")
    return [ceiling_table(ceilings), *roofline_tables([place, timed])]


def layers():
    found = estimate_ecm(extract_scop(matmul(prefetch=False)), {"n": 512}, load_machine("Gold-6248"))
    return [found.table(), found.condition_table(), series_table([({"n": 512}, found)])]


def feature_table():
    values = np.array([[2e-3, 5.0], [4e-3, 7.0]])
    columns = ("f_cl_wall_time", "f_op_float32_add")
    return [FeatureTable(columns[0], columns, (NASTY, "k2"), values, spread=np.array([0.01, np.nan])).table()]


def devices():
    named = Device(NASTY, "here", "maker", "1", compute_units=3, local_memory_bytes=2**15, sub_group_size=8)
    infos = [DeviceInfo(named, usable=True, reason="", found_by="x", default=True)]
    return [
        DeviceInfos([*infos, DeviceInfo(replace(named, name="b"), usable=False, reason="no", found_by="x")]).table()
    ]


def lines():
    kernel = source_kernel(SOURCE, "f", local=(64,), groups=(16,))
    return [source_lines(kernel, {}).table()]


def predictions():
    calibration = Calibration.load("matmul_sq_amd_epyc_4cores_pocl")
    found = [calibration.explain(matmul(prefetch=False), {"n": n}, share) for n, share in ((480, 0.9), (960, None))]
    found = [replace(one, timing=Timing(NASTY, 1e-3 * n, 0.0, ()), measured_on=NASTY) for n, one in enumerate(found, 1)]
    judged = Judgement(tuple(found), ("a", NASTY), {"one": np.array([1e-3, 3e-3])}, {MODEL: "more", "one": "less"})
    rows = calibration.predict_rows(calibration.table.take(range(3)))
    return [prediction_table(found), found[0].cost_table(2), found[0].interval.table(), rows.table(), *judged.tables()]


def others():
    seen = KernelOverview("d", "k", 1, 9, 2, 0, 0.0, 86400.0, 1e-3)
    return [overview_table([seen], "d"), *load_machine("V100").tables()]


def searched():
    space, calibration = small_space(), Calibration.load("matmul_sq_amd_epyc_4cores_pocl")
    ranking = prune(space, calibration, {"n": 1024}, keep=2)
    measured = ranking.with_times({place.name: 1.1 * place.predicted for place in ranking[::2]})
    found = tune(space, {"n": 1024}, measure=lambda one: 1e-3 * one.settings["repeats"])
    return [ranking.table(), measured.table(kept=True), found.table()]


# Each returns some tables of a result.
MAKERS = {
    "diagnosis": lambda: [*diagnosis().tables(), diagnosis().kernel_table()],
    "fit": lambda: [Calibration.load("matmul_sq_amd_epyc_4cores_pocl").fit.parameter_table()],
    "roofline": roofline,
    "evaluation": lambda: evaluation_tables([small_evaluation(NASTY)]).values(),
    "demo": lambda: [demo_table(small_evaluation().studies[0])],
    "volumes": lambda: [
        estimate_volumes(extract_scop(matmul(prefetch=True)), {"n": 512}, load_machine("V100")).table()
    ],
    "layers": layers,
    "counted": lambda: [count_features(scop(), {"n": 512}).table()],
    "lines": lines,
    "predictions": predictions,
    "feature table": feature_table,
    "machines": lambda: [table for name in ("V100", "Gold-6248") for table in load_machine(name).tables()],
    "scop": lambda: scop_tables(scop()),
    "searched": searched,
    "devices": devices,
    "others": others,
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.filterwarnings("ignore::perflex.errors.PerflexWarning")
def test_the_same_figure_stands_in_terminal_page_csv_and_json(maker, tmp_path, capsys, monkeypatch):
    for table in MAKERS[maker]():
        page = checked(str(shown(table)))
        (drawn,) = page.tables
        on_page = table.on_page()
        assert drawn.rows == [on_page.headings(), *on_page.texts()]
        table.to_csv(tmp_path / "t.csv")
        with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as stream:
            written = list(csv.DictReader(stream))
        records = as_json(table.records())
        assert len(written) == len(records) == len(drawn.rows) - 1
        for heading, column in zip(drawn.head, on_page.columns, strict=True):
            if column.write is None:
                continue
            for exact, cells, record in zip(drawn.numbers(heading), written, records, strict=True):
                value = record[column.name]
                if isinstance(value, str):  # what is no number in a column of numbers
                    assert (exact, cells[column.name]) == (None, value)
                    continue
                # JSON knows no infinity.
                assert exact is None or math.isinf(exact) or exact == value == float(cells[column.name])
                assert (exact is None) == (not cells[column.name])
        Terminal().show_result(table)
        printed = capsys.readouterr().out.splitlines()[bool(table.caption) :]
        assert printed == str(table).splitlines()
        # What a terminal shows is what the page shows, in columns less.
        for cells in table.seen("everywhere").texts():
            assert any(all(cell in line for cell in cells) for line in printed)
        monkeypatch.setenv("COLUMNS", "60")
        Terminal().show_result(table)
        narrow = "".join(capsys.readouterr().out.split())
        for column, cells in zip(on_page.columns, zip(*on_page.texts(), strict=True), strict=True):
            if column.write is not None and column.place == "everywhere":
                assert all(cell in narrow for cell in cells)
        monkeypatch.delenv("COLUMNS")


@pytest.mark.parametrize(
    ("value", "shown_as"),
    [
        (0.0, "0"), (1.0, "1.000"), (12.3456, "12.35"), (99999.6, "100000"), (9.99996, "10.00"), (1e-3, "0.001000"),
        (0.0001234, "0.0001234"), (1.23456e-5, "1.235e-05"), (1.5e9, "1.500e+09"), (-2.5, "-2.500"), (math.inf, "inf"),
    ],
)  # fmt: skip
def test_significant_digits(value, shown_as):
    assert significant(value) == shown_as


def test_columns_in_which_nothing_stands_are_left_out_and_places_are_kept():
    columns = [
        text("name"), percent("error", sign=True), fixed("count"), number("nothing"), number("more", place="pages"),
        number("all", place="files"), text("right", words={False: "no"}),
    ]  # fmt: skip
    table = Table(
        "T", columns, [["a", 0.12345, 3, math.nan, 1, 2, True], ["b|", math.nan, math.inf, None, 1, 2, False]]
    )
    assert str(table).splitlines()[1:] == ["a         +12.3      3  yes", "b|                 inf  no"]
    drawn = checked(str(shown(table))).tables[0]
    assert drawn.head == ["name", "error (%)", "count", "more", "right"]
    assert drawn.values[1:] == [[None, "0.12345", "3.0", "1.0", None], [None, None, "Infinity", "1.0", None]]
    assert table.markdown().splitlines()[1:] == [
        "| --- | ---: | ---: | ---: | --- |", "| a | +12.3 | 3 | 1.000 | yes |", "| b\\| |  | inf | 1.000 | no |",
    ]  # fmt: skip
    assert str(table.turned()).splitlines()[0].split() == ["name", "a", "b|"]
    assert table.first(1).caption == "T, the first 1 of 2"
    with pytest.raises(ValueError, match="cells"):
        Table("", [text("a"), text("b")], [["only one"]])


@pytest.mark.parametrize(
    ("times", "heading", "shown_as"),
    [
        ([0.5, 2.0, 8.0], "t (s)", ["0.500", "2.000", "8.000"]),
        ([1.5e-3, 0.02, 0.1], "t (ms)", ["1.50", "20.00", "100.00"]),
        ([3e-6, 4e-6, None], "t (µs)", ["3.00", "4.00", ""]),
        ([1e-6, 1e-3, 10.0], "t (ms)", ["0.001000", "1.000", "10000"]),
    ],
)
def test_times_have_one_unit_and_points_below_each_other(times, heading, shown_as):
    rows = [["x", one, 1.0] for one in times]
    found = checked(str(shown(Table("", [text("x"), seconds("t_s"), seconds("u")], rows)))).tables[0]
    assert found.column(heading) == shown_as
    assert found.head[2] == heading.replace("t", "u")


def test_nothing_gets_through_unescaped():
    columns = [Column(NASTY, meaning=NASTY), number("n", unit=NASTY, meaning=NASTY), text("c", code=True)]
    page = str(shown(Table(NASTY, columns, [[NASTY, 1.0, NASTY]])))
    assert "<script" not in page
    assert checked(page).tables[0].rows[1][::2] == [NASTY, NASTY]


def test_rows_of_objects_and_of_mappings():
    columns = [text("a"), number("b")]
    assert Table.of("", columns, [SimpleNamespace(a="x", b=1), {"a": "y", "b": 2}]).rows == [["x", 1], ["y", 2]]


TABLE = Table(
    "Title",
    [text("kernel"), fixed("samples"), text("first seen"), seconds("median time"), text("remark")],
    [
        ("matmul_sq(dtype=float32, prefetch=True, lsize_0=16)", 12, "2026-01-01", 1.234e-3, "text [bold] words " * 4),
        ("16x16", 3, "2026-02-02", 0.0125e-3, ""),
    ],
)


@pytest.mark.parametrize("width", [40, 48, 60, 80, 120])
def test_tables_fit_the_terminal_and_lose_nothing(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    Terminal().show_result(TABLE, indent=2)
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "  Title"
    assert all(line.startswith("  ") and len(line) <= width for line in lines)
    assert not set("".join(lines)) & set("─│┃━┏┓")
    # Cells take several lines; each letter of them is there. Where there is no room for columns, headings are repeated.
    shown = "".join("".join(lines).split())
    cells = ["".join(cell.split()) for row in TABLE.seen("everywhere").texts() for cell in row]
    if width > 48:
        headings = TABLE.seen("everywhere").headings()
        assert sorted(shown) == sorted("".join(["".join("".join(headings).split()), *cells]))
    else:
        assert all(cell in shown for cell in cells)


def test_a_pipe_has_one_line_for_each_row(capsys):
    Terminal().show_result(TABLE, most=1)
    title, head, first, more = capsys.readouterr().out.splitlines()
    assert (title, more) == ("Title", "and 1 more; --json prints all")
    # Numbers end where their heading does; texts begin there, also those that begin with a digit.
    assert head.index("samples") + len("samples") == first.index("  2026")
    assert first.index("2026") == head.index("first seen")
