"""From a launch of a Triton kernel to its TTIR and its compiled code, by Triton itself and without a GPU."""

from __future__ import annotations

import ast
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

from perflex.errors import MissingExtraError, UnsupportedKernelError
from perflex.features.from_triton.counting import TileCode
from perflex.features.tiles.tile_program import TileResources

# A TTIR serves all launches of its signature; by all that it is made of.
_codes: dict[str, TileCode] = {}
_MOST_KEPT = 1024
_FILE = "perflex.ttir"
# Checks of sums for overflow come to nothing, and take a third of the time; of fusion that is not set, Triton warns.
_TOLD = {"sanitize_overflow": False, "enable_fp_fusion": True}


def triton_module() -> Any:
    """Return Triton.

    Raises
    ------
    MissingExtraError
        It is not installed, or of a version that perflex does not know.
    """
    try:
        import triton
    except ImportError as error:
        msg = "Triton kernels need Triton; install it with: pip install triton"
        raise MissingExtraError(msg, extra="triton") from error
    if not hasattr(triton.JITFunction, "_pack_args"):
        msg = (
            f"Triton {triton.__version__} has another interface than Triton 3.5 to 3.9, which perflex knows; "
            "install one of these with: pip install 'triton>=3.5,<3.10'"
        )
        raise MissingExtraError(msg, extra="triton")
    return triton


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Say of what Triton cannot do of which kernel it is."""
    from triton.errors import TritonError

    try:
        yield
    except (TritonError, subprocess.SubprocessError, OSError, RuntimeError, ValueError, TypeError, AttributeError,
            LookupError, AssertionError) as error:  # fmt: skip
        last = (str(error).strip().splitlines() or [repr(error)])[-1]
        msg = f"Triton {triton_module().__version__} cannot compile kernel {name!r}: {last}"
        raise UnsupportedKernelError(msg) from error


# Triton would make a syntax tree anew for each configuration.
_parsed = lru_cache(maxsize=512)(ast.parse)


@lru_cache(maxsize=256)
def _binder(function: Any, capability: int) -> tuple[Any, Any]:
    """Return Triton's compiler for a GPU, and what binds the arguments of a launch."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend
    from triton.runtime.jit import create_function_from_signature

    backend = make_backend(GPUTarget("cuda", capability, 32))
    return backend, create_function_from_signature(function.signature, function.params, backend)


@dataclass(frozen=True)
class TritonSource:
    """A kernel with what Triton specialises it to at a launch; ``ast`` is its ``ASTSource``."""

    ast: Any
    backend: Any

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return str(self.ast.fn.__name__)

    def code(self) -> TileCode:
        """Return its TTIR.

        Raises
        ------
        UnsupportedKernelError
            Triton cannot compile the kernel.
        """
        with _explained(self.name):
            key = f"perflex {triton_module().__version__} {self.backend.target.arch} {self.ast.hash()}"
            if key not in _codes:
                if len(_codes) >= _MOST_KEPT:
                    _codes.clear()
                _codes[key] = TileCode(_kept(key, self._ttir), tuple(self._names()))
        return _codes[key]

    def _names(self) -> Iterator[str]:
        """Yield the names of the arguments that the TTIR has."""
        for name, kind in self.ast.signature.items():
            if kind == "constexpr":
                continue
            yield name
            if kind.startswith("tensordesc"):
                rank = kind.count(",") + 1
                yield from (f"{name}.{what}{axis}" for what in ("size", "stride") for axis in range(rank))

    def _ttir(self) -> str:
        from triton._C.libtriton import ir

        backend, target = self.backend, self.backend.target
        options = backend.parse_options(_TOLD)
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        with mock.patch.object(triton_module().JITFunction, "parse", lambda function: _parsed(function.src)):
            module = self.ast.make_ir(
                target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
            )
        stages: dict[str, Any] = {}
        backend.add_stages(stages, options, self.ast.language)
        module = stages["ttir"](module, {"target": target, "name": self.ast.name} | vars(options))
        return str(module.str_nodebug())

    def resources(self, options: Mapping[str, Any]) -> TileResources:
        """Return what the kernel takes once it is compiled with some options; a launch finds it in Triton's cache then.

        Raises
        ------
        UnsupportedKernelError
            Triton cannot compile the kernel.
        """
        triton = triton_module()
        with _explained(self.name), tempfile.TemporaryDirectory() as folder:
            compiled = triton.compile(self.ast, target=self.backend.target, options=dict(options))
            path = Path(folder, "kernel.cubin")
            path.write_bytes(compiled.asm["cubin"])
            command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(path)]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
            registers, stack = re.findall(r"REG:(\d+) STACK:(\d+)", said)[0]
        return TileResources(
            registers=int(registers), spilt_bytes=int(stack), local_bytes=int(compiled.metadata.shared)
        )


def triton_source(
    function: Any, values: Mapping[str, Any], described: Mapping[str, tuple[Any, Any]], capability: int = 80
) -> TritonSource:
    """Return what Triton specialises a kernel to, for one of NVIDIA's GPUs.

    Parameters
    ----------
    function
        A function that ``triton.jit`` made a kernel.
    values
        All arguments by name: numbers, constants, and objects with a ``dtype`` and an address for arrays.
    described
        Types of elements, and shapes of blocks, of descriptors that the host makes.
    capability
        Compute capability, as 80 for 8.0.

    Raises
    ------
    MissingExtraError
        Triton is not installed.
    UnsupportedKernelError
        An argument is of no type that Triton knows.
    """
    triton_module()
    from triton._utils import canonicalize_dtype
    from triton.compiler import ASTSource

    with _explained(function.__name__):
        backend, bind = _binder(function, capability)
        bound, found, _ = bind(**values)
        types = {
            name: f"tensordesc<{canonicalize_dtype(one)}{list(block)}>" for name, (one, block) in described.items()
        }
        kinds = [(types[name], None) if name in types else one for name, one in zip(bound, found, strict=True)]
        _, signature, constants, attributes = function._pack_args(backend, _TOLD, bound, kinds, {})  # noqa: SLF001
        return TritonSource(ASTSource(function, signature, constants, attributes), backend)


def _kept(key: str, make: Callable[[], str]) -> str:
    """Return a text that Triton's cache on disk has for a key, made and kept there if it has none."""
    from triton.runtime.cache import get_cache_manager

    try:
        cache = get_cache_manager(sha256(key.encode()).hexdigest())
        if path := cache.get_file(_FILE):
            return Path(path).read_text(encoding="utf-8")
    except (OSError, RuntimeError, ValueError):  # there is no place for it, or what is there is no text
        return make()
    text = make()
    with suppress(OSError):
        cache.put(text, _FILE)
    return text
