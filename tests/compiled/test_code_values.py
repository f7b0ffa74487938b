"""Machine code that is read and never run: loops, trip counts, executions and cycles of code that is known."""

import shutil
import subprocess

import pytest

from perflex.compiled.code_values import group_values, trip_count
from perflex.compiled.control_flow import Totals, blocks_of, loops_of
from perflex.compiled.decoding import disassembled
from perflex.compiled.elf import Function, elf_object
from perflex.compiled.instructions import chain_cycles, port_cycles
from perflex.compiled.program import Argument, CompiledProgram
from perflex.compiled.values import Propagation

# The loop of y[i] = 1 * x[i] + y[i] for i below n as compilers write it: 16 at once, then what is left over one by one.
# In assembler: mov rax,[rdi]; mov rcx,[rdi+8]; mov r8d,[rdi+16]; vbroadcastss zmm1,[rip+one]; xor edx,edx;
# mov r9d,r8d; and r9d,-16; je rest
# Label vector: vmovups zmm0,[rcx+rdx*4]; vfmadd213ps zmm0,zmm1,[rax+rdx*4]; vmovups [rax+rdx*4],zmm0;
# add rdx,16; cmp rdx,r9; jne vector
# Label rest: cmp edx,r8d; jge done
# Label scalar: vmovss xmm0,[rcx+rdx*4]; vfmadd213ss xmm0,xmm1,[rax+rdx*4]; vmovss [rax+rdx*4],xmm0;
# inc rdx; cmp rdx,r8; jl scalar
# Label done: vzeroupper; ret
AXPY = bytes.fromhex(
    "488b07488b4f08448b471062f27d48180d4a00000031d24589c14183e1f0741e62f17c4810049162f27548a8049062f17c4811049048"
    "83c2104c39ca75e24439c27d18c5fa100491c4e271a90490c5fa11049048ffc24c39c27ce8c5f877c3"
)
ARGUMENTS = (Argument("y", 8, is_array=True), Argument("x", 8, is_array=True), Argument("n", 4, is_array=False))
PROGRAM = CompiledProgram("axpy", "intel", (Function("axpy", 0, AXPY),), ARGUMENTS)


def totals(n):
    return Totals({"ops_float32": 2.0 * n, "global_store_bytes": 4.0 * n}, {"global_load_bytes": 8.0 * n})


@pytest.mark.parametrize(("n", "vectors", "scalars"), [(1024, 64, 0), (16, 1, 0), (100, 6, 4), (15, 0, 15)])
def test_a_loop_and_the_copy_for_what_is_left_over(n, vectors, scalars):
    found = group_values(PROGRAM, {"n": n}, (1,), totals(n))
    assert found.counts["packed_float32"] == pytest.approx(vectors)
    assert found.counts["scalar_float32"] == pytest.approx(scalars)
    assert found.counts["lanes_float32"] == pytest.approx(n)
    assert found.counts["ops_float32"] == pytest.approx(2 * n)
    assert found.counts["global_store_bytes"] == pytest.approx(4 * n)
    # Each iteration loads twice, of which one is part of the multiply-add; three arguments and a constant come first.
    assert found.counts["loads"] == pytest.approx(2 * (vectors + scalars) + 4)
    assert found.counts["spills"] == 0


def test_trip_counts_follow_from_sizes_alone():
    blocks = blocks_of(disassembled(PROGRAM.functions[0]))
    vector, scalar = loops_of(blocks)
    known = Propagation(blocks, *PROGRAM.entry({"n": 1000}, (1,)))
    assert trip_count(vector, blocks, known) == 1000 // 16
    # Where the scalar loop begins depends on the way that led to it.
    assert trip_count(scalar, blocks, known) is None
    unknown = Propagation(blocks, *PROGRAM.entry({}, (1,)))
    assert trip_count(vector, blocks, unknown) is None


def test_ways_that_sizes_exclude_are_not_taken():
    blocks = blocks_of(disassembled(PROGRAM.functions[0]))
    (vector, _) = loops_of(blocks)
    assert all(edge in Propagation(blocks, *PROGRAM.entry({"n": 64}, (1,))).edges for edge in vector.back_edges)
    assert all(edge not in Propagation(blocks, *PROGRAM.entry({"n": 7}, (1,))).edges for edge in vector.back_edges)


def test_cycles_of_a_vector_iteration():
    blocks = blocks_of(disassembled(PROGRAM.functions[0]))
    vector, scalar = (blocks[loop.header].instructions for loop in loops_of(blocks))
    # Two loads and a store of 64 bytes: one cycle each way (Intel 64 optimization manual, Golden Cove).
    assert port_cycles(vector) == pytest.approx(1.0)
    # Six instructions, six issued in each cycle.
    assert port_cycles(scalar) == pytest.approx(1.0)
    # Only the counter goes from one iteration to the next.
    assert chain_cycles(vector) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("code", "cycles"), [("c4e279b8c2", 4.0), ("c5fa58c1", 4.0), ("c5f858c1", 4.0), ("48ffc0", 1.0)]
)
def test_chains_take_the_latency_of_what_depends_on_itself(code, cycles):
    # A scalar multiply-add, a scalar and a vector sum, and an increment: uops.info, Ice Lake.
    assert chain_cycles(disassembled(Function("f", 0, bytes.fromhex(code)))) == pytest.approx(cycles)


@pytest.mark.parametrize(
    ("code", "cycles"), [("62f27d4840c2", 10.0), ("62f2fd4840c2", 15.0), ("62f1fd48f4c2", 5.0), ("c5fdd5c2", 5.0)]
)
def test_chains_of_products_of_integers(code, cycles):
    # vpmulld zmm, vpmullq zmm, vpmuludq zmm, vpmullw ymm: uops.info, Ice Lake.
    assert chain_cycles(disassembled(Function("f", 0, bytes.fromhex(code)))) == pytest.approx(cycles)


@pytest.mark.parametrize(
    ("code", "cycles"),
    [("62f27d4840c2", 1.0), ("62f2fd4840c2", 1.5), ("62f1fd48f4c2", 0.5), ("48f7f9", 10.0), ("f7f9", 6.0)],
)
def test_products_and_divisions_of_integers_keep_ports_busy(code, cycles):
    # vpmulld zmm, vpmullq zmm, vpmuludq zmm, idiv rcx, idiv ecx: uops.info, Ice Lake and Alder Lake P.
    assert port_cycles(disassembled(Function("f", 0, bytes.fromhex(code)))) == pytest.approx(cycles)


@pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("objdump")), reason="needs gcc and objdump")
def test_instructions_are_those_of_objdump(tmp_path):
    source, target = tmp_path / "f.c", tmp_path / "f.o"
    source.write_text(
        "void f(float *restrict y, const float *restrict x, int n) {\n"
        "  for (int i = 0; i < n; ++i) y[i] = x[i] * x[i] + (x[i] > 1 ? y[i] : 2);\n}\n",
        encoding="utf-8",
    )
    subprocess.run(["gcc", "-O3", "-march=skylake-avx512", "-c", str(source), "-o", str(target)], check=True)
    listing = subprocess.run(["objdump", "-d", str(target)], check=True, capture_output=True, text=True).stdout
    lines = [line for line in listing.splitlines() if line.startswith(" ") and len(line.split("\t")) > 2]
    found = elf_object(target.read_bytes())
    assert found is not None
    (function,) = found.functions()
    assert function.name == "f"
    instructions = disassembled(function)
    assert len(instructions) == len(lines)
    assert [one.address for one in instructions] == [int(line.split(":")[0], 16) for line in lines]
