"""Code for AMD's GPUs by LLVM's clang, which needs none: what the compiler says that a kernel takes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from perflex.errors import EnvironmentSetupError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class PrivateMoves:
    """Words of four bytes that a work-item loads from its private memory and stores there, as if it took all branches.

    Those outside of loops, and those of each iteration of the loop that has the barriers, with the barriers of both.
    """

    loads: int = 0
    stores: int = 0
    barriers: int = 0
    looped_loads: int = 0
    looped_stores: int = 0
    looped_barriers: int = 0
    # Whether no other loop and no call moves any.
    complete: bool = True

    def words(self, barriers: float) -> tuple[float, float]:
        """Return what a work-item loads and stores that meets so many barriers."""
        trips = (barriers - self.barriers) / self.looped_barriers if self.looped_barriers else 0.0
        return self.loads + trips * self.looped_loads, self.stores + trips * self.looped_stores


@dataclass(frozen=True)
class AmdFacts:
    """What LLVM's metadata say of one kernel."""

    name: str
    # 32-bit vector registers per work-item, accumulation registers among them.
    registers: int
    # Memory of each work-item beside its registers: spilt registers and private arrays; None where calls decide it.
    private_bytes: int | None
    # That each work-item stores for want of registers.
    spill_bytes: int
    # What its instructions move there.
    moves: PrivateMoves
    # Local memory of a work-group that the code declares.
    local_bytes: int
    # Of its instructions, and of the data of the whole source.
    digest: str


@dataclass(frozen=True)
class AmdCode:
    """A kernel as it was compiled for an AMD GPU."""

    # As ``"gfx90a"``.
    architecture: str
    facts: AmdFacts
    # Work-groups of the launch, and work-items of a work-group, along each axis.
    groups: tuple[int, ...]
    work_group: tuple[int, ...]

    @property
    def spill_bytes(self) -> int:
        """Bytes that each work-item stores for want of registers."""
        return self.facts.spill_bytes

    @cached_property
    def digest(self) -> str:
        """Equal for kernels that compile to the same code and are launched alike, whatever their names."""
        text = repr((self.architecture, self.groups, self.work_group, replace(self.facts, name="")))
        return hashlib.sha256(text.encode()).hexdigest()


_METADATA = re.compile(r"^\s*\.amdgpu_metadata\n(.*?)^\s*\.end_amdgpu_metadata", re.DOTALL | re.MULTILINE)
# Keys of a kernel stand four columns in, those of its arguments further.
_KERNEL, _ENTRY = re.compile(r"^  - ", re.MULTILINE), re.compile(r"^    \.(\w+): +(\S.*?)\s*$", re.MULTILINE)
_FUNCTION = re.compile(r"^(?P<name>[\w.$]+):.*?^\.Lfunc_end\d+:", re.DOTALL | re.MULTILINE)
# Remarks, what repeats the metadata, names, and where things stand in the source.
_SAID = re.compile(
    r"[ \t]*;[^\n]*|^[ \t]*\.amdhsa_kernel .*?\.end_amdhsa_kernel|"
    r"^[ \t]*\.(?:addrsig_sym|amdgcn_target|file|globl|ident|loc|protected|set|size|type|weak)\b[^\n]*|"
    r"^[^\n]*__hip_cuid_[^\n]*",
    re.DOTALL | re.MULTILINE,
)
_BLOCK = re.compile(r"^(?=\.LBB\d+_\d+:|; %bb\.\d+:)", re.MULTILINE)
# Of a block that begins a loop its own name, of others in a loop that of its first block.
_INNERMOST = re.compile(
    r"^\.L(BB\d+_\d+):(?:[^\n]*\n[ ]+;)*[^\n]*=>[ ]*This (?:Inner )?Loop Header|in Loop: Header=(BB\d+_\d+)",
    re.MULTILINE,
)
_PRIVATE = re.compile(r"^\s*(?:buffer|scratch)_(load|store)_(\w+)", re.MULTILINE)
# Of instructions that move more than one, by the end of their names.
_WORDS = {"dwordx2": 2, "dwordx3": 3, "dwordx4": 4, "b64": 2, "b96": 3, "b128": 4}
_BARRIER, _CALL = re.compile(r"^\s*s_barrier\b", re.MULTILINE), re.compile(r"^\s*s_swappc_b64\b", re.MULTILINE)
_NUMBERED = re.compile(r"\.L(BB|func_end)\d+")


def facts_of(assembly: str) -> list[AmdFacts]:
    """Return what LLVM's assembly text says of its kernels; a ValueError where it says nothing that is known."""
    found = _METADATA.search(assembly)
    if found is None:
        msg = "the assembly has no .amdgpu_metadata"
        raise ValueError(msg)
    listed = found[1].partition("amdhsa.kernels:")[2].partition("\namdhsa.")[0]
    kernels = [dict(_ENTRY.findall(f"    {part}")) for part in _KERNEL.split(listed)[1:]]
    code = assembly[: found.start()]
    return [_facts(one, code) for one in kernels]


def _facts(entry: dict[str, str], code: str) -> AmdFacts:
    lacking = [name for name in ("name", "vgpr_count", "private_segment_fixed_size") if name not in entry]
    if lacking:
        msg = f"LLVM's metadata have no .{lacking[0]}"
        raise ValueError(msg)
    name = entry["name"]
    body = next((each[0] for each in _FUNCTION.finditer(code) if each["name"] == name), None)
    if body is None:
        msg = f"the assembly has no function {name}"
        raise ValueError(msg)
    known = entry.get("uses_dynamic_stack", "false") == "false"
    return AmdFacts(
        name,
        int(entry["vgpr_count"]),
        int(entry["private_segment_fixed_size"]) if known else None,
        4 * int(entry.get("vgpr_spill_count", 0)),
        _private_moves(body),
        int(entry.get("group_segment_fixed_size", 0)),
        hashlib.sha256(_alone(code, name, called=_CALL.search(body) is not None).encode()).hexdigest(),
    )


def _private_moves(body: str) -> PrivateMoves:
    """Return what a kernel's instructions move: those of buffers and of scratch, for global memory has others."""
    # By the first block of the innermost loop around; "" outside of loops.
    found: dict[str, Counter[str]] = {"": Counter()}
    for block in _BLOCK.split(body):
        inside = next((own or around for own, around in _INNERMOST.findall(block)), "")
        counts = found.setdefault(inside, Counter())
        counts["barriers"] += len(_BARRIER.findall(block))
        for way, kind in _PRIVATE.findall(block):
            counts[f"{way}s"] += next((words for ending, words in _WORDS.items() if kind.startswith(ending)), 1)
    once = found.pop("")
    looped = [each for each in found.values() if each["barriers"]]
    moving = [each for each in found.values() if each["loads"] or each["stores"]]
    complete = all(each is looped[0] for each in moving) if len(looped) == 1 else not moving
    in_loop = {f"looped_{name}": count for name, count in looped[0].items()} if complete and looped else {}
    return PrivateMoves(**once, **in_loop, complete=complete and _CALL.search(body) is None)


def _alone(code: str, name: str, *, called: bool) -> str:
    """Return assembly without other functions, but where some are called, and without what says nothing of the code."""
    code = _FUNCTION.sub(lambda each: each[0] if called or each["name"] == name else "", _SAID.sub("", code))
    code = re.sub(rf"\b{re.escape(name)}\b", "kernel", _NUMBERED.sub(r".L\1", code))
    return "\n".join(line for line in code.splitlines() if line.strip())


_OLDEST, _NEWEST = 17, 40
_LIMIT_S = 600.0
_ON = ("-target", "amdgcn-amd-amdhsa")
_LANGUAGES = {
    "opencl": ("-x", "cl", *_ON, "-cl-std=CL2.0", "-Xclang", "-finclude-default-header"),
    # Clang's own mathematics, without the host's headers.
    "hip": (
        "-x", "hip", "--cuda-device-only", "-nogpuinc", "-nostdinc++", "-nostdlibinc", "-std=c++17", "-D__HIPCC_RTC__",
        "-include", "__clang_hip_runtime_wrapper.h",
    ),
}  # fmt: skip
# Where clang itself, ROCm and distributions have libraries of device functions, from clang's folder and the root on.
_BESIDE = ("../../amdgcn/bitcode", "../lib/clang/*/lib/amdgcn/bitcode")
_ELSEWHERE = (
    "opt/rocm*/amdgcn/bitcode", "opt/rocm*/lib/llvm/lib/clang/*/lib/amdgcn/bitcode", "usr/lib/*/amdgcn/bitcode",
    "usr/lib*/clang/*/amdgcn/bitcode", "usr/lib*/amdgcn/bitcode", "usr/amdgcn/bitcode",
)  # fmt: skip
_VERSION = re.compile(r"clang version (\d+)[^\n]*")
_CURE = (
    "install ROCm, or clang and its libraries (apt install clang-19 rocm-device-libs); HIP_CLANG_PATH and "
    "HIP_DEVICE_LIB_PATH name other folders of theirs"
)


@dataclass(frozen=True)
class AmdCompiler:
    """Clang, the folder of its libraries for devices, and what its code depends on."""

    path: str
    libraries: Path
    version: str


@dataclass(frozen=True)
class AmdCompiled:
    """Kernels of a source, none where the compiler failed, and what it wrote."""

    kernels: tuple[AmdFacts, ...]
    log: str


@lru_cache
def amd_compiler(architecture: str) -> AmdCompiler:
    """Return what makes code for an architecture; an EnvironmentSetupError where nothing here does."""
    found = ""
    for path in _compilers():
        said = _said(path, "--version")
        if (version := _VERSION.search(said)) is None or int(version[1]) < _OLDEST:
            continue
        found = found or version[0]
        if architecture not in _said(path, "-x", "cl", *_ON, "-nogpulib", "--print-supported-cpus", "-").split():
            continue
        libraries = _libraries(path)
        size = sum(each.stat().st_size for each in libraries.glob("*.bc"))
        return AmdCompiler(path, libraries, f"{version[0]} with libraries of {size} bytes")
    what = f"{found} makes no code for {architecture}" if found else f"no clang of version {_OLDEST} or newer is here"
    msg = f"compiling for AMD's GPUs needs LLVM's compiler, and {what}; {_CURE}"
    raise EnvironmentSetupError(msg)


def _compilers() -> Iterator[str]:
    """Yield compilers: the one that is named, else ROCm's, newest first, and those of the system."""
    named = os.environ.get("HIP_CLANG_PATH")
    names = ["clang", *(f"clang-{number}" for number in range(_NEWEST, _OLDEST - 1, -1))]
    of_rocm = sorted(map(str, Path("/opt").glob("rocm*/llvm/bin")), reverse=True)
    for folder in [named] if named else [*of_rocm, None]:
        yield from filter(None, (shutil.which(name, path=folder) for name in names))


def _said(*words: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - clang
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _libraries(clang: str) -> Path:
    named = os.environ.get("HIP_DEVICE_LIB_PATH")
    beside = Path(clang).resolve().parent
    places = [(beside, each) for each in _BESIDE] + [(Path("/"), each) for each in _ELSEWHERE]
    found = (
        [Path(named)] if named else [path for root, each in places for path in sorted(root.glob(each), reverse=True)]
    )
    for folder in found:
        if Path(folder, "ocml.bc").is_file():
            return Path(folder)
    msg = f"clang at {clang} lacks ROCm's libraries for devices (ocml.bc); {_CURE}"
    raise EnvironmentSetupError(msg)


def compile_amd(source: str, language: str, architecture: str, options: tuple[str, ...] = ()) -> AmdCompiled:
    """Compile OpenCL C (``"opencl"``) or HIP (``"hip"``)."""
    compiler = amd_compiler(architecture)
    with _complete(compiler, architecture) as libraries:
        words = [*_LANGUAGES[language], f"-{'mcpu' if language == 'opencl' else '-offload-arch'}={architecture}"]
        words += [f"--rocm-device-lib-path={libraries}", "-O3", "-w", *options, "-S", "-o", "-", "-"]
        done = _run([compiler.path, *words], source)
    log = done.stderr.decode("utf-8", "replace")
    return AmdCompiled(() if done.returncode else tuple(facts_of(done.stdout.decode("utf-8", "replace"))), log)


@contextmanager
def _complete(compiler: AmdCompiler, architecture: str) -> Iterator[Path]:
    """Give libraries that know the architecture's number: of older ones, with a file that has it."""
    name = f"oclc_isa_version_{architecture.removeprefix('gfx')}.bc"
    if (compiler.libraries / name).is_file():
        yield compiler.libraries
        return
    with TemporaryDirectory(prefix="perflex-") as folder:
        for path in compiler.libraries.glob("*.bc"):
            Path(folder, path.name).symlink_to(path)
        # Generation, minor and stepping, as in LLVM's libraries: 9010 of gfx90a.
        number = 1000 * int(architecture[3:-2]) + 100 * int(architecture[-2], 16) + int(architecture[-1], 16)
        text = f"const __constant int __oclc_ISA_version = {number};"
        words = [compiler.path, *_LANGUAGES["opencl"], "-nogpulib", "-emit-llvm", "-c", "-o", f"{folder}/{name}", "-"]
        if _run(words, text).returncode:
            msg = f"ROCm's libraries for devices in {compiler.libraries} do not know {architecture}; {_CURE}"
            raise EnvironmentSetupError(msg)
        yield Path(folder)


def _run(words: list[str], source: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(words, input=source.encode(), capture_output=True, check=False, timeout=_LIMIT_S)  # noqa: S603 - clang
    except subprocess.TimeoutExpired as error:
        msg = f"clang did not end within {_LIMIT_S:.0f} s; compile a smaller kernel, or leave the code out"
        raise EnvironmentSetupError(msg) from error
