"""Kernels that were compiled for AMD's GPUs: found in what the compiler says, kept, and counted by it."""

from dataclasses import replace
from typing import get_type_hints

import pytest

from perflex import load_machine, source_kernel
from perflex.errors import FeatureError, MeasurementError, UnsupportedKernelError
from perflex.features import Target, extract_scop, parse_feature
from perflex.timing import machine_code
from perflex.timing.launch import amd_code, kept_code

SOURCE = """
kernel void tiles(global float *x, int n) {
  local float tile[128];
  float sum = 0;
  for (int k = 0; k < n; k++) {
    tile[get_local_id(0)] = x[128 * k + get_local_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = 0; j < 128; j++) sum += tile[j];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  x[get_global_id(0)] = sum;
}"""


MOVES = get_type_hints(amd_code.AmdFacts)["moves"](stores=1, looped_loads=1, looped_barriers=2)
FACTS = amd_code.AmdFacts("tiles", 6, 8, 4, MOVES, 512, "digest")
SIZES = {"n": 10}


@pytest.fixture
def one(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFLEX_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.setattr(amd_code, "amd_compiler", lambda _: type("Compiler", (), {"version": "none"}))
    kernel = source_kernel(SOURCE, "tiles", local=128, groups=4, language="opencl")
    (job,) = machine_code.sized_kernels([(kernel, SIZES)])
    return amd_code.amd_compilation(job, "gfx906")


def made(*facts):
    return amd_code.AmdCompiled(facts, "1:1: error: no\nnote")


def value(name, code=None):
    scop = extract_scop(source_kernel(SOURCE, "tiles", local=128, groups=4, language="opencl"), SIZES)
    return parse_feature(name).value(scop, SIZES, Target(64, load_machine("MI50"), code=code))


def test_kernels_are_compiled_once_and_take_what_their_code_says(one):
    assert one.arguments[1:3] == ("opencl", "gfx906")
    assert kept_code.kept(one.key, one.made) is None
    kept_code.keep(one.key, made(FACTS))
    assert kept_code.kept(one.key, one.made) == made(FACTS)
    code = one.code(made(FACTS))
    built = Target(code=code).built
    assert (built.registers, built.private_bytes, built.spill_bytes, built.local_bytes) == (6, 8, 4, 512)
    assert (code[0].gpu.groups, code[0].gpu.work_group) == ((4,), (128,))
    assert [(each.name, each.is_array) for each in code[0].arguments] == [("x", True), ("n", False)]
    with pytest.raises(FeatureError, match="not read of code for AMD's GPUs"):
        value("f_code_loads", code)


def test_private_memory_is_part_of_the_volumes(one):
    def more(facts):
        return value("f_peak_l1", one.code(made(facts))) - value("f_peak_l1")

    # Of each sub-group a word is stored, and one loaded for every two of twenty barriers.
    words = 1 + 10
    assert more(FACTS) > 0
    assert more(replace(FACTS, moves=replace(MOVES, loads=3))) == pytest.approx(more(FACTS) * (words + 3) / words)
    assert more(replace(FACTS, private_bytes=0)) == 0


def test_registers_decide_how_much_is_resident(one):
    assert value("f_occupancy", one.code(made(FACTS))) == value("f_occupancy") == 1
    # Two of 256 registers in each of four register files, which hold ten sub-groups each.
    assert value("f_occupancy", one.code(made(replace(FACTS, registers=128)))) == 8 / 40


@pytest.mark.parametrize("other", [{"private_bytes": None}, {"moves": replace(MOVES, complete=False)}])
def test_private_memory_that_nobody_counts_is_refused(one, other):
    with pytest.raises(UnsupportedKernelError, match="how often cannot be counted"):
        value("f_peak_l1", one.code(made(replace(FACTS, **other))))


def test_a_kernel_is_found_by_its_name_or_alone(one):
    other = replace(FACTS, name="_Z5tilesPfi")
    assert one.code(made(other, FACTS))[0].gpu.facts == FACTS
    assert one.code(made(other))[0].gpu.facts == other
    with pytest.raises(MeasurementError, match="several kernels, _Z5tilesPfi, k; write 'tiles' extern"):
        one.code(made(other, replace(FACTS, name="k")))
    with pytest.raises(MeasurementError, match=r"does not compile for gfx906: 1:1: error: no"):
        one.code(made())
