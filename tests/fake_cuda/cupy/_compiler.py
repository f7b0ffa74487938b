"""CUDA C++ compiled for the CPU, and kernels that can be launched there."""

import ctypes
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
# Programs of the compiler's own interface that were not destroyed.
PROGRAMS: dict[int, str] = {}
_BYTES = {"char": 1, "short": 2, "int": 4, "float": 4, "double": 8, "long": 8}


class CompileException(Exception):
    """As CuPy's: no RuntimeError, and with its message only as text."""

    def __init__(self, message):
        super().__init__()
        self._message = message

    def __str__(self):
        return self._message


def log_of(code):
    """What ptxas says of a source's kernels."""
    return "".join(
        f"ptxas info    : Compiling entry function '{name}' for 'sm_90'\n"
        f"ptxas info    : Function properties for {name}\n"
        f"ptxas         .     0 bytes stack frame, {setting('SPILLS', 0)} bytes spill stores\n"
        f"ptxas info    : Used {setting('REGISTERS', 32)} registers, used 1 barriers\n"
        for name in _KERNEL.findall(code)
    )


def get_version():
    if setting("NVRTC", 1) == 0:
        raise RuntimeError('Failure finding "libnvrtc.so.13": No such file: libnvrtc.so.13')
    return 13, 0


def create_program(source, name, headers, include_names):
    assert isinstance(source, str)
    assert not headers
    assert not include_names
    PROGRAMS[len(PROGRAMS) + 1] = source
    return len(PROGRAMS)


def compile_program(program, options):
    assert "--ptxas-options=-v" in options
    assert options[-1] == "-arch=sm_90"


def program_log(program):
    return log_of(PROGRAMS[program]) + "\0"


def destroy_program(program):
    del PROGRAMS[program]


class RawModule:
    """A source, compiled when it is first needed."""

    def __init__(self, *, code, options=(), backend="nvrtc", name_expressions=None):
        assert backend == "nvrtc"
        assert isinstance(options, tuple)
        self.code = code
        self._options = [option for option in options if option.startswith(("--std=", "-I"))]
        # Without them only functions without C++ names are found.
        self._expressions = name_expressions
        self._library: ctypes.CDLL | None = None
        self._limits: dict[str, int] = {}

    def compile(self, log_stream=None):
        if "perflex_hold" in self.code:
            return
        require_device()
        if not idle() or "void probe(" in self.code:
            self._library = self._compiled()
        # A binary that was kept comes without what the compiler said.
        if log_stream is not None and not setting("KEPT", 0):
            log_stream.write(log_of(self.code))

    def _compiled(self):
        names = {name: name for name in _KERNEL.findall(self.code)}
        if self._expressions is not None:
            names = {_plain(name): name for name in self._expressions}
        launches = [
            f'extern "C" void launch_{plain}(void **a, int *g, int *b) {{ launch({name}, a, g, b); }}'
            for plain, name in names.items()
        ]
        # As large as the driver ever lets it be.
        code = _DYNAMIC.sub(r"static \1 \2[232448 / sizeof(\1)];", self.code)
        text = "\n".join([_SHIM, '#line 1 "kernel.cu"', code, *launches])
        with tempfile.TemporaryDirectory(prefix="fake-cuda-") as folder:
            source, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
            source.write_text(text, encoding="utf-8")
            command = ["g++", "-O1", "-w", "-shared", "-fPIC", *self._options, str(source), "-o", str(library)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise CompileException(done.stderr)
            return ctypes.CDLL(str(library))

    def get_function(self, name):
        if self._library is None and "perflex_hold" not in self.code:
            self.compile()
        function = None if self._library is None else getattr(self._library, f"launch_{_plain(name)}")
        return RawKernel(name, function, _shared_bytes(self.code), self._limits)


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
