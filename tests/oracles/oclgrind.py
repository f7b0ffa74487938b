"""Executed instructions and bytes, counted by the OpenCL simulator Oclgrind.

Kernels run in a process of their own that sees no other OpenCL platform, launched through loopy's executor
(not through perflex). Counts are executed LLVM instructions summed over all work-items.

Systematic differences between what a kernel says and what Oclgrind counts, each proved in
``test_oclgrind.py``:

* *Optimisation.* By default Oclgrind compiles with optimisation and merges repeated loads, hoists loop
  invariants and removes dead work. `UNOPTIMISED` is therefore the default here: each access in the
  source is one load or store.
* *Private memory.* Without optimisation every variable, loop counter and kernel argument lives in private
  memory, so private loads and stores say nothing about a kernel's private arrays; they are reported but
  of no use.
* *Multiply-adds.* A product that is directly an operand of a sum becomes one ``llvm.fmuladd`` and no
  ``fmul`` or ``fadd`` (`Executed.madds`); sums are taken from left to right, so ``a*b + c*d + e`` is one
  multiply-add, one multiplication and one addition. An explicit ``fma(a, b, c)`` or ``mad`` is a call.
* *Signs.* A subtracted product is ``fneg`` and ``fmuladd``; a literal factor ``-1.0`` is an executed
  multiplication. loopy writes ``a - b`` as ``a + -1.0 * b``: see `brute` for how signs are counted.
* *Width.* ``fadd``, ``fmul`` and ``fdiv`` carry no width, and one instruction works on a whole vector.
* *Integers.* Subscript and loop arithmetic is counted together with the kernel's own integer arithmetic.
* *Functions.* Built-in functions are calls by mangled name, ``_Z3expf`` for ``exp(float)``, whatever they
  do inside. `CALL_NAME` takes the name out. ``vload``/``vstore`` are both a call and an access.
* *Barriers.* ``barrier()`` is a call counted once per work-item.
* *Constant memory* is an address space of its own.
"""

import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

UNOPTIMISED = ("-cl-opt-disable",)
ICD_PATHS = (
    "/usr/lib/oclgrind/liboclgrind-rt-icd.so", "/usr/lib64/oclgrind/liboclgrind-rt-icd.so",
    "/usr/local/lib/oclgrind/liboclgrind-rt-icd.so", "/usr/local/lib/liboclgrind-rt-icd.so",
    "/usr/lib/x86_64-linux-gnu/liboclgrind-rt-icd.so", "/opt/homebrew/lib/liboclgrind-rt-icd.so",
)  # fmt: skip
CALL_NAME = re.compile(r"_Z(\d+)(.*)")
_HEADER = re.compile(r"Instructions executed for kernel '(.*)':")
_LINE = re.compile(r"\s*(\d+) - (.*?)(?: \((\d+) bytes\))?\s*")
_MADD_SUFFIX = {"float16": "f16", "float32": "f32", "float64": "f64"}
_TYPE_LETTERS = {"float16": "Dh", "float32": "f", "float64": "d"}


class OclgrindError(AssertionError):
    """A kernel did not run on Oclgrind, or the simulator found fault with it."""


@dataclass(frozen=True)
class Traffic:
    """Executed accesses and the bytes they moved."""

    count: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Executed:
    """What Oclgrind counted for one job, all launches together.

    LLVM instructions are by opcode, without memory accesses and calls; calls by (mangled) name, as ``"_Z3expf"`` or
    ``"llvm.fmuladd.f32"``; loads and stores by address space.
    """

    launches: tuple[str, ...] = ()
    instructions: Mapping[str, int] = field(default_factory=dict)
    calls: Mapping[str, int] = field(default_factory=dict)
    loads: Mapping[str, Traffic] = field(default_factory=dict)
    stores: Mapping[str, Traffic] = field(default_factory=dict)

    def load(self, space):
        return self.loads.get(space, Traffic())

    def store(self, space):
        return self.stores.get(space, Traffic())

    def madds(self, dtype=None):
        """Multiply-adds of one dtype, or of all."""
        dtypes = _MADD_SUFFIX if dtype is None else (dtype,)
        return sum(self.calls.get(f"llvm.fmuladd.{_MADD_SUFFIX[name]}", 0) for name in dtypes)

    @property
    def adds(self):
        """Floating-point additions and subtractions of any width."""
        return self.instructions.get("fadd", 0) + self.instructions.get("fsub", 0)

    @property
    def muls(self):
        """Floating-point multiplications of any width."""
        return self.instructions.get("fmul", 0)

    @property
    def divs(self):
        """Floating-point divisions of any width."""
        return self.instructions.get("fdiv", 0)

    @property
    def barriers(self):
        """Barriers passed, summed over work-items."""
        return self.called("barrier")

    def called(self, function, dtype=None):
        """Calls of a built-in function, optionally only those whose first argument has a dtype."""
        total = 0
        for mangled, count in self.calls.items():
            found = CALL_NAME.fullmatch(mangled)
            if found is None:
                continue
            length, rest = int(found[1]), found[2]
            if rest[:length] != function:
                continue
            if dtype is None or rest[length:].startswith(_TYPE_LETTERS[dtype]):
                total += count
        return total


@dataclass(frozen=True)
class SourceJob:
    """A hand-written OpenCL kernel: buffers first, then local memory, then integers."""

    source: str
    global_size: tuple[int, ...] = (16,)
    local_size: tuple[int, ...] = (8,)
    dtypes: tuple[str, ...] = ("float32", "float32")
    local_bytes: tuple[int, ...] = ()
    elements: int = 64
    scalars: tuple[int, ...] = ()


@cache
def find_icd():
    """Return the path of Oclgrind's ICD library, or None; ``OCLGRIND_ICD`` overrides the search."""
    named = os.environ.get("OCLGRIND_ICD")
    return next((path for path in ([named] if named else ICD_PATHS) if Path(path).is_file()), None)


needs_oclgrind = pytest.mark.skipif(
    find_icd() is None, reason="Oclgrind is not installed (Debian package oclgrind, or OCLGRIND_ICD=path of its ICD)"
)

Job = "tuple[lp.TranslationUnit, Mapping[str, int]] | SourceJob"


def run(kernel, sizes, options=UNOPTIMISED):
    """Run one kernel once; see `run_jobs`."""
    return run_jobs([(kernel, sizes)], options)[0]


def run_jobs(jobs, options=UNOPTIMISED, timeout=300.0):
    """Run all jobs in one process and return what each executed."""
    results = run_each(jobs, options, timeout)
    for result in results:
        if isinstance(result, OclgrindError):
            raise result
    return [result for result in results if isinstance(result, Executed)]


def run_each(jobs, options=UNOPTIMISED, timeout=300.0):
    """Run all jobs in one process; an error takes the place of the counts of a job that failed."""
    described = [vars(job) if isinstance(job, SourceJob) else {"kernel": job[0], "sizes": dict(job[1])} for job in jobs]
    found = []
    for number, result in enumerate(_in_a_child([job | {"options": list(options)} for job in described], timeout)):
        complaint = result["error"] or _complaint(result["stderr"])
        error = OclgrindError(f"job {number} on Oclgrind: {complaint}")
        found.append(error if complaint else parse_counts(result["stdout"]))
    return found


def compiled(sources, options=UNOPTIMISED, timeout=300.0):
    """Return what Oclgrind compiles OpenCL C to, in LLVM's language."""
    results = _in_a_child([{"compiled": source, "options": list(options)} for source in sources], timeout)
    for source, result in zip(sources, results, strict=True):
        if result["error"] or not result["code"]:
            msg = f"Oclgrind does not compile {source}: {result['error']}{result['stderr']}"
            raise OclgrindError(msg)
    return [result["code"] for result in results]


def _in_a_child(jobs, timeout):
    icd = find_icd()
    assert icd is not None, "Oclgrind is not installed; install the Debian package oclgrind"
    with tempfile.TemporaryDirectory(prefix="oclgrind") as name:
        folder = Path(name)
        (folder / "oclgrind.icd").write_text(icd + "\n", encoding="utf-8")
        jobs_path, results_path = folder / "jobs", folder / "results"
        jobs_path.write_bytes(pickle.dumps(jobs))
        environment = os.environ | {
            "OCL_ICD_VENDORS": str(folder),
            "OCL_ICD_FILENAMES": "",
            "OCLGRIND_INST_COUNTS": "1",
            **({"OCLGRIND_DUMP_SPIR": "1"} if any("compiled" in job for job in jobs) else {}),
            # Work-groups one after the other: an atomic update is never repeated because another one came between.
            "OCLGRIND_NUM_THREADS": "1",
            **dict.fromkeys(("PYOPENCL_NO_CACHE", "LOOPY_NO_CACHE"), "1"),
            "PYTHONWARNINGS": "ignore",
        }
        command = [sys.executable, str(Path(__file__).with_name("_oclgrind_child.py")), jobs_path, results_path]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode != 0 or not results_path.exists():
            msg = f"the Oclgrind process ended with code {done.returncode}: {done.stderr[-2000:]}"
            raise OclgrindError(msg)
        return json.loads(results_path.read_text(encoding="utf-8"))


def _complaint(text):
    found = re.search(r"(Invalid|Error|error|divergence|race|Unaligned)", text)
    return text.strip() if found else ""


def parse_counts(text):
    """Read the instruction histograms that Oclgrind prints, one per launch, and add them up."""
    launches = []
    plain = Counter()
    calls = Counter()
    traffic = {"load": {}, "store": {}}
    for line in text.splitlines():
        header = _HEADER.fullmatch(line)
        if header is not None:
            launches.append(header[1])
            continue
        entry = _LINE.fullmatch(line)
        if entry is None:
            continue
        count, name, size = int(entry[1].replace(",", "")), entry[2], entry[3]
        opcode, _, detail = name.partition(" ")
        if opcode in traffic and size is not None:
            before = traffic[opcode].get(detail, Traffic())
            traffic[opcode][detail] = Traffic(before.count + count, before.bytes + int(size))
        elif opcode == "call":
            calls[detail.removesuffix("()")] += count
        else:
            plain[name] += count
    return Executed(tuple(launches), dict(plain), dict(calls), traffic["load"], traffic["store"])
