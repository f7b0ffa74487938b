"""Cycles by tools of others: what they are given, how their answers are read, and what comes of them."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from perflex.compiled.code_values import group_values
from perflex.compiled.elf import Function
from perflex.compiled.executions import Totals
from perflex.compiled.in_core import source as sources
from perflex.compiled.in_core.answers import Answers, answers_for
from perflex.compiled.in_core.llvm_mca import llvm_mca_cycles, read_summaries, refused_instruction
from perflex.compiled.in_core.piece import Piece, PieceCycles, piece_of
from perflex.compiled.in_core.source import CycleSource, cycle_source
from perflex.compiled.instructions import disassembled
from perflex.compiled.program import Argument, CompiledProgram
from perflex.errors import MissingExtraError, UnsupportedKernelError
from support.tools import has_llvm_mca

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# xor eax,eax; again: vaddss xmm0,xmm0,[rdi+rax*4]; inc rax; cmp rax,100; jne again; call rcx; nop; ret
SUM = Function("sum", 0x40, bytes.fromhex("31c0c5fa58048748ffc04883f86475f2ffd190c3"))
PROGRAM = CompiledProgram("sum", "intel", (SUM,), (Argument("x", 8, is_array=True),))
TOTALS = Totals({"ops_float32": 100.0}, {})
MCA_JSON = """{"CodeRegions": [
 {"Name": "0", "Instructions": ["vaddss"], "SummaryView": {"BlockRThroughput": 0.5, "TotalCycles": 303}},
 {"Name": "2", "Instructions": ["addq"], "SummaryView": {"BlockRThroughput": 0.25, "TotalCycles": 103}}],
 "TargetInfo": {"CPUName": "znver3"}}"""
UNKNOWN_WORD = """<stdin>:12:1: error: invalid instruction mnemonic 'foobar'
foobar %rax
^~~~~~
error: Assembly input parsing had errors, use -skip-unsupported-instructions=parse-failure to drop failing lines.
"""
UNKNOWN_TO_CORE = """error: found an unsupported instruction in the input assembly sequence, use -skip-unsupported
note: instruction: \tvpconflictd\t%zmm1, %zmm2
"""
# Plays llvm-mca: each region takes its number of lines in cycles, 7 cycles to begin, and 3 each iteration.
FAKE = """#!{python}
import json, sys
from pathlib import Path
here = Path(__file__)
text = sys.stdin.read()
here.with_suffix(".asked").open("a").write("asked\\n")
if "{refused}" and "{refused}" in text:
    sys.stderr.write("error: found an unsupported instruction\\nnote: instruction: {refused}\\n")
    sys.exit(1)
times = int(next(word for word in sys.argv if word.startswith("-iterations=")).partition("=")[2])
regions, lines = [], text.splitlines()
for place, one in enumerate(lines):
    if one.startswith("# LLVM-MCA-BEGIN"):
        name = one.split()[-1]
        count = lines.index("# LLVM-MCA-END " + name) - place - 1
        summary = {{"BlockRThroughput": count, "TotalCycles": 7 + 3 * count * times}}
        regions.append({{"Name": name, "SummaryView": summary}})
print(json.dumps({{"CodeRegions": regions}}))
"""


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep no answers and no programs from one test to the next."""
    monkeypatch.setenv("PERFLEX_OWN_CACHE", str(tmp_path / "cache"))
    forgotten = (answers_for, sources._llvm_mca)
    for one in forgotten:
        one.cache_clear()
    yield
    for one in forgotten:
        one.cache_clear()


def fake(folder: Path, refused: str = "") -> CycleSource:
    program = folder / "fake-mca"
    program.write_text(FAKE.format(python=sys.executable, refused=refused))
    program.chmod(0o755)
    return CycleSource("llvm-mca", "1.0", "somecore", str(program))


def test_code_is_given_in_att_syntax_without_calls_and_targets() -> None:
    assert piece_of(SUM, disassembled(SUM), repeated=True).lines == (
        "xorl %eax, %eax",
        "vaddss (%rdi, %rax, 4), %xmm0, %xmm0",
        "incq %rax",
        "cmpq $0x64, %rax",
        "jne .Lelsewhere",
    )


def test_summaries_of_llvm_mca() -> None:
    source = CycleSource("llvm-mca", "19.1.7", "znver3")
    found = read_summaries(MCA_JSON, source)
    assert found[0]["TotalCycles"] == 303
    assert found[2]["BlockRThroughput"] == 0.25
    for wrong in ("", "[]", '{"CodeRegions": [{"Name": "0"}]}', '{"CodeRegions": [{"Name": "0", "SummaryView": {}}]}'):
        with pytest.raises(UnsupportedKernelError, match=r"llvm-mca 19\.1\.7"):
            read_summaries(wrong, source)


def test_the_refused_instruction_is_named() -> None:
    assert refused_instruction(UNKNOWN_WORD) == "foobar %rax"
    assert refused_instruction(UNKNOWN_TO_CORE) == "vpconflictd %zmm1, %zmm2"
    assert refused_instruction("killed\n") == "killed"


def test_values_with_a_tool(tmp_path: Path) -> None:
    source = fake(tmp_path)
    found = group_values(PROGRAM, {}, (1,), TOTALS, source)
    # One line before the loop, one hundred iterations of four lines; nothing is counted after it.
    busy = 1 + 100 * 4
    # 12 cycles in each iteration, for 100 of them while 97 / 4 more are in flight.
    chain = 12 * 100 * 100 / (100 + 97 / 4)
    assert found.cycles - found.chained == pytest.approx(busy)
    assert found.chained == pytest.approx(chain - 400)
    assert found.counts == group_values(PROGRAM, {}, (1,), TOTALS).counts
    # Two numbers of iterations of all pieces at once; then answers are kept, here and on disk.
    assert (tmp_path / "fake-mca.asked").read_text().count("asked") == 2
    answers_for.cache_clear()
    assert group_values(PROGRAM, {}, (1,), TOTALS, source).cycles == found.cycles
    assert (tmp_path / "fake-mca.asked").read_text().count("asked") == 2


def test_an_instruction_that_the_tool_does_not_know_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedKernelError, match=r"llvm-mca 1.0 \(somecore\) does not know .* of sum: incq %rax"):
        group_values(PROGRAM, {}, (1,), TOTALS, fake(tmp_path, refused="incq %rax"))


def test_one_refused_piece_does_not_hide_the_others(tmp_path: Path) -> None:
    pieces = [Piece(("a", "b"), repeated=True), Piece(("bad",), repeated=True), Piece((), repeated=False)]
    found = llvm_mca_cycles(fake(tmp_path, refused="bad"), pieces)
    assert found == [PieceCycles(2.0, 6.0), PieceCycles(unknown="bad"), PieceCycles()]


def test_kept_answers_that_cannot_be_read_are_asked_again(tmp_path: Path) -> None:
    answers = Answers(fake(tmp_path), SUM)
    part = [(disassembled(SUM)[:1], False)]
    (first,) = answers.of(part)
    answers._place.write_text("{")
    assert Answers(fake(tmp_path), SUM).of(part) == [first]
    assert (tmp_path / "fake-mca.asked").read_text().count("asked") == 4


def test_sources_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cycle_source("ports") is None
    with pytest.raises(ValueError, match="'magic' is none of the sources ports, llvm-mca"):
        cycle_source("magic")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(MissingExtraError, match="apt install llvm"):
        cycle_source("llvm-mca")


@pytest.mark.skipif(not has_llvm_mca(), reason="needs llvm-mca (apt install llvm)")
def test_llvm_mca_itself() -> None:
    found = cycle_source("llvm-mca")
    assert found is not None
    zen = CycleSource("llvm-mca", found.version, "znver3", found.program)
    chain = Piece(("vaddss (%rdi, %rax, 4), %xmm0, %xmm0", "incq %rax", "jne .Lelsewhere"), repeated=True)
    independent = Piece(("vaddps %ymm1, %ymm2, %ymm0", "vaddps %ymm1, %ymm2, %ymm3"), repeated=True)
    unknown = Piece(("vaddps %zmm99, %zmm0, %zmm0",), repeated=False)
    first, second, third = llvm_mca_cycles(zen, [chain, independent, unknown])
    # A sum takes 3 cycles on Zen 3, and two of them begin each cycle (A. Fog, Instruction tables).
    assert first.chained == pytest.approx(3.0, abs=0.1)
    assert second == PieceCycles(pytest.approx(1.0), pytest.approx(1.0, abs=0.1))
    assert "zmm99" in third.unknown
