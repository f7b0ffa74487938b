"""What a function is in NVIDIA's machine code: the instructions that usual arguments execute, by pipeline.

Of the paths that call no routine for special arguments, the shortest that does at least four fifths of the most
floating-point arithmetic: what handles zeros, infinities or huge arguments is jumped over, and what gives a trivial
result at once is not taken.
"""

import json
import re
import shutil
import subprocess
import sysconfig
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile

from oracles.nvrtc import compile_cuda

ENOUGH = 0.8
INSTRUCTION_BYTES = 16
FLOPS = {"FADD": 1, "FMUL": 1, "FFMA": 2, "DADD": 1, "DMUL": 1, "DFMA": 2}
PIPES = {
    "fp32": {"FADD", "FMUL", "FFMA"},
    "fp64": {"DADD", "DMUL", "DFMA", "DSETP"},
    "special": {"MUFU", "FCHK", "F2I", "I2F", "F2F", "FRND", "POPC", "FLO"},
    "product": {"IMAD", "UIMAD"},
}
# They bring arguments and constants, and take the result away.
AROUND = {"LDC", "LDCU", "ULDC", "S2R", "S2UR", "LDG", "STG", "EXIT", "NOP", "UMOV", "CS2R"}
SPECIAL_ROUTINE = re.compile(r"__cuda_sm\d+|slowpath")
CONSTANT = re.compile(r"-?(0x[0-9a-f]+|RZ|URZ)|c\[.*")


@lru_cache(maxsize=1)
def disassembler():
    """Return NVIDIA's disassembler, None where there is none."""
    tools = sorted(Path(sysconfig.get_path("purelib"), "nvidia").glob("*/bin/nvdisasm"))
    return str(tools[-1]) if tools else shutil.which("nvdisasm")


@dataclass(frozen=True)
class Instruction:
    name: str
    modifiers: frozenset
    operands: tuple
    predicate: str

    @property
    def pipe(self):
        """Return the pipeline, "simple" for that of integers and all that only takes a place; empty for none."""
        moves = self.name == "MOV" or "MOV" in self.modifiers or (self.name, *self.operands[1:2]) == ("HFMA2", "-RZ")
        if self.name in AROUND or (moves and not self.predicate and CONSTANT.fullmatch(self.operands[-1])):
            return ""
        if self.name == "HFMA2" or (self.name == "IMAD" and self.modifiers & {"MOV", "IADD", "SHL", "X"}):
            return "simple" if "-RZ" not in self.operands[1:2] else ""
        return next((pipe for pipe, names in PIPES.items() if self.name in names), "simple")


@lru_cache(maxsize=4)
def functions(source, architecture):
    """Return the instructions of each kernel of a source."""
    with NamedTemporaryFile(suffix=".cubin") as stream:
        stream.write(compile_cuda(source, architecture).binary)
        stream.flush()
        done = subprocess.run([disassembler(), "--emit-json", stream.name], capture_output=True, check=True)
    found = {}
    for one in json.loads(done.stdout)[1]:
        words = [(each, each["opcode"].split(".")) for each in one["sass-instructions"]]
        found[one["function-name"]] = [
            Instruction(
                name,
                frozenset(modifiers),
                tuple(part.strip() for part in each.get("operands", "").split(",")),
                each.get("predicate", ""),
            )
            for each, (name, *modifiers) in words
        ]
    return found


def paths(code):
    """Yield the ways through a kernel without loops and routines for special arguments."""
    end = max(number for number, one in enumerate(code) if one.name == "EXIT")
    waiting = [(0, (), (), frozenset())]
    while waiting:
        number, back, path, seen = waiting.pop()
        while code[number].name != "EXIT":
            one = code[number]
            path += (one,)
            if number in seen or (one.name == "CALL" and SPECIAL_ROUTINE.search(one.operands[-1])):
                break
            following = number + 1
            if one.name == "CALL":
                # A routine of the function's own follows the kernel.
                back, following = (*back, number + 1), end + 1 + (code[end + 1].name == "BRA")
            elif one.name == "RET":
                *back, following = back
            elif one.name == "BRA":
                seen |= {number}
                target = int(one.operands[-1], 16) // INSTRUCTION_BYTES
                if one.predicate or len(one.operands) > 1:
                    waiting.append((target, back, path, seen))
                else:
                    following = target
            number = following
        else:
            yield path


def usual(code):
    """Return instructions by pipeline, and floating-point operations: sure ones, and those under predicates."""
    every = list(paths(code))
    work = [sum(one.name in FLOPS for one in path) for path in every]
    chosen = min((path for path, done in zip(every, work, strict=True) if done >= ENOUGH * max(work)), key=len)
    # Before the first load stands its address alone.
    chosen = chosen[next(number for number, one in enumerate(chosen) if one.name == "LDG") :]
    sure, perhaps = Counter(), Counter()
    for one in chosen:
        (perhaps if one.predicate else sure)[one.name[0]] += FLOPS.get(one.name, 0)
    pipes = Counter(one.pipe for one in chosen)
    pipes.pop("", None)
    return pipes, sure, perhaps
