"""Flaws are found in kernels that have one planted, and none in others; savings are those of the mended kernels."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

import perflex
from oracles import held_back_kernels, planted_kernels
from oracles.planted_kernels import function_of
from perflex.analysis.finding import Case
from perflex.analysis.findings import find
from perflex.errors import MissingSizeError

# Tiles hold what slides along with work-items less simply than whole rows and columns.
NOT_FOUND = {"repeated-loads, stencil: moving sum"}
# Several loads of one array would share a tile.
NOT_TOLD = {"repeated-loads, particles: nearest centre"}
PLANTED = [one for one in (*planted_kernels.PLANTED, *held_back_kernels.PLANTED) if one.name not in NOT_FOUND]
CLEAN = [*planted_kernels.CLEAN, *held_back_kernels.CLEAN]
# Work-items of a launch, as one finds them; the flaw is no part of a line.
OF_LAUNCHES = {"few-groups", "last-wave", "group-starts", "launch-bound", "occupancy"}


@pytest.fixture(scope="module")
def general():
    return perflex.Calibration.load("general_gpu")


def some(kernels, each):
    """Mark all kernels but each n-th one as slow."""
    return [
        pytest.param(one, id=one.name, marks=[] if number % each == 0 else [pytest.mark.slow])
        for number, one in enumerate(kernels)
    ]


def explained(calibration, one, source, groups, local, registers):
    kernel = perflex.source_kernel(source, function_of(source), groups=list(groups), local=list(local))
    return perflex.explain(kernel, one.sizes, calibration, machine=one.machine, registers=registers)


@pytest.mark.parametrize("planted", some(PLANTED, 8))
def test_planted_flaws_are_found(planted, general):
    found = explained(general, planted, planted.source, planted.groups, planted.local, planted.registers)
    (finding, *others) = [
        one
        for one in found.findings
        if one.kind == planted.flaw and one.line == ("" if planted.flaw in OF_LAUNCHES else str(planted.line))
    ]
    assert not others
    assert {one.kind for one in found.findings} == {planted.flaw}
    if planted.flaw == "launch-bound":
        assert finding.found > 0.5
        assert finding.change.ratio == pytest.approx(1 - finding.found)
        return
    # As for perflex, for compilers a multiplication with an addition is one operation.
    least = planted.found / (2 if planted.flaw == "float64" else 1)
    assert 0.999 * least <= finding.found <= 1.001 * planted.found
    # A finding is of all accesses of a line, of which some may begin in the middle of a sector.
    assert finding.mended == pytest.approx(planted.mended, rel=0.15 if planted.flaw == "coalescing" else 1e-3)
    mended = explained(
        general, planted, planted.mended_source, planted.mended_groups, planted.mended_local, planted.mended_registers
    )
    if planted.name in NOT_TOLD:
        assert (finding.change, bool(finding.reason)) == (None, True)
        return
    # Of who diverges, work-items of one work-group or of all may be put together.
    tolerance = 0.15 if planted.flaw == "divergence" else 0.01
    ratio = mended.prediction.seconds / found.prediction.seconds
    assert finding.change.ratio == pytest.approx(ratio, rel=tolerance)
    assert finding.change.low <= finding.change.ratio <= finding.change.high


@pytest.mark.parametrize("clean", some(CLEAN, 10))
def test_clean_kernels_have_none(clean, general):
    found = explained(general, clean, clean.source, clean.groups, clean.local, clean.registers)
    assert (found.findings, found.unknown) == ((), "")


FILE = """// A double buffer, if any.
#define HALF 0.5
__global__ void other(double *z) { if (threadIdx.x % 2) z[threadIdx.x] = 1.0; }
__global__ void meant(float *y, const float *x, int m) {
  double v = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int k = 0; k < m; k++) v = v * v + 1.0;
  y[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
__global__ void macro(float *y, const float *x, int m) {
  float v = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int k = 0; k < m; k++) v = v * v + HALF;
  y[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
__global__ void lanes(float *y, const float *x, int m) {
  float v = x[blockIdx.x * blockDim.x + threadIdx.x];
  switch (threadIdx.x % 4) {  // if only
    case 0: for (int k = 0; k < m; k++) v = v * v + 0.5f;
  }
  y[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
__global__ void rows(float *y, const float *x, int m) {
  __shared__ float a[8][33];
  int t = threadIdx.x;
  float v = 0.0f;
  a[t / 32][t % 32] = x[blockIdx.x * blockDim.x + t];
  __syncthreads();
  for (int k = 0; k < m; k++) v += a[t % 8][(t / 8 + k) % 32];
  y[blockIdx.x * blockDim.x + t] = v;
}
"""


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("meant", []),
        ("macro", [("float64", "11")]),
        ("lanes", [("divergence", "16")]),
        ("rows", [("bank-conflicts", "27")]),
    ],
)
def test_flaws_are_those_of_the_function(name, found, general):
    kernel = perflex.source_kernel(FILE, name, groups=["65536"], local=[256])
    made = perflex.explain(kernel, {"m": 96}, general, machine="T4")
    assert [(one.kind, one.line) for one in made.findings] == found
    if name == "rows":
        assert made.findings[0].cure == "make its rows 3 longer"


def test_what_compiled_code_spills_is_told(general):
    kernel = perflex.source_kernel(FILE, "macro", groups=["65536"], local=[256])
    target = replace(general.target("A100-40GB"), resources=SimpleNamespace(registers=32, spill_bytes=64))
    (finding,) = [one for one in find(Case(kernel.scop(), {"m": 96}, target, general))[0] if one.kind == "spills"]
    assert (finding.found, finding.mended, finding.change, bool(finding.reason)) == (64, 0, None, True)


def test_arrays_of_sizes_are_refused(general):
    kernel = perflex.source_kernel(FILE, "macro", groups=["65536"], local=[256])
    with pytest.raises(MissingSizeError, match="one value of each size, and m has several"):
        perflex.explain(kernel, {"m": [1, 2]}, general, machine="T4")
