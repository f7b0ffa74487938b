"""Executed instructions and bytes, counted by the OpenCL simulator Oclgrind.

Kernels run in a process of their own that sees no other OpenCL platform, launched through loopy's executor
(not through perflex). Counts are executed LLVM instructions summed over all work-items.

Systematic differences between what a kernel says and what Oclgrind counts, each proved in
``test_oclgrind.py``:

* *Optimisation.* By default Oclgrind compiles with optimisation and merges repeated loads, hoists loop
  invariants and removes dead work. `UNOPTIMISED` is therefore the default here: each access in the
  source is one load or store.
* *Private memory.* Without optimisation every variable, loop counter and kernel argument lives in private
  memory, so private loads and stores say nothing about a kernel's private arrays.
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
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

UNOPTIMISED = ("-cl-opt-disable",)
_FOLDERS = ("lib/oclgrind", "lib64/oclgrind", "local/lib/oclgrind", "local/lib", "lib/x86_64-linux-gnu")
ICD_PATHS = [f"{folder}/liboclgrind-rt-icd.so" for folder in (*(f"/usr/{f}" for f in _FOLDERS), "/opt/homebrew/lib")]
CALL_NAME = re.compile(r"_Z(\d+)(.*)")
_LINE = re.compile(r"\s*(\d+) - (\w+) ?(.*?)(?: \((\d+) bytes\))?\s*|Instructions executed for kernel '(.*)':")
_MADD_SUFFIX = {"float16": "f16", "float32": "f32", "float64": "f64"}
_TYPE_LETTERS = {"float16": "Dh", "float32": "f", "float64": "d", None: ""}


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
    ``"llvm.fmuladd.f32"``; traffic by opcode and address space.
    """

    launches: tuple[str, ...]
    instructions: Mapping[str, int]
    calls: Mapping[str, int]
    traffic: Mapping[tuple[str, str], Traffic]

    def load(self, space):
        return self.traffic.get(("load", space), Traffic())

    def store(self, space):
        return self.traffic.get(("store", space), Traffic())

    def madds(self, dtype=None):
        """Multiply-adds of one dtype, or of all."""
        dtypes = _MADD_SUFFIX if dtype is None else (dtype,)
        return sum(self.calls.get(f"llvm.fmuladd.{_MADD_SUFFIX[name]}", 0) for name in dtypes)

    # Floating-point operations of any width, subtractions as additions.
    adds = property(lambda self: self.instructions.get("fadd", 0) + self.instructions.get("fsub", 0))
    muls = property(lambda self: self.instructions.get("fmul", 0))
    divs = property(lambda self: self.instructions.get("fdiv", 0))
    # Summed over work-items.
    barriers = property(lambda self: self.called("barrier"))

    def called(self, function, dtype=None):
        """Calls of a built-in function, optionally only those whose first argument has a dtype."""
        mangled = f"_Z{len(function)}{function}{_TYPE_LETTERS[dtype]}"
        return sum(count for name, count in self.calls.items() if name.startswith(mangled))


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


def run(kernel, sizes, options=UNOPTIMISED):
    return run_jobs([(kernel, sizes)], options)[0]


def run_jobs(jobs, options=UNOPTIMISED, timeout=300.0):
    """Run all jobs, kernels with sizes or `SourceJob`, in one process and return what each executed."""
    described = [vars(job) if isinstance(job, SourceJob) else {"kernel": job[0], "sizes": dict(job[1])} for job in jobs]
    results = _in_a_child(described, options, timeout)
    for number, result in enumerate(results):
        complains = re.search(r"(Invalid|Error|error|divergence|race|Unaligned)", result["stderr"])
        if complaint := result["error"] or (complains and result["stderr"].strip()):
            msg = f"job {number} on Oclgrind: {complaint}"
            raise OclgrindError(msg)
    return [parse_counts(result["stdout"]) for result in results]


def compiled(sources, options=UNOPTIMISED, timeout=300.0):
    """Return what Oclgrind compiles OpenCL C to, in LLVM's language."""
    results = _in_a_child([{"compiled": source} for source in sources], options, timeout)
    for source, result in zip(sources, results, strict=True):
        if result["error"] or not result["code"]:
            msg = f"Oclgrind does not compile {source}: {result['error']}{result['stderr']}"
            raise OclgrindError(msg)
    return [result["code"] for result in results]


def _in_a_child(jobs, options, timeout):
    icd = find_icd()
    assert icd is not None, "Oclgrind is not installed; install the Debian package oclgrind"
    with tempfile.TemporaryDirectory(prefix="oclgrind") as name:
        folder = Path(name)
        (folder / "oclgrind.icd").write_text(icd + "\n", encoding="utf-8")
        jobs_path, results_path = folder / "jobs", folder / "results"
        jobs_path.write_bytes(pickle.dumps([job | {"options": list(options)} for job in jobs]))
        # Work-groups one after the other: an atomic update is never repeated because another one came between.
        ones = ["OCLGRIND_INST_COUNTS", "OCLGRIND_NUM_THREADS", "PYOPENCL_NO_CACHE", "LOOPY_NO_CACHE"]
        ones += ["OCLGRIND_DUMP_SPIR"] * any("compiled" in job for job in jobs)
        icds = {"OCL_ICD_VENDORS": str(folder), "OCL_ICD_FILENAMES": ""}
        environment = os.environ | dict.fromkeys(ones, "1") | icds | {"PYTHONWARNINGS": "ignore"}
        command = [sys.executable, str(Path(__file__).with_name("_oclgrind_child.py")), jobs_path, results_path]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode != 0 or not results_path.exists():
            msg = f"the Oclgrind process ended with code {done.returncode}: {done.stderr[-2000:]}"
            raise OclgrindError(msg)
        return json.loads(results_path.read_text(encoding="utf-8"))


def parse_counts(text):
    """Read the instruction histograms that Oclgrind prints, one per launch, and add them up."""
    launches, plain, calls, traffic = [], Counter(), Counter(), {}
    for found in filter(None, map(_LINE.fullmatch, text.splitlines())):
        count, opcode, detail, size, launched = found.groups()
        if launched is not None:
            launches.append(launched)
        elif size is not None and opcode in {"load", "store"}:
            before = traffic.get((opcode, detail), Traffic())
            traffic[opcode, detail] = Traffic(before.count + int(count), before.bytes + int(size))
        elif opcode == "call":
            calls[detail.removesuffix("()")] += int(count)
        else:
            plain[f"{opcode} {detail}".strip()] += int(count)
    return Executed(tuple(launches), dict(plain), dict(calls), traffic)
