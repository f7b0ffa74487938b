"""Times by settings from files that tuners write: Kernel Tuner's, KTT's, T4, those of CLBlast's tuners, and tables."""

import gzip
import json
import math

import pytest

from perflex.errors import FileFormatError, PerflexWarning
from perflex.search.measured_times import measured_times, read_times

SIZES = [{"multiply_block_size": size} for size in (32, 64, 128, 256)]
VARIANTS = [{"items": items, "depth": depth} for items in (32, 64, 128) for depth in (1, 2)]
# The last has settings that are none of a variant; of the same settings twice, the median counts.
ROWS = [
    (64, 1, 3.0), (64, 2, 2.0), (128, 1, 1.0), (64, 1, 5.0), (32, 2, "CompilationFailedConfig"), (128, 2, math.nan),
    (128, 2, -1.0), (128, 2, 3.4e38), (64, 4, 9.0),
]  # fmt: skip
EXPECTED = {"items=64, depth=1": 4e-3, "items=64, depth=2": 2e-3, "items=128, depth=1": 1e-3}


def times_of(path, settings):
    return measured_times(path, [", ".join(f"{n}={v}" for n, v in one.items()) for one in settings], settings)


def sizes_of(path):
    return {int(name.partition("=")[2]): seconds for name, seconds in times_of(path, SIZES).items()}


def cache(rows, **more):
    entries = {str(i): dict(zip(("items", "depth", "time"), row, strict=True)) for i, row in enumerate(rows)}
    return {"device_name": "A GPU", "tune_params_keys": ["items", "depth"], "cache": entries, **more}


@pytest.mark.filterwarnings("ignore:.*1 times are of settings that are none of the 6 variants")
def test_caches_whole_left_open_and_packed_and_tables(tmp_path):
    text = json.dumps(cache(ROWS))
    table = "\n".join(",".join(map(str, row)) for row in [("items", "depth", "time_ms"), *ROWS])
    # A spreadsheet's table begins with a mark.
    for name, content, device in (
        ("cache.json", text.encode(), "A GPU"),
        ("open.json", text[:-2].encode() + b",", "A GPU"),
        ("cache.json.gz", gzip.compress(text.encode()), "A GPU"),
        ("GPU.csv", table.encode(), "GPU"),
        ("sheet.csv", table.encode("utf-8-sig"), "sheet"),
    ):
        (tmp_path / name).write_bytes(content)
        assert times_of(tmp_path / name, VARIANTS) == pytest.approx(EXPECTED)
        assert name == "open.json" or read_times(tmp_path / name)[1] == device
    (tmp_path / "cache.json.gz").write_bytes((packed := gzip.compress(text.encode()))[:20] + b"\xff" * 10 + packed[30:])
    with pytest.raises(FileFormatError, match="cannot read"):
        times_of(tmp_path / "cache.json.gz", VARIANTS)


def test_times_of_other_settings_are_told(tmp_path):
    with pytest.warns(PerflexWarning, match="1 times are of settings that are none of the 6 variants"):
        times_of(write(tmp_path, cache(ROWS)), VARIANTS)


def test_t4_files_and_units(tmp_path):
    def result(items, depth, time, unit):
        failed = isinstance(time, str)
        value = [] if failed else [{"name": "time", "value": time * 1000, "unit": unit}]
        state = "compile" if failed else "correct"
        return {"configuration": {"items": items, "depth": depth}, "invalidity": state, "measurements": value}

    rows = ROWS[:-1]
    assert times_of(write(tmp_path, {"results": [result(*row, "us") for row in rows]}), VARIANTS) == pytest.approx(
        EXPECTED
    )
    for unit in ("", "parsec"):
        with pytest.raises(FileFormatError, match="unit"):
            times_of(write(tmp_path, {"results": [result(*row, unit) for row in rows]}), VARIANTS)


# Of HiPerCoRe/KTT, Tutorials/03KernelTuning/FullSearchSpace.ktt.json and .t4.json (MIT License, (c) 2017 HiPerCoRe),
# recorded on an RTX 500 Ada; shortened to what is read, with failed configurations as its source writes them.
KTT_METADATA = {
    "ComputeApi": "CUDA", "Device": "NVIDIA RTX 500 Ada Generation Laptop GPU", "GlobalSizeType": "CUDA",
    "KttVersion": "2.2.0", "Platform": "NVIDIA CUDA", "TimeUnit": "Microseconds",
    "Timestamp": "2026-04-21 07:19:6 UTC",
}  # fmt: skip
KTT_TIMES = {32: 89.536, 64: 54.304, 128: 46.976}
T4_METADATA = {"autotuner": "KTT", "device": "NVIDIA RTX 500 Ada Generation Laptop GPU", "timeunit": "microseconds"}
T4_TIMES = {32: 90.656, 64: 62.816, 128: 64.127}


def ktt_result(size, time, status="Ok"):
    return {
        "ComputationResults": [{"Duration": time, "KernelFunction": "vectorAddition", "Overhead": 9253.058}],
        "Configuration": [{"Name": "multiply_block_size", "Value": size, "ValueType": "UnsignedInt"}],
        "ExtraDuration": 0.0,
        "KernelName": "vectorAddition_kernel",
        "Status": status,
        "TotalDuration": time,
        "TotalOverhead": 119152.025,
    }


def t4_result(size, time, invalidity="correct"):
    measured = [{"name": "time", "unit": "", "value": time}, {"name": "dram__sectors_read.sum", "unit": "", "value": 1}]
    return {
        "configuration": {"multiply_block_size": str(size)},
        "correctness": 1,
        "invalidity": invalidity,
        "measurements": measured,
        "times": {"runtimes": [time], "compilation_time": 16215.021},
    }


def write(folder, document, name="a.json"):
    (folder / name).write_text(json.dumps(document))
    return folder / name


def test_ktt_files(tmp_path):
    results = [ktt_result(*pair) for pair in KTT_TIMES.items()]
    results += [ktt_result(256, 1.8446744073709552e16), ktt_result(256, 3.0, "ValidationFailed")]
    path = write(tmp_path, {"Metadata": KTT_METADATA, "Results": results, "UserData": {"who": "me"}})
    assert sizes_of(path) == pytest.approx({size: time * 1e-6 for size, time in KTT_TIMES.items()})
    assert read_times(path)[1] == KTT_METADATA["Device"]
    # Versions before 2.1 state IsDouble instead of the type.
    old = [{"Name": "multiply_block_size", "IsDouble": False, "Value": 64}]
    write(tmp_path, {"Metadata": {"TimeUnit": "Milliseconds"}, "Results": [{"Configuration": old, "TotalDuration": 2}]})
    assert sizes_of(path) == {64: 0.002}


def test_t4_files_of_ktt_state_their_unit_once(tmp_path):
    results = [*(t4_result(*pair) for pair in T4_TIMES.items()), t4_result(256, 1.0, "compile")]
    path = write(tmp_path, {"schema_version": "1.0.0", "metadata": T4_METADATA, "results": results})
    assert sizes_of(path) == pytest.approx({size: time * 1e-6 for size, time in T4_TIMES.items()})
    assert read_times(path)[1] == T4_METADATA["device"]


def clblast(rows, **stated):
    """Return what PrintTimingsToFileAsJSON of CLBlast's src/tuning/tuning.cpp writes."""
    parameters = {
        "GEMMK": 0, "KREG": 1, "KWG": 32, "KWI": 2, "MDIMA": 8, "MDIMC": 8, "MWG": 64, "NDIMB": 8, "NDIMC": 8,
        "NWG": 64, "PRECISION": 32, "SA": 1, "SB": 1, "STRM": 0, "STRN": 0, "VWM": 4, "VWN": 2,
    }  # fmt: skip
    results = [{"kernel": "Xgemm", "time": time, "parameters": {**parameters, **own}} for time, own in rows]
    return {
        "kernel_family": "xgemm_1", "precision": "32", "best_kernel": "Xgemm", "best_time": "1.25",
        "best_parameters": "GEMMK=0 KREG=1", "arg_m": "1024", "arg_n": "2048", "arg_k": "512", "arg_alpha": "2.00",
        "arg_beta": "2.00", "clblast_device_type": "GPU", "clblast_device_vendor": "NVIDIA",
        "clblast_device_architecture": "SM7.0", "clblast_device_name": "Tesla V100", "device": "Tesla V100-SXM2-16GB",
        "device_core_clock": "1530", "device_compute_units": "80", **stated, "results": results,
    }  # fmt: skip


def test_files_of_clblasts_tuners_with_their_sizes(tmp_path):
    rows = [(1.25, {}), (2.5, {"MWG": 32}), (0.0, {"NWG": 32}), (3.4e38, {"NWG": 128}), (4.0, {"MWG": 128, "VWM": 8})]
    path = write(tmp_path, clblast(rows))
    variants = [{"MWG": size, "N": 2048} for size in (32, 64, 128)]
    assert times_of(path, variants) == {"MWG=64, N=2048": 0.00125, "MWG=32, N=2048": 0.0025, "MWG=128, N=2048": 0.004}
    assert read_times(path)[1] == "Tesla V100-SXM2-16GB"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "damaged"),
        ("a.json", "[]", "neither a 'cache'"),
        ("a.json", '{"sections": []}', "make a table of it"),
        ("a.json", '{"cache": {}}', "tune_params_keys"),
        ("a.json", json.dumps(cache([(64, 1, "failed"), (64, 2, None)])), "no time of any of the 6 variants"),
        ("a.json", json.dumps(cache([(128, 4, 1.0)])), "but 1 of other settings"),
        ("a.json", json.dumps(cache(ROWS, objective="energy")), "'energy'"),
        ("a.json", json.dumps({**cache(ROWS), "tune_params_keys": [["items"]]}), "list of names"),
        ("a.json", '{"results": [3]}', "without configuration; it is no file of T4"),
        ("a.json", '{"results": [{"parameters": 3}]}', "without parameters"),
        ("a.json", json.dumps({"Results": [3]}), "without Configuration; it is no file of KTT"),
        ("a.json", json.dumps({"Results": [{"Configuration": [{"Value": 1}]}]}), "without Name"),
        ("a.json", json.dumps({"Results": [ktt_result(32, 1.0)]}), "the unit ''"),
        ("a.json", json.dumps({"Results": [ktt_result(32, 1)], "Metadata": {"TimeUnit": "Ticks"}}), "the unit 'Ticks'"),
        ("a.json", json.dumps(clblast([(1.0, {})])), "has no items, by which variants are told apart"),
        ("a.csv", "items,depth,time\n64,1,3\n", "time_ms"),
        ("a.csv", "items,time_ms\n64,3\n", "has no depth, by which variants are told apart"),
        ("a.csv", "items,depth,time_ms\n64," + "1" * 200000 + ",3\n", "line 1"),
        ("a.csv", "items,depth,time_ms\n64,1,3,25\n", "line 2, has more cells than the heading"),
        ("a.csv", "items,depth,items,time_ms\n64,1,32,3\n", "has two columns items; rename one"),
        ("a.txt", "", "convert"),
        ("a.json.gz", "no gzip", "cannot read"),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(FileFormatError, match=message):
        times_of(tmp_path / name, VARIANTS)
