"""Files that other tuners write: KTT's results, its T4 files, and those of CLBlast's tuners."""

import json
import math

import pytest

from perflex import load_described_space, load_description
from perflex.errors import FileFormatError
from perflex.search.described.description import platform_of

VECTORS = """
schema: perflex-description/1
name: vector addition
description: a kernel
tunables:
  multiply_block_size: {meaning: work-items, values: [32, 64, 128, 256]}
features:
  f_groups: 1048576/multiply_block_size
model: p_time*f_groups
parameters:
  p_time: {meaning: time of a group, unit: ms, prior: 0.001, spread: 2}
"""
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


@pytest.fixture
def vectors(tmp_path):
    (tmp_path / "vectors.yaml").write_text(VECTORS)
    return load_description(tmp_path / "vectors.yaml")


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


def test_ktt_files(vectors, tmp_path):
    results = [ktt_result(*pair) for pair in KTT_TIMES.items()]
    results += [ktt_result(256, 1.8446744073709552e16), ktt_result(256, 3.0, "ValidationFailed")]
    path = write(tmp_path, {"Metadata": KTT_METADATA, "Results": results, "UserData": {"who": "me"}})
    found = load_described_space(path, vectors)
    assert dict(zip(found.settings["multiply_block_size"], found.times, strict=True)) == pytest.approx(
        {size: time * 1e-6 for size, time in KTT_TIMES.items()}
    )
    assert (found.device, found.excluded) == (KTT_METADATA["Device"], {"failed or without a time": 2})
    # Versions before 2.1 state IsDouble instead of the type.
    old = [{"Name": "multiply_block_size", "IsDouble": False, "Value": 64}]
    write(tmp_path, {"Metadata": {"TimeUnit": "Milliseconds"}, "Results": [{"Configuration": old, "TotalDuration": 2}]})
    assert load_described_space(path, vectors).times.tolist() == [0.002]


def test_t4_files_of_ktt_state_their_unit_once(vectors, tmp_path):
    results = [*(t4_result(*pair) for pair in T4_TIMES.items()), t4_result(256, 1.0, "compile")]
    path = write(tmp_path, {"schema_version": "1.0.0", "metadata": T4_METADATA, "results": results})
    found = load_described_space(path, vectors)
    assert found.times.tolist() == pytest.approx([time * 1e-6 for time in T4_TIMES.values()])
    assert (found.device, found.excluded) == (T4_METADATA["device"], {"failed or without a time": 1})


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
    found = load_described_space(write(tmp_path, clblast(rows)), "gemm")
    assert found.times.tolist() == [0.00125, 0.0025, 0.004]
    assert found.excluded == {"failed or without a time": 2}
    assert found.device == "Tesla V100-SXM2-16GB"
    assert [found.settings[name].tolist() for name in "MNK"] == [[1024.0] * 3, [2048.0] * 3, [512.0] * 3]
    # By hand: a sub-group's multiply-adds, M N K / 32 of them.
    (features, *_) = found.readings
    assert features["f_madds"].tolist() == [1024 * 2048 * 512 / platform_of(found.device)["m_lanes"]] * 3


# The description that is meant: another algorithm or type is not taken for the described one.
@pytest.mark.parametrize(
    ("document", "description", "message"),
    [
        *(({"Results": [entry]}, "", "without a Configuration") for entry in (3, {"Configuration": [{"Value": 1}]})),
        ({"Results": [ktt_result(32, 1.0)]}, "", "the unit ''"),
        ({"Results": [ktt_result(32, 1.0)], "Metadata": {"TimeUnit": "Ticks"}}, "", "the unit 'Ticks'"),
        ({"results": [{"parameters": 3}]}, "", "without parameters"),
        ({"sections": []}, "", "make a table of it"),
        (clblast([(math.inf, {})]), "", "has no tunable multiply_block_size"),
        (clblast([(1.0, {"GEMMK": 1})]), "gemm", "none has GEMMK == 0"),
        (clblast([(1.0, {"PRECISION": 64})]), "gemm", "none has PRECISION == 32"),
        (clblast([(1.0, {"MWG": 48})]), "gemm", r"none has MWG % \(MDIMC\*VWM\) == 0 and MWG % \(MDIMA\*VWM\) == 0"),
    ],
)
def test_what_is_no_such_file(document, description, message, vectors, tmp_path):
    with pytest.raises(FileFormatError, match=message):
        load_described_space(write(tmp_path, document), description or vectors)
