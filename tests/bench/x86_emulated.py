"""What is read in machine code of x86-64, beside an emulator that runs it: nests of loops in C, compiled by gcc.

    pip install unicorn
    python tests/bench/x86_emulated.py [--functions N] [--seed S] [--show]

Of each function: trips of loops; and where what is known of the arguments decides all branches, executions of blocks,
instructions, loads, stores, and bytes of arrays. All must be equal. Data decide the other branches.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from unicorn import UC_ARCH_X86, UC_HOOK_CODE, UC_HOOK_MEM_READ, UC_HOOK_MEM_WRITE, UC_MEM_WRITE, UC_MODE_64, Uc
from unicorn.x86_const import UC_X86_REG_RCX, UC_X86_REG_RDI, UC_X86_REG_RDX, UC_X86_REG_RSI, UC_X86_REG_RSP

from perflex.compiled.code_values import block_facts, trip_count
from perflex.compiled.control_flow import Totals, UnknownFlowError, block_executions, blocks_of, loops_of
from perflex.compiled.decoding import Instruction, disassembled
from perflex.compiled.elf import Function, elf_object
from perflex.compiled.values import Pointer, Propagation

LEVELS = (("-O1",), ("-O2",), ("-O3", "-msse4.1"), ("-O2", "-funroll-loops"), ("-O3", "-fno-tree-vectorize"), ("-Os",))
BOUNDS = ("n", "m", "n / m", "n % m", "n + m", "(n + 3) / 4", "n >> 1", "12", "2 * m + 1", "n * m / 5", "n / 3")
LOOPS = (
    "for (int {i} = 0; {i} < {b}; {i} += {s})",
    "for (int {i} = {s}; {i} <= {b}; ++{i})",
    "for (int {i} = {b}; {i} > 0; {i} -= {s})",
    "for (int {i} = ({b}) + 1; {i}--;)",
    "for (unsigned {i} = 0; {i} < (unsigned)({b}); {i} += {s})",
    "for (long {i} = ({b}) - 1; {i} >= 0; {i} -= {s})",
    "for (int {i} = 0; {i} != {b}; ++{i})",
)
# The last two data decide.
GUARDS = ("n > m", "n % 3 == 1", "m & 1", "n / m > 2", "n * 3 < m * 5", "{i} & 1", "x[{i}] > 3")
CODE, STACK, ARRAYS, END = 0x100000, 0x900000, {"x": 0x2000000, "y": 0x3000000}, 0x800000
SIZE = 1 << 16


def source(draw: random.Random) -> str:
    """Return a function of two arrays and two numbers."""

    def nest(depth: int, names: tuple[str, ...]) -> str:
        if depth == 0:
            place = draw.choice((names[-1], " + ".join(names), f"{names[0]} + 3"))
            return draw.choice(
                (
                    f"x[{place}] += y[{place}] * n;",
                    f"y[{place}] = x[{names[0]}] - m;",
                    f"x[{place}] = y[{place}] / 3 + {names[-1]};",
                )
            )
        name = "ijk"[len(names)]
        bound, step = draw.choice(BOUNDS), draw.choice((1, 1, 2, 3))
        body = "".join(nest(depth - 1, (*names, name)) for _ in range(draw.choice((1, 1, 2))))
        if draw.random() < 0.3:
            body = f"if ({draw.choice(GUARDS).format(i=name)}) {{ {body} }}"
        return f"{draw.choice(LOOPS).format(i=name, b=bound, s=step)} {{ {body} }}\n"

    return "void f(int *restrict x, int *restrict y, int n, int m) {\n" + nest(draw.choice((1, 2, 2, 3)), ()) + "}\n"


def compiled(text: str, options: tuple[str, ...]) -> Function:
    plain = ("-fno-tree-loop-distribute-patterns", "-fcf-protection=none", "-fno-stack-protector")
    with TemporaryDirectory() as folder:
        target = Path(folder, "f.o")
        words = ["gcc", *options, *plain, "-x", "c", "-c", "-", "-o", str(target)]
        subprocess.run(words, input=text, text=True, check=True)
        found = elf_object(target.read_bytes())
    assert found is not None
    return found.functions()[0]


class Emulated:
    """What a call does, by running it."""

    def __init__(self, function: Function, n: int, m: int, starts: set[int], stacked: set[int]) -> None:
        self.edges: Counter[tuple[int, int]] = Counter()
        self.counts: Counter[str] = Counter()
        self._starts, self._stacked = starts, stacked
        self._block, self._seen, self._now = -1, set[str](), 0
        machine = Uc(UC_ARCH_X86, UC_MODE_64)
        for place, size in (
            (CODE, SIZE),
            (STACK, SIZE),
            (END, 4096),
            *((place, 4 * SIZE) for place in ARRAYS.values()),
        ):
            machine.mem_map(place, size)
        machine.mem_write(CODE, function.code)
        values = b"".join((number * 7919 % 11).to_bytes(4, "little") for number in range(SIZE))
        for place in ARRAYS.values():
            machine.mem_write(place, values)
        top = STACK + SIZE - 4096 - 8
        machine.mem_write(top, END.to_bytes(8, "little"))
        for register, value in zip(
            (UC_X86_REG_RDI, UC_X86_REG_RSI, UC_X86_REG_RDX, UC_X86_REG_RCX, UC_X86_REG_RSP),
            (ARRAYS["x"] + SIZE, ARRAYS["y"] + SIZE, n, m, top),
            strict=True,
        ):
            machine.reg_write(register, value)
        machine.hook_add(UC_HOOK_CODE, self._step)
        machine.hook_add(UC_HOOK_MEM_READ | UC_HOOK_MEM_WRITE, self._access)
        machine.emu_start(CODE, END, count=20_000_000)

    def _step(self, _machine: Any, address: int, _size: int, _user: Any) -> None:
        self._now = address - CODE
        self._seen.clear()
        if self._now in self._starts:
            self.edges[self._block, self._now] += 1
            self._block = self._now
        self.counts["instructions"] += 1

    def _access(self, _machine: Any, kind: int, address: int, size: int, _value: int, _user: Any) -> None:
        if self._now in self._stacked:
            return
        what = "store" if kind == UC_MEM_WRITE else "load"
        # Wide accesses come in parts.
        self.counts[f"{what}s"] += what not in self._seen
        self._seen.add(what)
        if address >= min(ARRAYS.values()):
            self.counts[f"global_{what}_bytes"] += size


def stacks(one: Instruction) -> bool:
    return one.name in {"push", "pop", "call", "ret", "leave"}


def compare(function: Function, n: int, m: int) -> tuple[str, list[str]]:
    """Return what was compared, and what differs."""
    instructions = disassembled(function)
    blocks = blocks_of(instructions)
    entry = {"rsp": Pointer("frame"), "rdi": Pointer("global x"), "rsi": Pointer("global y"), "rdx": n, "rcx": m}
    known = Propagation(blocks, entry, {})
    starts = [block.instructions[0].address - function.address for block in blocks]
    stacked = {one.address - function.address for one in instructions if stacks(one)}
    ran = Emulated(function, n, m, set(starts), stacked)
    wrong, trips, free = [], [], False
    for loop in loops_of(blocks):
        back, entries = (
            sum(ran.edges[starts[source], starts[end]] for source, end in edges)
            for edges in (loop.back_edges, loop.entries)
        )
        if not any(edge in known.edges for edge in loop.back_edges):
            wrong += [f"the loop at {starts[loop.header]:#x} is run"] if back else []
        elif (trip := trip_count(loop, blocks, known)) is None:
            free = True
        else:
            trips.append((loop, trip))
            if back + entries != trip * entries:
                wrong.append(f"the loop at {starts[loop.header]:#x}: {trip} trips, emulated {back + entries}/{entries}")
    latches = {loop.back_edges[0][0] for loop, _ in trips}
    choices = Counter(begin for begin, _ in known.edges)
    if free or any(count > 1 and begin not in latches for begin, count in choices.items()):
        return "trips" if trips else "nothing", wrong
    facts = [block_facts(one, number, known) for number, one in enumerate(blocks)]
    runs, _ = block_executions(blocks, known.edges, facts, trips, Totals({}, {}))
    for number, start in enumerate(starts):
        emulated = sum(count for (_, end), count in ran.edges.items() if end == start)
        if round(runs[number], 6) != emulated:
            wrong.append(f"the block at {start:#x} runs {runs[number]:g} times, emulated {emulated}")
    nops = sum(
        run * sum(one.name == "nop" for one in block.instructions) for run, block in zip(runs, blocks, strict=True)
    )
    for name in ("instructions", "loads", "stores", "global_load_bytes", "global_store_bytes"):
        found = sum(run * one.counts[name] for run, one in zip(runs, facts, strict=True))
        found += nops if name == "instructions" else 0
        if round(found, 6) != ran.counts[name]:
            wrong.append(f"{name}: {found:g}, emulated {ran.counts[name]}")
    return "all", wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print the source of what differs")
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)  # noqa: S311
    kinds: Counter[str] = Counter()
    for number in range(arguments.functions):
        text, options = source(draw), LEVELS[number % len(LEVELS)]
        n, m = draw.randint(1, 25), draw.randint(1, 12)
        try:
            kind, wrong = compare(compiled(text, options), n, m)
        except UnknownFlowError as error:
            kind, wrong = "refused", []
            print(f"{number}: {error}")
        kinds[kind] += 1
        kinds["wrong"] += bool(wrong)
        for line in wrong:
            print(f"{number} ({' '.join(options)}, n = {n}, m = {m}): {line}")
        if wrong and arguments.show:
            print(text)
    print(", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items())))
    return kinds["wrong"] > 0


if __name__ == "__main__":
    sys.exit(main())
