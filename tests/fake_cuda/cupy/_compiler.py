"""CUDA C++ compiled for the CPU, and kernels that can be launched there."""

import ctypes
import pickle
import re
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from cupy._driver import CUDARuntimeError, State, idle, require_device, setting

_SHIM = Path(__file__).with_name("shim.h").read_text(encoding="utf-8")
_KERNEL = re.compile(r"__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(")
_DYNAMIC = re.compile(r"extern __shared__ (\w+) (\w+)\[\];")
_SHARED = re.compile(r"(?<!extern )__shared__ ((?:\w+ )+)\w+((?:\[[^]]*\])*);")
# Programs that were not destroyed, and with what options each was compiled.
PROGRAMS: dict = {}
OPTIONS: list[tuple[str, ...]] = []
_BYTES = {"char": 1, "short": 2, "int": 4, "float": 4, "double": 8, "long": 8}


class NVRTCError(RuntimeError):
    pass


class CompileException(Exception):
    """As CuPy's: no RuntimeError, and with its message only as text."""

    def __init__(self, message):
        super().__init__()
        self._message = message

    def __str__(self):
        return self._message


class Program:
    """A source, what it compiled to, and what the compiler wrote."""

    def __init__(self, source):
        self.source = source
        self.expressions = []
        self.log = ""
        self.library = None


def log_of(names):
    """What ptxas says of kernels."""
    return "".join(
        f"ptxas info    : Compiling entry function '{name}' for 'sm_90'\n"
        f"ptxas info    : Function properties for {name}\n"
        f"ptxas         .     0 bytes stack frame, {setting('SPILLS', 0)} bytes spill stores\n"
        f"ptxas info    : Used {setting('REGISTERS', 32)} registers, used 1 barriers\n"
        for name in names
    )


def get_version():
    if setting("NVRTC", 1) == 0:
        raise RuntimeError('Failure finding "libnvrtc.so.13": No such file: libnvrtc.so.13')
    return 13, 0


def supported_archs():
    return 75, 80, 86, 89, 90, 100


def create_program(source, name, headers, include_names):
    assert isinstance(source, str)
    assert not headers
    assert not include_names
    number = max(PROGRAMS, default=0) + 1
    PROGRAMS[number] = Program(source)
    return number


def add_name_expression(number, expression):
    PROGRAMS[number].expressions.append(expression)


def lowered_name(number, expression):
    assert expression in PROGRAMS[number].expressions
    return _plain(expression)


def assemble_options(options):
    """The folders of headers that CuPy adds; without CUDA's it gives up."""
    if setting("HEADERS", 1) == 0:
        raise RuntimeError("Failed to auto-detect CUDA root directory.")
    return *options, "-I/headers/of/cupy"


def compile_program(number, options):
    assert isinstance(options, tuple)
    assert "--gpu-architecture=sm_90" in options
    assert "--ptxas-options=-v" in options
    OPTIONS.append(options)
    program = PROGRAMS[number]
    if "perflex_hold" in program.source:
        return
    # Without expressions only functions without C++ names are found.
    names = {_plain(name): name for name in program.expressions or _KERNEL.findall(program.source)}
    if not idle():
        program.library = _compiled(program, names, [one for one in options if one.startswith(("--std=", "-I"))])
    program.log = log_of(names)


def cubin(number):
    program = PROGRAMS[number]
    return pickle.dumps((program.source, program.library))


def program_log(number):
    return PROGRAMS[number].log + "\0"


def destroy_program(number):
    del PROGRAMS[number]


def _compiled(program, names, options):
    launches = [
        f'extern "C" void launch_{plain}(void **a, int *g, int *b) {{ launch({name}, a, g, b); }}'
        for plain, name in names.items()
    ]
    # As large as the driver ever lets it be.
    code = _DYNAMIC.sub(r"static \1 \2[232448 / sizeof(\1)];", program.source)
    text = "\n".join([_SHIM, '#line 1 "kernel.cu"', code, *launches])
    with tempfile.TemporaryDirectory(prefix="fake-cuda-") as folder:
        source, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
        source.write_text(text, encoding="utf-8")
        command = ["g++", "-O1", "-w", "-shared", "-fPIC", *options, str(source), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        program.log = done.stderr
        if done.returncode:
            raise NVRTCError("NVRTC_ERROR_COMPILATION (6)")
        return library.read_bytes()


class RawModule:
    """What was compiled, loaded from a file when it is first needed."""

    loaded: dict = {}  # noqa: RUF012 - by path, as CuPy has it

    def __init__(self, *, path=None, code=None, options=(), backend="nvrtc"):
        assert backend == "nvrtc"
        self.path = path or code
        self.code = code

    def get_function(self, name):
        if self.path not in self.loaded:
            self.loaded[self.path] = self._load()
        code, library, limits = self.loaded[self.path]
        function = None if library is None else getattr(library, f"launch_{name}")
        return RawKernel(name, function, _shared_bytes(code), limits)

    def _load(self):
        require_device()
        code, library = self._compiled() if self.path == self.code else pickle.loads(Path(self.path).read_bytes())
        if library is None:
            return code, None, {}
        with tempfile.NamedTemporaryFile(suffix=".so") as stream:
            stream.write(library)
            stream.flush()
            return code, ctypes.CDLL(stream.name), {}

    def _compiled(self):
        program = Program(self.code)
        try:
            return self.code, _compiled(program, {name: name for name in _KERNEL.findall(self.code)}, ["--std=c++17"])
        except NVRTCError:
            raise CompileException(program.log) from None


def _plain(expression):
    return re.sub(r"\W", "_", expression)


def _shared_bytes(code):
    total = 0
    for element, lengths in _SHARED.findall(code):
        count = int(np.prod([eval(length) for length in re.findall(r"\[([^]]*)\]", lengths)], initial=1))
        total += count * _BYTES[element.split()[-1]]
    return total


def _hold(address):
    State.go = address
    if State.impatient:
        State.impatient -= 1
        ctypes.c_int.from_address(address + 4).value = 1


class RawKernel:
    def __init__(self, name, function, shared_bytes, limits):
        self.name = name
        self._function = function
        self._shared_bytes = shared_bytes
        # By function: all objects for it share the driver's function.
        self._limits = limits

    @property
    def max_dynamic_shared_size_bytes(self):
        return self._limits.get(self.name, 0)

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size):
        if self._shared_bytes + size > 232448:
            raise CUDARuntimeError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        self._limits[self.name] = size

    @property
    def attributes(self):
        require_device()
        registers = setting("REGISTERS", 32)
        return {
            "num_regs": registers,
            "local_size_bytes": setting("PRIVATE", 0),
            "shared_size_bytes": self._shared_bytes,
            "max_threads_per_block": min(1024, 65536 // registers // 32 * 32),
        }

    def _take(self, shared_mem):
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise CUDARuntimeError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        State.dynamic_bytes.append(shared_mem)

    def __call__(self, grid, block, args, *, shared_mem=0):
        require_device()
        self._take(shared_mem)
        if not isinstance(grid, tuple) or not isinstance(block, tuple):
            raise TypeError("Expected tuple")  # as Cython has it
        if not all(type(extent) is int for extent in (*grid, *block)):
            raise TypeError("an integer is required")
        if not all(isinstance(argument, np.generic) for argument in args):
            raise TypeError("Unsupported type")
        State.launches.append(self.name)
        State.used.add(State.device)
        if self.name == "perflex_hold":
            _hold(int(args[0]))
            return
        if self.name == "greedy":
            raise CUDARuntimeError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for launch")
        if self.name == "astray":
            State.lost = True
            return  # the next call tells
        if self.name == "endless":
            time.sleep(60)
        if any(count > most for count, most in zip(grid, (2147483647, 65535, 65535), strict=False)):
            raise CUDARuntimeError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        if idle() and self._function is None:
            State.worked_ns += 2000 + int(np.prod([*grid, *block]) * 0.05)
            return
        held = [np.array([argument]) for argument in args]
        pointers = (ctypes.c_void_p * len(held))(*[array.ctypes.data for array in held])
        sizes = [(ctypes.c_int * 3)(*(*map(int, axes), 1, 1, 1)[:3]) for axes in (grid, block)]
        self._function(pointers, *sizes)
