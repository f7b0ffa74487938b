"""Times that others measured: reading tables, calibrating from them, writing them; no device is ever looked for."""

import gzip
import hashlib
import math
import types
import warnings

import numpy as np
import pytest

from perflex import (
    Calibration,
    FitOptions,
    Model,
    TimedKernel,
    TimesTable,
    TimingOptions,
    calibrate,
    diagnose,
    fit_model,
    gather_feature_values,
    load_times,
    rank,
    save_times,
    source_kernel,
    using_machine,
)
from perflex.errors import CalibrationError, DeviceError, FileFormatError, MachineError, PerflexWarning
from perflex.features import kernel_feature_values
from sample_kernels import matmul, pointwise
from uipick import ALL_GENERATORS, KernelCollection

TRUE = {"p_launch": 4e-6, "p_group": 2e-8, "p_madd": 3e-11}
MODEL = Model(
    "f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_group * f_thread_groups + p_madd * f_op_float32_madd"
)


@pytest.fixture(autouse=True)
def _no_device(monkeypatch):
    def survey():
        pytest.fail("devices were looked for")

    monkeypatch.setattr("perflex.devices.listing._listed", survey)


def tiled(tile, *, prefetch=False):
    return matmul(prefetch=prefetch, tile=tile)


def square():
    return pointwise("x[i]*x[i]")


def broken(n):
    raise ZeroDivisionError(n)


KERNELS = {"tiled": tiled, "square": square, "broken": broken, "number": lambda: 3, "ready": matmul(prefetch=False)}


def law(kernel, sizes):
    values = kernel_feature_values(MODEL.input_features(), kernel, sizes)
    return float(MODEL.evaluate(TRUE, values))


def write(folder, text, name="log.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def table_of_law(folder):
    lines = ["kernel,tile,prefetch,n,time_us,device"]
    for tile in (8, 16):
        for prefetch in (False, True):
            for n in (32, 64, 128):
                seconds = law(tiled(tile, prefetch=prefetch), {"n": n})
                lines.append(f"tiled,{tile},{prefetch},{n},{seconds * 1e6!r},a cluster's GPU")
    return write(folder, "\n".join(lines) + "\n")


def test_a_known_law_is_found_in_a_table(tmp_path):
    path = table_of_law(tmp_path)
    times = load_times(path, KERNELS)
    calibration = calibrate(MODEL, times=times)
    assert dict(calibration.params) == pytest.approx(TRUE, rel=1e-6)
    assert calibration.device == {"name": "a cluster's GPU", "times_of": "log.csv"}
    assert calibration.options["times_rows"] == 12
    assert calibration.options["times_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert calibration.sub_group_size == 32
    assert calibration.fit.kernels[0] == "tiled(tile=8, prefetch=False, n=32)"
    # Gathered values are fitted like measured ones.
    values = gather_feature_values(MODEL.all_features(), times=times, sub_group_size=16)
    assert (values.device, values.sub_group_size, len(values)) == ("a cluster's GPU", 16, 12)
    assert dict(fit_model(MODEL, values)) == pytest.approx({**TRUE, "p_madd": TRUE["p_madd"] / 2}, rel=1e-6)


def test_units_of_times_and_columns_that_nothing_uses(tmp_path):
    units = {"seconds": 1.0, "time_s": 1.0, "time_ms": 1e-3, "time_us": 1e-6, "time_ns": 1e-9}
    for column, unit in units.items():
        (row,) = load_times(write(tmp_path, f"kernel,n,{column}\nsquare,64,3.5\n"), KERNELS).rows
        assert row.seconds == pytest.approx(3.5 * unit)
    path = write(tmp_path, "kernel,n,N,seconds,host\nsquare,64,64,1,node7\n")
    with pytest.warns(PerflexWarning, match="no kernel has a size or argument called N, host"):
        load_times(path, KERNELS)


def test_functions_of_users(tmp_path):
    code = "__kernel void twice(int n, __global float *x) { if (get_global_id(0) < n) x[get_global_id(0)] *= 2; }\n"
    made = {"twice": lambda: source_kernel(code, "twice", local=(64,), global_size=("n",))}
    times = load_times(write(tmp_path, "kernel,n,seconds\ntwice,4096,1e-6\ntwice,8192,2e-6\n"), made)
    table = gather_feature_values(["f_cl_wall_time", "f_op_float32_mul"], times=times)
    assert table.kernels == ("twice(n=4096)", "twice(n=8192)")
    # Of sub-groups of 32.
    assert table.column("f_op_float32_mul").tolist() == [128, 256]
    with pytest.raises(ZeroDivisionError) as caught:
        load_times(write(tmp_path, "kernel,n,seconds\nbroken,64,1\n"), KERNELS)
    assert "log.csv, line 2: this was raised while kernel 'broken' was made" in caught.value.__notes__[0]
    # A module gives its own functions only.
    module = types.ModuleType("mine")
    exec("from pathlib import Path\nfrom os import getcwd\ndef _hidden(): ...\n", module.__dict__)  # noqa: S102
    for name in ("getcwd", "_hidden", "Path"):
        with pytest.raises(FileFormatError, match="no kernel is called"):
            load_times(write(tmp_path, f"kernel,seconds\n{name},1\n"), module)


def test_all_that_predicts_works_with_it_and_what_launches_refuses(tmp_path):
    calibrate(MODEL, times=load_times(table_of_law(tmp_path), KERNELS)).save(tmp_path / "c.yaml")
    calibration = Calibration.load(tmp_path / "c.yaml")
    kernel = tiled(16, prefetch=True)
    true = law(kernel, {"n": 256})
    with warnings.catch_warnings():
        # Beyond the largest kernel, which is said.
        warnings.simplefilter("ignore", PerflexWarning)
        interval = calibration.predict_interval(kernel, {"n": 256})
        assert calibration.predict(kernel, {"n": 256}) == pytest.approx(true, rel=1e-6)
    assert interval.low <= interval.predicted <= interval.high
    places = rank({"wide": tiled(16), "narrow": tiled(8)}, calibration, {"n": 64})
    assert [place.name for place in places] == ["wide", "narrow"]
    assert len(diagnose(calibration).kernels) == 12
    with pytest.raises(DeviceError, match=r"a cluster's GPU in log\.csv, measured elsewhere"):
        rank({"a": kernel}, calibration, {"n": 64}, time=True)


def test_labels_and_tags_name_generators_kernels(tmp_path):
    collection, tiles = KernelCollection(ALL_GENERATORS), ["dtype:float32", "groups_fit:True"]
    kernels = [
        *collection.generate_kernels(["matmul_sq", *tiles, "n:32,64"]),
        *collection.generate_kernels(["matmul_sq_mem", *tiles, "n:32"]),
        *collection.generate_kernels(["gmem_pattern", *tiles, "lid_stride_1:64", "n_arrays:1,3", "nelements:4096"]),
        *collection.generate_kernels(["empty", "ngroups:16,256"]),
    ]
    assert len({kernel.generator for kernel in kernels}) == 4
    labels = [f'"{kernel.name}",,1e-6' for kernel in kernels]
    times = load_times(write(tmp_path, "\n".join(["kernel,n,seconds", *labels])))
    assert [(row.name, row.generator, row.sizes) for row in times.rows] == [
        (kernel.name, kernel.generator, kernel.sizes) for kernel in kernels
    ]
    tags = "matmul_sq dtype:float32 prefetch:True lsize_0:16 lsize_1:16 groups_fit:True"
    text = f"kernel,n,seconds,tags\n{tags},64,1e-6,\nanything,,2e-6,{tags} n:96\n"
    (first, second) = load_times(write(tmp_path, text)).rows
    assert (first.sizes["n"], second.sizes["n"], second.seconds) == (64, 96, 2e-6)
    (made,) = KernelCollection(ALL_GENERATORS).generate_kernels([*tags.split(), "n:64"])
    assert first.name == made.name


def test_what_rows_state_beside_the_time(tmp_path):
    text = (
        "kernel,n,time_ms,launches,spread,repeatability,registers\n"
        "square,64,8,4,0.1,0.02,32\nsquare,64,3,,,,\nready,64,5,1,,,\n"
    )
    times = load_times(write(tmp_path, text), KERNELS, device="mine")
    first, again, ready = times.rows
    assert (first.seconds, first.spread, first.repeatability, first.registers) == (0.002, 0.1, 0.02, 32)
    # A kernel that was measured again is a row of its own.
    assert (again.seconds, math.isnan(again.spread), again.registers) == (0.003, True, None)
    assert first.kernel is again.kernel
    assert ready.kernel is KERNELS["ready"]
    assert times.device == "mine"
    table = gather_feature_values(["f_cl_wall_time", "f_thread_groups"], times=times)
    assert table.kernels == ("square(n=64)", "square(n=64) #2", "ready(n=64)")
    assert table.spread is not None
    assert np.isfinite(table.spread).tolist() == [True, False, False]
    with pytest.raises(CalibrationError, match="fill the column registers"):
        gather_feature_values(["f_cl_wall_time", "f_registers"], times=times)
    stated = gather_feature_values(["f_cl_wall_time", "f_registers"], times=times.take([0]))
    assert stated.column("f_registers").tolist() == [32]


def test_packed_tables_spreadsheets_marks_and_chosen_rows(tmp_path):
    text = (
        "\ufeff,kernel,n,seconds,device,role\r\n0,square,64,1,a,cal\r\n1,square,96,2,b,cal\r\n2,square,32,4,b,study\r\n"
    )
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    (row,) = load_times(path, KERNELS, device="b", only={"role": "cal"}).rows
    assert (row.sizes, row.seconds) == ({"n": 96}, 2.0)
    assert len(load_times(path, KERNELS, device="b", only={"role": ["cal", "study"]})) == 2
    with pytest.raises(FileFormatError, match=r"2 devices \(a, b\)"):
        load_times(path, KERNELS)
    with pytest.raises(FileFormatError, match="no row with device c; there is a, b"):
        load_times(path, KERNELS, device="c")
    with pytest.raises(FileFormatError, match="no column 'rolle'"):
        load_times(path, KERNELS, only={"rolle": "cal"})


_BAD = {
    "": "no rows below a heading",
    "kernel,n,seconds\n": "no rows below a heading",
    "kernel,n,time\nsquare,64,1\n": "whose name states the unit.*its columns are 'kernel', 'n', 'time'",
    "kernel,n,time_ms,seconds\nsquare,64,1,1\n": r"several columns of times \(time_ms, seconds\)",
    "kernel,kernel,seconds\nsquare,square,1\n": "two columns 'kernel'",
    "name,n,seconds\nsquare,64,1\n": "no column 'kernel'",
    "kernel,n,seconds\nsquare,64\n": "line 2: it has another number of fields",
    "kernel,n,seconds\nsquare,64,1\nsqare,64,1\n": "line 3: no kernel is called 'sqare': the functions are tiled",
    "kernel,n,seconds\nsquare,,1\n": "line 2: kernel 'square' needs a value for size n; give a column",
    "kernel,n,seconds\nsquare,many,1\n": "line 2: size n of kernel 'square' must be a whole number, not 'many'",
    "kernel,n,seconds\nsquare,True,1\n": "line 2: size n of kernel 'square' must be a whole number",
    "kernel,n,seconds\nsquare,64,0\n": "line 2: the time must be positive and finite, not '0' in column seconds",
    "kernel,n,seconds\nsquare,64,\n": "line 2: column seconds must hold a number, not 'nothing'",
    "kernel,n,seconds\nsquare,64,1 ms\n": "line 2: column seconds must hold a number, not '1 ms'",
    "kernel,n,seconds,launches\nsquare,64,1,0\n": "line 2: column launches must hold a whole number from 1 on",
    "kernel,n,seconds,spread\nsquare,64,1,-0.1\n": "line 2: the spread of .* must be a fraction",
    "kernel,n,seconds,registers\nsquare,64,1,0\n": "line 2: column registers",
    "kernel,n,seconds\n,64,1\n": "line 2: it names no kernel",
    "kernel,n,seconds\ntiled,64,1\n": "line 2: tiled needs arguments that the row does not have: tile",
    "kernel,tile,n,seconds\ntiled,16,20,1\n": "line 2: kernel 'matmul' is not valid for n=20",
    "kernel,n,seconds\nnumber,64,1\n": "line 2: number returns a int",
    "kernel,n,seconds\nmatmul_sq,64,1\n": r"line 2: 'matmul_sq' fits \d+ kernels; state .*, as tags or columns",
    "kernel,n,seconds\nmatmul_sq prefetch:maybe,64,1\n": "line 2: .*value 'maybe' is not allowed",
    'kernel,n,seconds\n"matmul_sq(dtyp=float32)",64,1\n': "line 2: .*dtyp",
    'kernel,n,seconds\n"square,64,1\n': r"line 1: it is no row of a CSV file",
}


@pytest.mark.parametrize("text", _BAD, ids=range(len(_BAD)))
def test_bad_tables_are_errors_that_name_the_line(text, tmp_path):
    with pytest.raises(FileFormatError, match=_BAD[text]) as caught:
        load_times(write(tmp_path, text), KERNELS)
    assert str(tmp_path / "log.csv") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_times_in_hand_need_no_file():
    rows = [TimedKernel(tiled(16), {"n": n}, law(tiled(16), {"n": n})) for n in (32, 64, 128, 256)]
    assert rows[0].name == "matmul(n=32)"
    calibration = calibrate(MODEL, times=TimesTable(tuple(rows), "a GPU"))
    assert dict(calibration.params) == pytest.approx(TRUE, rel=1e-6)
    for seconds in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(CalibrationError, match="positive and finite"):
            TimedKernel(tiled(16), {"n": 32}, seconds)
    with pytest.raises(CalibrationError, match="no times"):
        TimesTable(())


def test_machines_of_tables():
    rows = tuple(TimedKernel(tiled(16), {"n": n}, 1e-6 * n) for n in (256, 512, 1024))
    model = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_wave * f_waves")
    with pytest.raises(MachineError, match="needs a machine"):
        gather_feature_values(model.all_features(), times=TimesTable(rows, "a GPU"))
    named = gather_feature_values(model.all_features(), times=TimesTable(rows, "V100"))
    with using_machine("V100"):
        given = gather_feature_values(model.all_features(), times=TimesTable(rows))
    assert named.machine == given.machine == "V100"
    assert named.values.tolist() == given.values.tolist()
    # A sub-group of AMD's has 64 work-items.
    with using_machine("MI210"):
        assert gather_feature_values(model.all_features(), times=TimesTable(rows)).sub_group_size == 64
    with pytest.raises(CalibrationError, match="general_cpu or general_gpu"):
        calibrate("general", times=TimesTable(rows))


def test_measuring_and_times_are_not_asked_for_together():
    times = TimesTable((TimedKernel(tiled(16), {"n": 32}, 1e-6),))
    for name, value in {
        "kernels": [(tiled(16), {"n": 32})], "device": "pocl", "timing": TimingOptions(), "budget_s": 1.0,
    }.items():  # fmt: skip
        with pytest.raises(CalibrationError, match=f"leave out {name}, or times"):
            calibrate(MODEL, times=times, **{name: value})
    with pytest.raises(CalibrationError, match="f_code_instructions is of kernels built for a device"):
        calibrate(Model("f_cl_wall_time", "p_a * f_code_instructions"), times=times)


def test_a_calibrations_times_are_written_and_read(tmp_path):
    first = calibrate(MODEL, times=load_times(table_of_law(tmp_path), KERNELS))
    assert save_times(first, tmp_path / "out.csv") == 12
    times = load_times(tmp_path / "out.csv", KERNELS)
    assert times.device == "a cluster's GPU"
    again = calibrate(MODEL, times=times)
    assert dict(again.params) == dict(first.params)
    assert again.fit.kernels == first.fit.kernels
    with pytest.raises(FileFormatError, match="cannot write"):
        save_times(first, tmp_path / "absent" / "out.csv")


@pytest.mark.parametrize("residual", ["relative", "logarithmic"])
def test_times_that_a_law_gives_exactly_have_intervals(residual):
    kernels = [*(matmul(prefetch=prefetch) for prefetch in (True, False)), pointwise("x[i] * y[i] + x[i]")]
    rows = [
        TimedKernel(kernel, {"n": n}, 1e-6 + 1e-12 * n**power / 32, generator=f"p{place}")
        for place, (kernel, power) in enumerate(zip(kernels, (3, 3, 1), strict=True))
        for n in (128, 256, 512)
    ]
    model = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_madd * f_op_float32_madd")
    found = calibrate(model, times=TimesTable(tuple(rows)), fit=FitOptions(residual=residual))
    interval = found.predict_interval(kernels[0], {"n": 384})
    assert interval.predicted == pytest.approx(1e-6 + 1e-12 * 384**3 / 32)
    assert interval.low <= interval.predicted <= interval.high


@pytest.mark.parametrize(("given", "told"), [
    ({"seconds": "1e-3"}, "must be positive and finite, not 1e-3 s"), ({"seconds": None}, "not None s"),
    ({"seconds": True}, "not True s"), ({"seconds": 1, "spread": None}, "the spread of .* must be .*, not None"),
    ({"seconds": 1, "registers": "32"}, "has 32 registers; state one or more"),
])  # fmt: skip
def test_what_is_no_number_is_no_time(given, told):
    with pytest.raises(CalibrationError, match=told):
        TimedKernel(square(), {"n": 64}, **given)


def test_whole_numbers_with_a_point_are_the_same_sizes(tmp_path):
    path = write(tmp_path, "kernel,n,seconds\nsquare,64.0,1\nsquare,64,1\nsquare,6.4e1,1\n")
    assert [row.name for row in load_times(path, KERNELS).rows] == ["square(n=64)"] * 3
