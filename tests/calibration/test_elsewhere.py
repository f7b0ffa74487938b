"""Calibrating from a machine that has no device, as a login node: all about the device is asked of workers."""

from dataclasses import replace

import pytest

from perflex import Calibration, Device, TimingOptions, gather_feature_values, using_machine
from perflex.__main__ import main
from perflex.calibration.ready import own_cpu
from perflex.errors import MeasurementError, PerflexWarning
from perflex.machines.residency import Resources
from perflex.timing.results import MeasurementFailure
from support.elsewhere import Cluster, Worker
from uipick import ALL_GENERATORS, KernelCollection

GPU = Device("CUDA", "NVIDIA Corporation", "NVIDIA H100", "CUDA 13.0", kind="gpu", api="cuda", sub_group_size=32)
CPU = Device("Intel(R) OpenCL", "Intel(R) Corporation", "AMD EPYC 9999", "2025", kind="cpu")
# Work-items of the pilot and of the measurement kernels alike: 32 multiply-adds in each of 64 iterations.
PILOT = ("flops_madd_pattern", "dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True", "m:64")
PER_ELEMENT = 32 * 64
RATE = 1.7e12
MODEL = """\
schema: perflex-model/1
name: mine
description: Multiply-adds.
output: f_cl_wall_time
expression: p_madd * f_op_float32_madd
parameters:
  p_madd: {meaning: a multiply-add, unit: s per sub-group operation}
measurement_kernels:
  - tags: [flops_madd_pattern, "dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True", "m:64",
           "nelements:65536,131072"]
    scale: {nelements: {power: 1, step: 32768, odd: false}}
"""


def law(_, sizes):
    return sizes["nelements"] * PER_ELEMENT / RATE


@pytest.fixture(autouse=True)
def _no_code(monkeypatch, tmp_path):
    """Requests are the kernels themselves, and locks the test's own; this machine has no device (see conftest.py)."""
    for place in ("perflex.timing.executors.on_workers", "perflex.timing.rounds"):
        monkeypatch.setattr(f"{place}.request_for", lambda job, _: job)
    monkeypatch.setattr("perflex.timing.device_lock.tempfile.gettempdir", lambda: str(tmp_path))


def test_device_sizes_and_times_are_the_workers(tmp_path, monkeypatch, capsys):
    cluster = Cluster(Worker("node1", (GPU,), law), Worker("node2", (GPU,), law))
    monkeypatch.setattr("perflex.timing.executors.dask.dask_executor", lambda _: cluster)
    path, out = tmp_path / "mine.yaml", tmp_path / "out.yaml"
    path.write_text(MODEL)
    assert main(["calibrate", str(path), "-d", "tcp://node0:1", "-o", str(out)]) == 0
    assert "sizes are scaled for a device 10 times as fast" in capsys.readouterr().out
    found = Calibration.load(out)
    assert (found.device["name"], found.model.output_feature) == ("NVIDIA H100", "f_cuda_wall_time_h100")
    # A sub-group's operation.
    assert found.params["p_madd"] == pytest.approx(32 / RATE, rel=1e-3)
    assert {name for name, function in cluster.done if function == "time_batch"} <= {"node1", "node2"}


def test_the_cpu_is_the_workers(monkeypatch):
    theirs = object()
    monkeypatch.setattr("perflex.timing.executors.worker_device.reported_cpu", lambda: theirs)
    monkeypatch.setattr("perflex.calibration.ready.reported_cpu", lambda: pytest.fail("asked here"))
    cluster = Cluster(Worker("node1", (CPU,), law))
    device = cluster.device(CPU)
    assert own_cpu(device, ["f_ecm_vol_l2"]) is theirs
    assert own_cpu(device, ["f_thread_groups"]) is None
    with using_machine("EPYC-7452"):
        assert own_cpu(device, ["f_ecm_vol_l2"]) is None
    known = replace(CPU, name="AMD EPYC 7452 32-Core Processor")
    assert own_cpu(Cluster(Worker("node1", (known,), law)).device(), ["f_ecm_vol_l2"]) is None


def test_builds_are_the_workers(monkeypatch):
    def built(jobs, device, *_):
        assert device.host == "node1"
        error = MeasurementError("no room", kernel=jobs[-1].label)
        return [
            *(Resources(registers=40 + n) for n, _ in enumerate(jobs[:-1])),
            MeasurementFailure(jobs[-1].label, "no room", "prepare", error),
        ]

    monkeypatch.setattr("perflex.timing.compiled_code.resource_use", built)
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels([*PILOT, "nelements:32768,65536,98304"])
    device = Cluster(Worker("node1", (GPU,), law)).device()
    with pytest.warns(PerflexWarning, match="is left out: no room"):
        table = gather_feature_values(
            ["f_cuda_wall_time", "f_registers"], kernels, timing=TimingOptions(trials=2, min_trials=2), device=device
        )
    assert list(table.column("f_registers")) == [40, 41]
