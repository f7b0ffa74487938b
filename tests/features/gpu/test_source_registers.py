"""Registers that a source lets expect, beside those that its compiler takes."""

from dataclasses import replace

import pytest

from perflex import estimate_volumes, load_machine, machine_code, source_kernel
from perflex.errors import MissingExtraError
from perflex.features.counting.private_memory import private_uses
from perflex.features.gpu.source_registers import SourceRegisters, source_registers
from perflex.features.gpu.waves import launch_residency

A100 = load_machine("A100-40GB")
BESIDE = 24


def text(results):
    return f"""extern "C" __global__ void __launch_bounds__(256) kernel(float *x, const float *y, int n) {{
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      float sum[{results}];
      #pragma unroll
      for (int k = 0; k < {results}; k++) sum[k] = 0;
      #pragma unroll 1
      for (int j = 0; j < n; j++) {{
        #pragma unroll
        for (int k = 0; k < {results}; k++) sum[k] += y[j * n + i] * x[j * {results} + k];
      }}
      #pragma unroll
      for (int k = 0; k < {results}; k++) x[i * {results} + k] = sum[k];
    }}"""


def kernel(results, local=256):
    return source_kernel(text(results), "kernel", local=local, groups=1000, language="cuda")


@pytest.mark.parametrize("results", [8, 32, 64, 96])
def test_a_compiler_takes_about_as_many(results):
    found = source_registers(kernel(results).scop({"n": 10}), 0, {"n": 10}, A100)
    assert found == SourceRegisters(BESIDE + results)
    try:
        ((code,),) = machine_code([(kernel(results), {"n": 10})], A100)
    except MissingExtraError as missing:
        pytest.skip(missing.message)
    # Below 32 they limit nothing: a compute unit holds no more work-items.
    assert max(32, found.per_item) == pytest.approx(max(32, code.gpu.facts.registers), abs=24)


def test_they_limit_the_work_groups_of_a_compute_unit():
    scop = kernel(100).scop({"n": 10})
    held = launch_residency(scop, 0, {"n": 10}, A100)
    # 24 + 100 are 128 in steps of 8: 512 of 65536.
    assert (held.limit, held.groups_per_unit) == ("registers", 2)
    assert launch_residency(scop, 0, {"n": 10}, A100, 32).limit == "work-items"


def test_a_work_group_always_finds_room_and_what_does_not_fit_goes_to_memory():
    n, results = 10, 100
    scop = kernel(results, local=1024).scop({"n": n})
    found = source_registers(scop, 0, {"n": n}, A100)
    assert found == SourceRegisters(64, (BESIDE + results - 64) / results)
    assert launch_residency(scop, 0, {"n": n}, A100).groups_per_unit == 1
    (use,) = private_uses(scop, {"n": n}, 32, {0: found.spilt}).values()
    sub_groups, words = 1000 * 32, results * found.spilt
    assert use.bytes_per_item == pytest.approx(4 * words)
    assert (use.loads, use.stores) == pytest.approx((sub_groups * words * (n + 1), sub_groups * words * (n + 1)))
    given = kernel(results, local=1024), {"n": n}, A100
    assert estimate_volumes(*given).arrays["private memory"].l1_wavefronts == pytest.approx(use.loads + use.stores)
    # Whoever states registers knows what is spilt.
    assert "private memory" not in estimate_volumes(*given, registers=64).arrays


def test_no_more_is_spilt_than_there_is():
    scop = kernel(2, local=1024).scop({"n": 10})
    small = replace(A100, registers_per_unit=16384)
    assert source_registers(scop, 0, {"n": 10}, small) == SourceRegisters(16, 1.0)


def test_nothing_is_known_of_a_machine_without_registers():
    scop = kernel(8).scop({"n": 10})
    assert source_registers(scop, 0, {"n": 10}, load_machine("W7800")).per_item == BESIDE + 8
    assert source_registers(scop, 0, {"n": 10}, replace(A100, registers_per_unit=None)) == SourceRegisters(None)
