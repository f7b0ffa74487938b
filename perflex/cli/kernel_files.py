"""Kernels that commands are given: ``KERNEL.py:function``, ``SCOP.yaml``, ``FILE.cl:name``, launches of Triton's."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import sys
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from perflex.cli.arguments import (
    LAUNCH_FORM,
    SCOP_SUFFIXES,
    SOURCE_SUFFIXES,
    ArgumentError,
    file_and_name,
    is_source,
    is_space,
    launch_in,
    read_pairs,
    require_known_sizes,
)
from perflex.cli.options import TOLD
from perflex.errors import PerflexError
from perflex.file_io import read_text
from perflex.machines.files import load_machine
from perflex.search.modules_beside import line_of, modules_beside

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    import loopy as lp

    from perflex.cli.options import SourceOptions
    from perflex.features import AnnotatedKernel, Scop, SourceKernel
    from perflex.features.from_triton.launches import LaunchedKernel
    from perflex.machines.machine import Machine
    from perflex.search.variant_space import VariantSpace

_IS_A_SPACE = "is a space of variants, and not one kernel; 'perflex prune' predicts and orders them"
# Variants that say which sizes all have.
_FIRST = 8


def load_kernel(reference: str) -> lp.TranslationUnit | AnnotatedKernel | Scop | SourceKernel:
    """Return the kernel that a function in a Python file makes, a Scop's file describes, or source code has.

    The file is executed, as ``python FILE`` would; modules beside it can be imported.
    """
    # A Python file alone is mostly a kernel whose function was forgotten.
    if is_space(reference) and not reference.endswith(".py"):
        raise ArgumentError(f"{reference} {_IS_A_SPACE}")
    if reference.endswith(SCOP_SUFFIXES):
        _refuse_stated(reference)
        from perflex.features.scop.scop_file import read_scop

        return read_scop(reference)
    if is_source(reference):
        return _from_source(reference)
    import loopy as lp

    from perflex.features import AnnotatedKernel, Scop
    from perflex.search.variant_space import VariantSpace

    made = _made(reference, (lp.TranslationUnit, AnnotatedKernel, Scop, VariantSpace))
    kernel = getattr(made, "kernel", made)  # of a measurement kernel
    if isinstance(kernel, (lp.TranslationUnit, AnnotatedKernel)):
        return _with_stated(kernel)
    # What reads source code takes long to import.
    from perflex.features import SourceKernel
    from perflex.features.tiles.tile_kernel import TileKernel

    if isinstance(made, VariantSpace):
        raise ArgumentError(f"{reference} {_IS_A_SPACE}")
    if type(made).__module__.startswith("triton."):
        what = "is a kernel of Triton; name a function that launches it, kernel[grid](...)"
        raise ArgumentError(f"{reference} {what}")
    if not isinstance(kernel, (Scop, SourceKernel, TileKernel)):
        what = f"is a {type(made).__name__}; name a function that returns a loopy TranslationUnit"
        raise ArgumentError(f"{reference} {what}")
    _refuse_stated(reference)
    return kernel


def _refuse_stated(reference: str) -> None:
    if TOLD.get().source.state:
        which = "loopy kernels and for source code named itself"
        raise ArgumentError(f"--state is for {which}, not for {reference}; leave it out")


def load_work_items(reference: str) -> lp.TranslationUnit | AnnotatedKernel | Scop | SourceKernel:
    """Return a kernel as `load_kernel` does, which must have work-items."""
    from perflex.features.tiles.tile_kernel import TileKernel

    found = load_kernel(reference)
    if isinstance(found, TileKernel):
        what = "is a program of tiles, without work-items; 'perflex predict' says what its time consists of"
        raise ArgumentError(f"{reference} {what}")
    return found


def _with_stated(kernel: Any) -> Any:
    """Return a loopy kernel with what was stated of its loops and accesses."""
    from perflex.features import annotate

    stated = read_pairs(TOLD.get().source.state or (), "--state", "j=7.5 or 'x[idx[i]]=4*i'")
    if not stated:
        return kernel
    unit = getattr(kernel, "translation_unit", kernel)
    parts = [unit[name] for name in unit.entrypoints]
    arrays = {name for part in parts for name in (*part.arg_dict, *part.temporary_variables)}
    accesses = {key: value for key, value in stated.items() if "[" in key or ":" in key or key in arrays}
    return annotate(kernel, trip_counts={key: stated[key] for key in stated if key not in accesses}, accesses=accesses)


def _from_source(reference: str) -> SourceKernel:
    """Return the kernel of ``FILE.cl:name`` or ``FILE.cu:name<arguments>`` with the launch that options give."""
    from perflex.features import source_kernel

    given = TOLD.get().source
    place, name = file_and_name(reference)
    if not place.endswith(SOURCE_SUFFIXES):
        raise ArgumentError(f"{reference} names no kernel of the file{_kernels_of(Path(reference))}")
    local, groups = _launch(reference, given)
    defined = read_pairs([word if "=" in word else f"{word}=1" for word in given.define or ()], "-D", "TILE=4")
    kernel = source_kernel(
        Path(place),
        name,
        local=local,
        groups=groups,
        global_size=_extents(given.extent),
        defines={**_macros_of_machine(Path(place)), **defined},
        folders=given.include or (),
        language=given.language,
        stated=read_pairs(given.state or (), "--state", "34=7.5"),
        options=given.build or (),
    )
    if kernel.host_launch:
        TOLD.get().terminal.remark(f"launch of {place}, {kernel.host_launch}")
    return kernel


def _kernels_of(path: Path) -> str:
    """Return the kernels of a file, as the end of a message."""
    from perflex.features.from_source.kernel_function import kernels_in

    found = kernels_in(path, read_text(path), {}, language=TOLD.get().source.language)
    names = dict.fromkeys(one.spelling for one in found)
    return f"; name one: {', '.join(f'{path}:{name}' for name in names)}" if names else "; it has none"


def _launch(reference: str, given: SourceOptions) -> tuple[list[int] | None, list[str] | None]:
    """Return work-group and work-groups: those behind the kernel's name, or else those of options."""
    from perflex.features.from_source.host_launches import written_launch

    written, groups, local = launch_in(reference), _extents(given.groups), given.local and given.local.split(",")
    try:
        if written:
            groups, local = written_launch(written)
        return list(map(int, local)) if local else None, groups
    except ValueError:
        wrong = f"the launch <<<{written}>>>; {LAUNCH_FORM}"
        if not written:
            wrong = f"--local {given.local!r}; write numbers, such as 32,8"
        raise ArgumentError(f"cannot read {wrong}") from None


def _extents(text: str | None) -> list[str] | None:
    """Return formulas separated by commas outside of parentheses."""
    from perflex.features.from_source.host_code import split

    if text is None:
        return None
    found, end = split(text)
    # Of brackets that do not fit it is all that is wrong.
    return found if end == len(text) else [text]


def _machine() -> Machine | None:
    """Return the machine that the command was told to count for."""
    named = TOLD.get().machine
    return None if named is None else load_machine(named)


def _macros_of_machine(path: Path) -> dict[str, int]:
    """Return what compilers of CUDA C and HIP define for the GPU that is named."""
    from perflex.features.from_source.parsing import language_of

    machine = _machine()
    if machine is None or machine.kind != "gpu" or not path.is_file():
        return {}
    language = TOLD.get().source.language or language_of(path, path.read_text(encoding="utf-8", errors="replace"))
    capability, items = machine.compute_capability, machine.sub_group_size
    found = {} if capability is None or language == "opencl" else {"__CUDA_ARCH__": round(100 * capability)}
    return found if items is None or language != "hip" else {**found, "__AMDGCN_WAVEFRONT_SIZE": items}


def load_variants(word: str) -> VariantSpace | LaunchedKernel:
    """Return the variants of a file of a kernel's source with tunables, or of what a Python file has by a name."""
    from perflex.cli.launches import is_launch
    from perflex.search.variant_space import VariantSpace

    _refuse_stated(word)
    if is_space(word):
        from perflex.search.source_spaces import load_space

        return load_space(word)
    found = _made(word, (VariantSpace,))
    if not (isinstance(found, VariantSpace) or is_launch(found)):
        raise ArgumentError(f"{word} is a {type(found).__name__}; it must be a perflex.VariantSpace or return one")
    return cast("VariantSpace | LaunchedKernel", found)


def require_sizes_of(variants: VariantSpace | LaunchedKernel, given: Mapping[str, int]) -> None:
    """Refuse sizes that none of the first variants has, or too few for a launch."""
    from perflex.features import extract_scop
    from perflex.search.variant_space import VariantSpace

    if not isinstance(variants, VariantSpace):
        variants.check_sizes(given)
        return
    sizes = {**variants.sizes, **given}

    def described() -> Iterator[Any]:
        for settings in islice(variants, _FIRST):
            with suppress(PerflexError):
                extract_scop(kernel := variants.kernel(settings), sizes)
                yield kernel

    require_known_sizes(given, described(), sizes)


def _made(reference: str, kinds: tuple[type, ...]) -> object:
    """Return what a name in a Python file stands for, or, unless it is of the kinds, what the function makes."""
    place, colon, name = reference.rpartition(":")
    if is_source(reference):
        raise ArgumentError(
            f"{reference} is source code, of which a space needs the tunables and the launch; write a YAML file with "
            "schema: perflex-source/1 that states them, and name it here"
        )
    if not colon or not place or not name.isidentifier():
        raise ArgumentError(f"cannot read {reference!r}; write KERNEL.py:function, a Python file and a function in it")
    if place.endswith(SCOP_SUFFIXES):
        raise ArgumentError(f"{place} stands for all that it describes; name it without ':{name}'")
    with _executed(place) as (module, path):
        if not hasattr(module, name):
            own = [key for key, value in vars(module).items() if key[:1] != "_" and not inspect.ismodule(value)]
            raise ArgumentError(f"{path} has no {name!r}; it has {', '.join(own) or 'nothing'}")
        found: Any = getattr(module, name)
        if isinstance(found, kinds) or not callable(found) or type(found).__module__.startswith("triton."):
            return found
        if inspect.isfunction(found) and _has_triton(module):
            from perflex.features.from_triton.launches import LaunchedKernel

            machine = _machine()
            known = None if machine is None else machine.compute_capability
            return LaunchedKernel(found) if known is None else LaunchedKernel(found, int(10 * known))
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            msg = f"{name} in {path}: {error}; give its arguments defaults or wrap it in a function"
            raise ArgumentError(msg) from None
        with _own_errors(path, f" in {name}"):
            return found()


def _has_triton(module: ModuleType) -> bool:
    """Return whether a file has kernels of Triton, so that its functions launch these."""
    return any(type(value).__module__.startswith("triton.runtime") for value in vars(module).values())


def load_kernels(place: str) -> dict[str, object]:
    """Return the functions of a Python file, or the Scop of a YAML file, by name; a Python file is executed."""
    if place.endswith(SCOP_SUFFIXES):
        from perflex.features.scop.scop_file import read_scop

        scop = read_scop(place)
        return {scop.name: scop}
    if is_source(place):
        made = f"perflex.source_kernel({place!r}, ...)"
        raise ArgumentError(f"{place} is source code; give a Python file with functions that return {made}")
    from perflex.calibration.times.named_kernels import own_functions

    with _executed(place) as (module, path):
        own = own_functions(module)
    if not own:
        raise ArgumentError(f"{path} has no function; it must have one for each kernel, which returns it")
    return own


@contextmanager
def _executed(place: str) -> Iterator[tuple[ModuleType, Path]]:
    """Yield the module of a Python file, and its whole path; modules beside it can be imported from then on."""
    path = Path(place).resolve()
    # Not of Path: in Python 3.11 that fails at names that are too long.
    if not os.path.isfile(path):  # noqa: PTH113
        raise ArgumentError(f"there is no file {place}")
    # Files of one name in two folders are two modules.
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(f"perflex_user_{digest}", path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"{path} is no Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    # Known while it runs, as dataclasses and pickles defined in it expect.
    sys.modules[spec.name] = module
    with modules_beside(path.parent):
        with _own_errors(path):
            spec.loader.exec_module(module)
        yield module, path


@contextmanager
def _own_errors(path: Path, within: str = "") -> Iterator[None]:
    """Name the line of the user's file where its code raised an error; what has a message of its own passes."""
    try:
        yield
    except SyntaxError as error:
        raise ArgumentError(f"{error.filename or path}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        from sqlite3 import OperationalError

        # The last two are said of full disks and of loopy's caches, too.
        if isinstance(error, (PerflexError, OSError, OperationalError)):
            raise
        line = line_of(error, path)
        place = str(path) if line is None else f"{path}, line {line}"
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ArgumentError(f"{place}{within}: {reason}; mend the file (--debug shows the traceback)") from error
