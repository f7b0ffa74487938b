"""What notebooks show of results: well formed, escaped, with the numbers of the objects."""

import math
import pickle
import subprocess
import sys
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from perflex import (
    Calibration,
    Device,
    FeatureTable,
    Model,
    VariantSpace,
    diagnose,
    estimate_volumes,
    list_devices,
    load_machine,
    prune,
    rank,
)
from perflex.calibration.interval import PredictionInterval
from perflex.devices.device import DeviceInfo
from perflex.errors import MeasurementError
from perflex.features import count_features, extract_scop
from perflex.testing import FakeDevice
from sample_kernels import matmul
from support.html_structure import checked
from support.spaces_for_tests import small_space

NASTY = "<b>&\"'"


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
    assert whole.table("Parameters").rows == fit.table("Parameters").rows
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


def test_a_feature_table():
    table = FeatureTable(
        "f_cl_wall_time", ("f_cl_wall_time", "f_op_float32_add"), (NASTY, "k2"),
        np.array([[2e-3, 5.0], [4e-3, 7.0]]), spread=np.array([0.01, np.nan]),
    )  # fmt: skip
    found = checked(shown(table)).tables[0]
    assert found.column("kernel") == [NASTY, "k2"]
    assert found.column("f_cl_wall_time (ms)") == ["2.00", "4.00"]
    assert found.numbers("f_op_float32_add") == [5.0, 7.0]
    assert found.column("spread (%)") == ["1.0", ""]


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
    assert table.numbers("predicted") == [v.predicted for v in ranking]
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


def test_counted_features():
    from uipick import ALL_GENERATORS, KernelCollection

    kernel = KernelCollection(ALL_GENERATORS).generate_kernels(
        ["matmul_sq", "prefetch:False", "dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True", "n:512"]
    )[0]
    scop = extract_scop(kernel.kernel)
    counted = count_features(scop, {"n": 512})
    assert isinstance(counted, list)
    table = checked(shown(counted)).tables[0]
    assert table.column("feature") == [f.identifier for f in counted]
    assert table.numbers("value") == [f.value for f in counted]
    assert checked(shown(count_features(scop))).tables[0].head == ["feature", "count", "unit", "remarks"]
    volumes = estimate_volumes(scop, {"n": 512}, load_machine("V100"))
    found = checked(shown(volumes))
    moved = found.table("Data volumes")
    assert moved.column("array") == [*volumes.arrays, "all"]
    assert moved.numbers("DRAM to L2 (MB)")[-1] == volumes.total.dram_load


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


@pytest.mark.parametrize("name", ["V100", "Gold-6248"])
def test_a_machine(name):
    machine = load_machine(name)
    table = checked(shown(machine)).table("Facts")
    values = dict(zip(table.column("fact"), table.numbers("value"), strict=True))
    assert values.items() >= machine.known().items()
    assert len(values) == len(machine.known()) + len(machine.levels) + len(machine.memory_streams)
    place = table.column("fact").index("clock_hz")
    assert table.column("unit")[place] == "Hz"
    assert machine.sources["clock_hz"].text in table.column("source")[place]
    assert NASTY in checked(shown(replace(machine, vendor=NASTY))).text


def test_a_scop():
    scop = msgspec.structs.replace(extract_scop(matmul(prefetch=True)), name=NASTY)
    found = checked(shown(scop))
    assert f"{NASTY}, sizes n" in found.text
    assert found.table("Arrays").column("array") == [array.name for array in scop.arrays]
    statements = found.table("Statements")
    assert statements.column("statement") == [statement.name for statement in scop.statements]
    assert statements.column("domain") == [str(statement.domain) for statement in scop.statements]
    assert "1 madd float32" in statements.column("operations")


def test_devices(monkeypatch):
    named = Device(NASTY, "here", "maker", "1", compute_units=3, local_memory_bytes=2**15, sub_group_size=8)
    infos = (
        DeviceInfo(named, usable=True, reason="", found_by="x", default=True),
        DeviceInfo(replace(named, name="other"), usable=False, reason="it crashes", found_by="x"),
    )
    monkeypatch.setattr("perflex.devices.listing._listed", lambda: (infos, ()))
    assert list_devices() == infos
    table = checked(shown(list_devices())).table("Devices")
    assert table.column("works") == ["yes", "it crashes"]
    assert [text.endswith("(default)") for text in table.column("device")] == [True, False]
    assert table.column("name") == [str(info.device) for info in infos]
    assert table.column("local memory (KiB)") == ["32", "32"]
    assert table.numbers("sub-group (work-items)") == [8, None]


def test_showing_loads_its_code_only_when_it_is_asked_for():
    code = (
        "import sys\nfrom perflex import Calibration, FeatureTable, Machine, Model, VariantSpace\n"
        "print(*[m for m in sys.modules if m.endswith(('_html', 'expression.latex'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
