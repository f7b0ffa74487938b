"""Cubins: facts of their kernels, their instructions by NVIDIA's disassembler, and making them of CUDA C++.

NVIDIA's run-time compiler (NVRTC) is a library of its own: it needs no GPU and no driver.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
import shutil
import struct
import subprocess
import sysconfig
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from perflex.compiled.elf import elf_object
from perflex.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.compiled.elf import ElfObject

# EIATTR_REGCOUNT and EIATTR_FRAME_SIZE, each with a symbol and a number; EIATTR_KPARAM_INFO, of one argument.
_REGISTERS, _FRAME, _ARGUMENT = 0x2F, 0x11, 0x17
# From compute capability 9.0 on kernels' arrays lie behind what the device keeps of each work-group's local memory.
_RESERVED, _RESERVED_SECTION = 1024, ".nv.shared.reserved.0"
# Where sides of work-groups and of the grid lie in constant bank 0, by where arguments begin.
_SIDES = {0x160: (0x0, 0xC), 0x210: (0x0, 0xC), 0x380: (0x360, 0x370)}
# Beginnings of names of sections: of code, and of the constant bank that holds a kernel's arguments.
_CODE, _ARGUMENTS = ".text.", ".nv.constant0."
# EIFMT_SVAL: a value of as many bytes as follow.
_SIZED = 4


@dataclass(frozen=True)
class GpuCode:
    """A kernel as it was compiled for an NVIDIA GPU."""

    # As ``"sm_90"``.
    architecture: str
    # The ELF object with all kernels of the source.
    cubin: bytes = field(repr=False)
    name: str
    # Work-groups of the launch, and work-items of a work-group, along each axis.
    groups: tuple[int, ...]
    work_group: tuple[int, ...]
    # That each work-item stores for want of registers, as the assembler tells; None where it does not.
    spill_bytes: int | None = None

    @property
    def facts(self) -> KernelFacts:
        """What the cubin says of it."""
        return kernel_facts(self)

    @cached_property
    def digest(self) -> str:
        """Equal for kernels that compile to the same code and are launched alike, whatever their sources say."""
        found = elf_object(self.cubin)
        sections = () if found is None else found.sections
        # Each kernel has a bank of constants; what has none is a function that kernels call.
        kernels = {one.name.removeprefix(_ARGUMENTS) for one in sections if one.name.startswith(_ARGUMENTS)}
        others = {f"{kind}{name}" for kind in (_CODE, ".nv.constant2.") for name in kernels - {self.name}}
        held = [
            (one.name.removesuffix(self.name), one.content)
            for one in sections
            if one.name.startswith((_CODE, ".nv.constant", ".nv.global.init"))
            and not one.name.startswith(_ARGUMENTS)
            and one.name not in others
        ]
        facts = replace(kernel_facts(self), arguments=())
        text = repr((self.architecture, self.groups, self.work_group, self.spill_bytes, facts, sorted(held)))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class KernelFacts:
    """What a cubin says of one kernel."""

    # 32-bit registers per work-item.
    registers: int
    # Memory of each work-item beside its registers: spilt registers and private arrays.
    private_bytes: int
    # Local memory of a work-group that the code declares.
    local_bytes: int
    # First byte of each argument in constant bank 0 and its bytes, in their order.
    arguments: tuple[tuple[int, int], ...]
    # First bytes, in the same bank, of the sides of work-groups and of the grid; empty where they are not known.
    sides: tuple[int, ...]


@lru_cache(maxsize=256)
def kernel_facts(code: GpuCode) -> KernelFacts:
    """Return what a cubin says of a kernel."""
    found = elf_object(code.cubin)
    sections = {} if found is None else {one.name: one for one in found.sections}
    if found is None or f".text.{code.name}" not in sections:
        msg = f"the cubin has no kernel {code.name!r}"
        raise ValueError(msg)
    numbers: dict[tuple[int, str], int] = {}
    for attribute, payload in _attributes(sections[".nv.info"].content):
        if attribute in {_REGISTERS, _FRAME}:
            symbol, number = struct.unpack("<II", payload)
            numbers[attribute, _symbol(found, symbol)] = number
    # Index, ordinal and offset of an argument; the highest bits are its size.
    places: dict[int, tuple[int, int]] = {}
    for attribute, payload in _attributes(sections[f".nv.info.{code.name}"].content):
        if attribute == _ARGUMENT:
            _, ordinal, offset, rest = struct.unpack("<IHHI", payload)
            places[ordinal] = offset, rest >> 18
    bank = sections.get(f".nv.constant0.{code.name}")
    # Arguments end the bank.
    begin = 0 if bank is None else bank.size - max((offset + size for offset, size in places.values()), default=0)
    shared = sections.get(f".nv.shared.{code.name}")
    return KernelFacts(
        numbers[_REGISTERS, code.name],
        numbers.get((_FRAME, code.name), 0),
        0 if shared is None else shared.size - (_RESERVED if _RESERVED_SECTION in sections else 0),
        tuple((begin + places[ordinal][0], places[ordinal][1]) for ordinal in sorted(places)),
        tuple(first + 4 * axis for first in _SIDES.get(begin, ()) for axis in range(3)),
    )


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place + 4 <= len(content):
        form, attribute, extent = struct.unpack_from("<BBH", content, place)
        place += 4
        size = extent if form == _SIZED else 0
        yield attribute, content[place : place + size]
        place += size


def _symbol(found: ElfObject, number: int) -> str:
    table = next(one for one in found.sections if one.name == ".symtab")
    (place,) = struct.unpack_from("<I", table.content, 24 * number)
    names = found.sections[table.link].content
    return names[place : names.find(b"\0", place)].decode("utf-8", "replace")


_LIMIT_S = 120.0
# Wheels that hold a disassembler of CUDA 12 beside all else; there is no package of it alone.
_OF_TRITON, _OLDER_TOOL = "triton/backends/nvidia/bin/nvdisasm", "pip install 'triton<3.7'"
INSTRUCTION_BYTES = 16
"""Bytes of an instruction from Volta on."""
_VOLTA, _OLDER_BYTES = 70, 8


# Compared by identity: what is asked of each again and again is looked up by it.
@dataclass(frozen=True, eq=False)
class GpuInstruction:
    """One instruction."""

    address: int
    name: str
    # What follows the name, between dots.
    modifiers: tuple[str, ...]
    # As the disassembler writes them, the destination first.
    operands: tuple[str, ...]
    # The register that decides whether it is carried out, ``"P0"`` or ``"!P0"``; empty for always.
    predicate: str = ""


@lru_cache(maxsize=64)
def disassembled(code: GpuCode) -> tuple[GpuInstruction, ...]:
    """Return the instructions of a kernel."""
    output = _disassembled(code)
    listed = {function["function-name"]: function["sass-instructions"] for function in json.loads(output)[1]}
    if code.name not in listed:
        raise _unread(code, f"it lists {', '.join(listed) or 'nothing'}, not {code.name}")
    size = INSTRUCTION_BYTES if int(code.architecture.removeprefix("sm_").rstrip("af")) >= _VOLTA else _OLDER_BYTES
    # Before Volta, words between instructions say how these are issued: they have no names.
    return tuple(
        _instruction(number * size, entry) for number, entry in enumerate(listed[code.name]) if entry["opcode"]
    )


def _disassembled(code: GpuCode) -> bytes:
    """Return what the first disassembler prints that can read the code: new ones do not know old GPUs."""
    reasons: list[str] = []
    with NamedTemporaryFile(suffix=".cubin") as stream:
        stream.write(code.cubin)
        stream.flush()
        for tool in _tools():
            try:
                done = subprocess.run(  # noqa: S603 - NVIDIA's tool, on a file of our own
                    [tool, "--emit-json", stream.name], capture_output=True, check=False, timeout=_LIMIT_S
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                reasons.append(str(error))
                continue
            if not done.returncode:
                return done.stdout
            reasons += done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no reason given"]
    raise _unread(code, reasons[0])


def _unread(code: GpuCode, reason: str) -> MissingExtraError:
    msg = (
        f"nvdisasm cannot read code for {code.architecture} ({reason}); install one that can: {_OLDER_TOOL} for GPUs "
        "before sm_75, else pip install -U nvidia-cuda-nvdisasm"
    )
    return MissingExtraError(msg, extra="cuda-code")


def _tools() -> list[str]:
    """Return the disassemblers of the Python environment, newest first, that of Triton, and that of the system."""
    places = [Path(sysconfig.get_path(folder)) for folder in ("purelib", "platlib")]
    found = {path for place in places for path in place.glob("nvidia/*/bin/nvdisasm")}
    tools = [str(path) for path in sorted(found, key=_cuda_version, reverse=True)]
    tools += [str(path) for place in places if (path := place / _OF_TRITON).is_file()]
    other = shutil.which("nvdisasm")
    tools += [] if other is None else [other]
    if not tools:
        msg = (
            "reading code for NVIDIA's GPUs needs the disassembler nvdisasm; "
            "install it with: pip install 'perflex[cuda-code]'"
        )
        raise MissingExtraError(msg, extra="cuda-code")
    return list(dict.fromkeys(tools))


def _cuda_version(tool: Path) -> int:
    """Return the version of a tool that came with pip: those of CUDA 13 and newer lie in ``nvidia/cu13``."""
    number = tool.parts[-3].removeprefix("cu")
    return int(number) if number.isdigit() else 0


_REGISTER_AND_PLACE = re.compile(r"\b(R(?:\d+|Z))\[")


def _instruction(address: int, entry: dict[str, str]) -> GpuInstruction:
    name, *modifiers = entry["opcode"].split(".")
    # CUDA 12's disassembler leaves out the comma of "LDL.LU R2, [R1]".
    words = _REGISTER_AND_PLACE.sub(r"\1,[", entry.get("operands", "")).split(",")
    operands = tuple(part.strip().removesuffix(".reuse") for part in words if part)
    return GpuInstruction(address, name, tuple(modifiers), operands, entry.get("predicate", "").removeprefix("@"))


_LIBRARY = re.compile(r"libnvrtc\.so\.(\d+)")


@dataclass(frozen=True)
class Compiled:
    """A cubin, empty where the compiler failed, what it wrote, and the names that C++ functions have in the cubin."""

    cubin: bytes
    log: str
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Compiler:
    """NVRTC, as ctypes has it, and what its code depends on."""

    library: Any
    version: str


@lru_cache(maxsize=1)
def _libraries() -> tuple[Any, ...]:
    """Return the libraries of the Python environment, newest first, then those of CUDA's own folders."""
    found: list[tuple[int, str]] = []
    for folder in ("purelib", "platlib"):
        found += _in(Path(sysconfig.get_path(folder), "nvidia"), "*/lib")
    found += _in(Path("/usr/local"), "cuda*/lib64") + _in(Path("/usr/lib"), "x86_64-linux-gnu")
    loaded = []
    for _, path in sorted(dict.fromkeys(found), key=lambda entry: -entry[0]):
        try:
            loaded.append(ctypes.CDLL(path))
        except OSError:
            continue  # of another processor, say
    return tuple(loaded)


def _in(root: Path, folders: str) -> list[tuple[int, str]]:
    paths = [path for folder in root.glob(folders) for path in folder.glob("libnvrtc.so.*")]
    return [(int(match[1]), str(path)) for path in paths if (match := _LIBRARY.match(path.name))]


def _architectures(library: Any) -> list[int]:
    count = ctypes.c_int()
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(numbers)
    return list(numbers)


def supported_architectures() -> list[str]:
    """Return what the compilers here make code for, as ``"sm_90"``; nothing where there is no compiler."""
    return [f"sm_{number}" for number in sorted({one for library in _libraries() for one in _architectures(library)})]


def compiler_of(architecture: str) -> Compiler:
    """Return what makes code for an architecture; a MissingExtraError where nothing here does."""
    library = next((one for one in _libraries() if architecture in [f"sm_{n}" for n in _architectures(one)]), None)
    if library is None:
        known = supported_architectures()
        msg = (
            f"NVRTC here makes code for {known[0]} to {known[-1]}, not for {architecture}; older GPUs need an older "
            "compiler: pip install nvidia-cuda-nvrtc-cu12"
            if known
            else "compiling for NVIDIA's GPUs needs NVRTC; install it with: pip install 'perflex[cuda-code]'"
        )
        raise MissingExtraError(msg, extra="cuda-code")
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    # Of one version there are several builds.
    size = Path(library._name).stat().st_size  # noqa: SLF001 - ctypes has no other name for it
    return Compiler(library, f"nvrtc {major.value}.{minor.value} of {size} bytes")


def compile_cuda(
    source: str, architecture: str, options: tuple[str, ...] = (), expressions: tuple[str, ...] = ()
) -> Compiled:
    """Compile CUDA C++; `expressions` name kernels that are C++ functions, instances of templates among them."""
    library = compiler_of(architecture).library
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    try:
        for expression in expressions:
            library.nvrtcAddNameExpression(program, expression.encode())
        words = [f"--gpu-architecture={architecture}".encode(), *(option.encode() for option in options)]
        failed = library.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
        log = _content(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program)
        cubin = b"" if failed else _content(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program)
        names = {} if failed else {each: _lowered(library, program, each) for each in expressions}
        return Compiled(cubin, log.rstrip(b"\0").decode("utf-8", "replace"), names)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def compile_with(
    nvrtc: Any, source: str, architecture: str, options: tuple[str, ...] = (), expressions: tuple[str, ...] = ()
) -> Compiled:
    """Compile as `compile_cuda` does, by the NVRTC that CuPy has loaded, its module `cupy.cuda.nvrtc`.

    CuPy's own way to it adds ``-ftz=true`` behind all other options.
    """
    program = nvrtc.createProgram(source, "kernel.cu", (), ())
    try:
        for expression in expressions:
            nvrtc.addNameExpression(program, expression)
        try:
            nvrtc.compileProgram(program, (f"--gpu-architecture={architecture}", *options))
        except RuntimeError as error:
            return Compiled(b"", nvrtc.getProgramLog(program).rstrip("\0") or str(error))
        names = {each: nvrtc.getLoweredName(program, each) for each in expressions}
        # CuPy takes the last byte away, as if it ended a text.
        return Compiled(nvrtc.getCUBIN(program) + b"\0", nvrtc.getProgramLog(program).rstrip("\0"), names)
    finally:
        nvrtc.destroyProgram(program)


def _lowered(library: Any, program: ctypes.c_void_p, expression: str) -> str:
    name = ctypes.c_char_p()
    library.nvrtcGetLoweredName(program, expression.encode(), ctypes.byref(name))
    return (name.value or b"").decode()


def _content(size_of: Any, get: Any, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    get(program, buffer)
    return buffer.raw
