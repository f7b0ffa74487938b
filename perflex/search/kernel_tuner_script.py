"""Scripts that call Kernel Tuner's ``tune_kernel``: run as they are, up to that call, which is taken instead of made.

Kernel Tuner need not be installed: modules of its name stand in for it while the script runs.
"""

from __future__ import annotations

import io
import os
import runpy
import sys
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import dataclass, field, fields
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from perflex.errors import PerflexError, SpaceError
from perflex.search.compiler_options import read_options
from perflex.search.constraints import constraints_of
from perflex.search.modules_beside import line_of, modules_beside
from perflex.search.tuned_source import BLOCK_SIZES, LANGUAGES, USUAL_BLOCK, GridRule, TunedSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from perflex.search.variant_space import VariantSpace

_NAME = "kernel_tuner"
# What stands in code, and not in the name of a file.
_OF_CODE = set("();{}\\\n")


def kernel_tuner_space(path: Path, arguments: Sequence[str] = ()) -> VariantSpace:
    """Return the space that a script tunes; the script is executed up to its first call of ``tune_kernel``."""
    call = _call_of(path, arguments)
    try:
        return called_space(call, path.resolve())
    except (TypeError, ValueError, AttributeError) as error:
        msg = f"{path}: cannot use its call of tune_kernel: {error}"
        raise SpaceError(msg, path=path) from error


def called_space(call: TuneCall, script: Path) -> VariantSpace:
    """Return the space that a call of ``tune_kernel`` tunes."""
    constraints = constraints_of(call.restrictions, list(call.tune_params))
    return tuned_source(call, script).space(dict(call.tune_params), constraints, script.stem)


def tuned_source(call: TuneCall, script: Path) -> TunedSource:
    """Return the source that a call of ``tune_kernel`` tunes; its files lie beside the script."""
    grid = GridRule(
        call.problem_size,
        (call.grid_div_x, call.grid_div_y, call.grid_div_z),
        tuple(call.block_size_names or BLOCK_SIZES),
        call.defines,
        call.usual_block,
    )
    given = [_argument(each) for each in call.arguments]
    options = read_options(call.compiler_options, script.parent)
    folders = [script.parent, *options.folders]
    language = LANGUAGES.get(str(call.lang).upper())
    if call.lang and language is None:
        msg = f"{script} tunes a kernel in {call.lang}; only OpenCL C, CUDA C and HIP are read"
        raise SpaceError(msg, path=script)
    source = _source(call.kernel_source, script)
    return TunedSource(source, call.kernel_name, grid, language, folders, options.defines, given)


@dataclass(frozen=True)
class TuneCall:
    """The arguments of ``tune_kernel`` that say what is tuned, by Kernel Tuner's names and in its order."""

    kernel_name: str
    kernel_source: Any
    problem_size: Any
    arguments: Any
    tune_params: Mapping[str, Any] = field(default_factory=dict)
    grid_div_x: Any = None
    grid_div_y: Any = None
    grid_div_z: Any = None
    restrictions: Any = None
    block_size_names: Sequence[str] | None = None
    defines: Mapping[str, Any] | None = None
    compiler_options: str | Sequence[str] | None = None
    lang: str | None = None
    # No argument of the call: threads of a block along each axis where no tunable says how many.
    usual_block: Sequence[int | str] = USUAL_BLOCK


_POSITIONS = (
    "kernel_name kernel_source problem_size arguments tune_params grid_div_x grid_div_y grid_div_z restrictions answer "
    "atol verify verbose lang device platform smem_args cmem_args texmem_args compiler compiler_options defines log "
    "iterations block_size_names"
)


class _CalledError(BaseException):  # no Exception: a script must not handle it
    def __init__(self, call: TuneCall) -> None:
        self.call = call


def _tune_kernel(*by_position: Any, **by_name: Any) -> NoReturn:
    raise _CalledError(call_of(dict(zip(_POSITIONS.split(), by_position, strict=False)) | by_name))


def call_of(given: Mapping[str, Any]) -> TuneCall:
    """Return a call of ``tune_kernel`` with arguments by name, others than those of a `TuneCall` left out."""
    return TuneCall(**{each.name: given[each.name] for each in fields(TuneCall) if given.get(each.name) is not None})


def _call_of(path: Path, arguments: Sequence[str]) -> TuneCall:
    path = path.resolve()
    try:
        # Modules come before words, which change the path for the script and change it back.
        with (
            modules_beside(path.parent),
            _replaced(),
            chdir(path.parent),
            redirect_stdout(io.StringIO()),
            _words([str(path), *arguments]),
        ):
            runpy.run_path(str(path), run_name="__main__")
    except _CalledError as called:
        return called.call
    except SystemExit:
        pass
    except PerflexError:
        raise
    # The user's script may raise anything.
    except Exception as error:
        line = getattr(error, "lineno", None) or line_of(error, path) or 1
        msg = (
            f"{path}, line {line}: {type(error).__name__}: {error}; the script must run up to its call of tune_kernel; "
            "arguments follow its name in quotes: 'SCRIPT.py ARGUMENT ...'"
        )
        raise SpaceError(msg, path=path) from error
    msg = (
        f"{path} ended without a call of kernel_tuner.tune_kernel; arguments follow its name: 'SCRIPT.py ARGUMENT ...'"
    )
    raise SpaceError(msg, path=path)


@contextmanager
def _words(words: Sequence[str]) -> Iterator[None]:
    before, path = sys.argv, sys.path
    sys.argv, sys.path = list(words), [os.path.dirname(words[0]), *sys.path]  # noqa: PTH120 - a text is wanted
    try:
        yield
    finally:
        sys.argv, sys.path = before, path


def _source(given: Any, script: Path) -> Path | str | Callable[[dict[str, Any]], str]:
    """Return the file or text of the kernel; of several files the first, which includes the others."""
    first = given[0] if isinstance(given, (list, tuple)) and given else given
    if isinstance(first, Path) or (isinstance(first, str) and _OF_CODE.isdisjoint(first)):
        return script.parent / first
    if isinstance(first, str):
        return first if "\n" in first else f"{first}\n"
    if callable(first):
        return lambda settings: f"{first(settings)}\n"
    msg = f"{script} tunes {type(first).__name__}, which is no source; only OpenCL C and CUDA C are read"
    raise SpaceError(msg, path=script)


def _argument(given: Any) -> int | str | None:
    """Return an integer, or how many bytes an array has, or None."""
    if isinstance(given, (int, np.integer, np.bool_)):
        return int(given)
    size = getattr(given, "nbytes", None)
    return str(int(size)) if isinstance(size, (int, np.integer)) and size and given.ndim else None


class _Anything:
    """Stands for what a script takes from Kernel Tuner besides ``tune_kernel``, such as observers."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> _Anything:
        return self

    def __getitem__(self, _: object) -> _Anything:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _tune_kernel if name == "tune_kernel" else _Anything


class _StandIns(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        del path, target
        own = fullname == _NAME or fullname.startswith(f"{_NAME}.")
        return ModuleSpec(fullname, self, is_package=True) if own else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        del module


@contextmanager
def _replaced() -> Iterator[None]:
    """Let modules of Kernel Tuner's name be stand-ins, whether it is installed or not."""

    def taken_out(names: Iterable[str]) -> dict[str, ModuleType]:
        own = [name for name in names if name == _NAME or name.startswith(f"{_NAME}.")]
        return {name: sys.modules.pop(name) for name in own}

    before, finder = taken_out(list(sys.modules)), _StandIns()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        taken_out(list(sys.modules))
        sys.modules.update(before)
