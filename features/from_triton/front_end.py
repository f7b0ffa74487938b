"""From a Triton kernel to its TTIR, by Triton's own front end and without a GPU."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

from perflex.errors import MissingExtraError, UnsupportedKernelError
from perflex.features.from_triton.counting import TileCode

# What Triton knows of an argument that is a multiple of it.
_ALIGNED = 16
# Syntax trees of functions by their text.
_trees: dict[str, Any] = {}
_MOST_TREES = 512
# A TTIR serves all launches of its signature; by all that it is made of.
_codes: dict[str, TileCode] = {}
_MOST_KEPT = 1024
_FILE = "perflex.ttir"


@dataclass(frozen=True)
class Signature:
    """What Triton compiles a kernel for.

    Attributes
    ----------
    types
        Triton's name of the type of each argument, such as ``*fp16``, ``i32`` or ``fp32``.
    constants
        Values of arguments that are constants of the code.
    divisible
        Arguments that are multiples of 16, or addresses that are.
    """

    types: Mapping[str, str]
    constants: Mapping[str, Any]
    divisible: frozenset[str]


def specialised(arguments: Mapping[str, Any], types: Mapping[str, str], constants: Mapping[str, Any]) -> Signature:
    """Return what Triton specialises a kernel to: an integer 1 is a constant, and multiples of 16 are known as such.

    Parameters
    ----------
    arguments
        Values of the integers and floats.
    types
        Types of what they do not tell: of arrays, and of floats other than ``fp32``.
    constants
        Values of the kernel's constants.
    """
    found, known, divisible = dict(types), dict(constants), {name for name in types if types[name].startswith("*")}
    for name, value in arguments.items():
        if name in constants or "." in name:  # of a descriptor
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            if value == 1 and name not in types:
                known[name] = 1
                continue
            divisible |= {name} if value % _ALIGNED == 0 else set()
        found.setdefault(name, type_of(value))
    return Signature(found, known, frozenset(divisible))


def type_of(value: Any) -> str:
    """Return the type that Triton gives a number."""
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"


def _parsed(function: Any) -> Any:
    """Return a function's syntax tree, parsed once, and not for each configuration as Triton does."""
    text = function.src
    if text not in _trees:
        if len(_trees) >= _MOST_TREES:
            _trees.clear()
        _trees[text] = ast.parse(text)
    return _trees[text]


def _arguments(names: list[str], signature: Signature) -> Iterator[str]:
    """Yield the names of the arguments that the TTIR has."""
    for name in names:
        if name in signature.constants:
            continue
        yield name
        if (kind := signature.types[name]).startswith("tensordesc"):
            rank = kind.count(",") + 1
            yield from (f"{name}.{what}{axis}" for what in ("size", "stride") for axis in range(rank))


def tile_code(function: Any, signature: Signature, capability: int = 80) -> TileCode:
    """Return the TTIR of a kernel for one of NVIDIA's GPUs.

    Parameters
    ----------
    function
        A function that ``triton.jit`` made a kernel.
    signature
        What it is compiled for; each argument must be in it.
    capability
        Compute capability, as 80 for 8.0.

    Raises
    ------
    MissingExtraError
        Triton is not installed.
    UnsupportedKernelError
        Triton cannot compile the kernel, or an argument has neither a type nor a value.
    """
    try:
        import triton
        from triton._C.libtriton import ir
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
        from triton.compiler.compiler import make_backend
    except ImportError as error:
        msg = "Triton kernels need Triton; install it with: pip install 'perflex[triton]'"
        raise MissingExtraError(msg, extra="triton") from error
    names = list(function.arg_names)
    missing = [name for name in names if name not in signature.types and name not in signature.constants]
    if missing:
        msg = f"kernel {function.__name__!r}: argument {missing[0]} has neither a type nor a value; give one"
        raise UnsupportedKernelError(msg)
    source = ASTSource(
        fn=function,
        signature={name: "constexpr" if name in signature.constants else signature.types[name] for name in names},
        constexprs={(names.index(name),): value for name, value in signature.constants.items() if name in names},
        attrs={(names.index(name),): [["tt.divisibility", _ALIGNED]] for name in names if name in signature.divisible},
    )
    target = GPUTarget("cuda", capability, 32)

    def ttir() -> str:
        backend = make_backend(target)
        # Checks of sums for overflow come to nothing, and take a third of the time; where nothing is said of fusion,
        # Triton warns.
        options = backend.parse_options({"sanitize_overflow": False, "enable_fp_fusion": True})
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        with mock.patch.object(triton.JITFunction, "parse", _parsed):
            module = source.make_ir(
                target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
            )
        stages: dict[str, Any] = {}
        backend.add_stages(stages, options, source.language)
        module = stages["ttir"](module, {"target": target, "name": source.name} | vars(options))
        return str(module.str_nodebug())

    try:
        key = f"perflex {triton.__version__} {capability} {source.hash()}"
        if key not in _codes:
            if len(_codes) >= _MOST_KEPT:
                _codes.clear()
            _codes[key] = TileCode(_kept(key, ttir), tuple(_arguments(names, signature)))
    except (triton.compiler.CompilationError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        last = (str(error).strip().splitlines() or [repr(error)])[-1]
        msg = f"Triton {triton.__version__} cannot compile kernel {function.__name__!r}: {last}"
        raise UnsupportedKernelError(msg) from error
    return _codes[key]


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
