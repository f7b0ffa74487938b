"""Files of OpenCL C and CUDA C on the command line: they work with kernel and launch, else say what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perflex.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

CL = """
__kernel void saxpy(int n, float a, __global const float *x, __global float *y) {
  int i = get_global_id(0);
  if (i < n) y[i] += a*x[i];
}
__kernel void twice(int n, __global float *x) { int i = get_global_id(0); if (i < n) x[i] *= 2; }
"""
CU = """
__global__ void saxpy(int n, float a, const float *x, float *y) {
  int i = blockIdx.x*blockDim.x + threadIdx.x;
  if (i < n) y[i] += a*x[i];
}
"""
LAUNCH = ("--local", "64", "--global", "n")


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my.cl").write_text(CL)
    (tmp_path / "my.cu").write_text(CU)
    (tmp_path / "none.cl").write_text("void helper(int n) {}")
    (tmp_path / "t.csv").write_text("kernel,seconds\nsaxpy,1e-6\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("kernel", ["my.cl:saxpy", "my.cu:saxpy"])
@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (("features", "{}", "n=4096"), "f_op_float32_madd"),
        (("volumes", "{}", "n=4096", "--machine", "V100"), "kernel saxpy at n=4096 on V100"),
        (("roofline", "{}", "n=4096", "--machine", "V100"), "saxpy"),
        (("predict", "--machine", "A100-40GB", "{}", "n=4096"), "n=4096: "),
        (("rank", "--machine", "A100-40GB", "{}", "n=4096"), "1. "),
    ],
)
def test_a_kernel_of_a_file_with_its_launch(
    command: tuple[str, ...], shown: str, kernel: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*(word.format(kernel) for word in command), *LAUNCH]) == 0
    assert shown in capfd.readouterr().out


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("features my.cl n=4", "my.cl names no kernel of the file; name one: my.cl:saxpy, my.cl:twice"),
        ("volumes my.cu n=4 --machine V100", "name one: my.cu:saxpy"),
        ("roofline my.cl n=4 --machine V100", "name one: my.cl:saxpy, my.cl:twice"),
        ("predict --machine A100-40GB my.cl n=4", "name one: my.cl:saxpy, my.cl:twice"),
        ("rank --machine A100-40GB my.cl:saxpy my.cu n=4 --local 64 --global n", "name one: my.cu:saxpy"),
        ("features none.cl n=4", "none.cl names no kernel of the file; it has none"),
        ("features not_there.cl n=4", "there is no file not_there.cl"),
        ("features my.cl:saxpy n=4", "needs its launch: --local 32,8, and --groups or --global"),
        ("predict my.cl n=4", "my.cl is no calibration; name a calibration's file before the kernel"),
        ("rank my.cl my.cu n=4", "my.cl is no calibration; name a calibration's file before the kernel"),
        ("prune my.cl n=4", "my.cl is no calibration; name a calibration's file before the kernel"),
        ("prune --machine A100-40GB my.cl n=4", "schema: perflex-source/1"),
        ("prune --machine A100-40GB my.cu:saxpy n=4", "schema: perflex-source/1"),
        ("tune --machine A100-40GB my.cl:saxpy n=4", "schema: perflex-source/1"),
        (
            "calibrate general_gpu --times t.csv --kernels my.cl --machine V100 -o c.yaml",
            "perflex.source_kernel('my.cl'",
        ),
    ],
)
def test_what_is_missing_is_said(command: str, advice: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 2
    assert advice in capfd.readouterr().err
