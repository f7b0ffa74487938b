"""Spaces by the names of their files: scripts for Kernel Tuner, perflex's own files, and the T1 format."""

from __future__ import annotations

import ast
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import field

from perflex.errors import FileFormatError, PerflexError, SpaceError
from perflex.features.from_source.parsing import LANGUAGES as SUFFIXES
from perflex.file_io import read_text
from perflex.search.compiler_options import read_options
from perflex.search.formula import parse_formula
from perflex.search.tuned_source import LANGUAGES, GridRule, Launch, Settings, TunedSource, number_of
from perflex.yaml_file import Fields, read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.search.variant_space import VariantSpace

SCHEMA = "perflex-source/1"
# Values of one tunable: more than any tuner goes through.
_MOST_VALUES = 100_000


class _SourceFile(Fields, frozen=True):
    source: str
    kernel: str
    local: list[int | str]
    tunables: dict[str, list[bool | int | float | str]]
    groups: list[int | str] | None = None
    extent: list[int | str] | None = field(default=None, name="global")
    constraints: tuple[str, ...] = ()
    defines: dict[str, int | float | str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    stated: dict[str, int | float | str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Formulas:
    """A launch by formulas: of tunables for work-groups, of tunables and sizes for the grid."""

    local: Sequence[int | str]
    groups: Sequence[int | str] | None
    extent: Sequence[int | str] | None
    defines: Settings

    def __call__(self, settings: Settings) -> Launch:
        values = dict(settings)
        local = [_whole(each, values) for each in self.local]
        groups = self.groups
        if groups is None:
            groups = [f"ceil_div({each}, {items})" for each, items in zip(self.extent or (), local, strict=True)]
        return Launch(local, groups, {**values, **self.defines})


def _whole(given: int | str, values: dict[str, Any]) -> int:
    number = number_of(given, values)
    if not number.is_integer():
        msg = f"a work-group of {given} = {number:g} work-items; write // to divide, so that it is a whole number"
        raise SpaceError(msg, formula=given)
    return int(number)


def source_file_space(path: Path) -> VariantSpace:
    """Return the space of a file of schema ``perflex-source/1``; raises as `load_space`."""
    section = read_yaml(path, SCHEMA)
    content = section.read(_SourceFile)
    if (content.groups is None) == (content.extent is None):
        cause = "the launch's extent is stated by 'groups' or by 'global', one of them"
        raise section.error(cause)
    if len(content.local) != len(content.groups or content.extent or ()):
        cause = "it must have as many extents as the grid"
        raise section.error(cause, "local")
    for name in content.defines:
        if name in content.tunables:
            cause = "it is a tunable, too, whose values would not count in the source; remove one"
            raise section.error(cause, "defines", name)
    launch = _Formulas(content.local, content.groups, content.extent, content.defines)
    folders = tuple(path.parent / each for each in content.folders)
    tuned = TunedSource(
        path.parent / content.source,
        content.kernel,
        launch,
        folders=folders,
        sizes=content.sizes,
        stated=content.stated,
        fixed_sizes=False,
    )
    return tuned.space(content.tunables, content.constraints, path.stem)


def t1_space(path: Path) -> VariantSpace:
    """Return the space of a T1 file; raises as `load_space`."""
    try:
        document = json.loads(read_text(path))
        kernel, tuned = document["KernelSpecification"], document["ConfigurationSpace"]
        tunables = {each["Name"]: values_of(each["Values"]) for each in tuned["TuningParameters"]}
        constraints = [str(each["Expression"]) for each in tuned.get("Conditions", ())]
        file = path.parent / kernel["KernelFile"]
        options = read_options(kernel.get("CompilerOptions"), path.parent)
        made = TunedSource(
            file,
            kernel["KernelName"],
            _t1_launch(kernel),
            language=None if file.suffix in SUFFIXES else LANGUAGES.get(str(kernel.get("Language")).upper()),
            folders=(path.parent, *options.folders),
            defines=options.defines,
            arguments=[_t1_argument(each) for each in kernel.get("Arguments", ())],
        )
    except PerflexError:
        raise
    except (KeyError, TypeError, ValueError, SyntaxError, RecursionError, AttributeError) as error:
        cause = f"has no {error}" if isinstance(error, KeyError) else f"cannot be read: {error}"
        msg = f"{path} is no T1 file: it {cause}"
        raise FileFormatError(msg, path=path) from error
    return made.space(tunables, constraints, path.stem)


@dataclass(frozen=True)
class _Blocks:
    """A T1 file's launch: work-groups and grid are formulas of tunables; or the grid is found as Kernel Tuner does."""

    local: Sequence[str]
    extents: Sequence[str]
    items: bool
    grid: GridRule | None = None

    def __call__(self, settings: Settings) -> Launch:
        values = dict(settings)
        local = [_whole(each, values) for each in self.local]
        if self.grid is not None:
            extents = [*map(int, self.grid(settings).groups), 1, 1][:3]
        else:
            extents = [int(number_of(each, values)) for each in self.extents]
        if self.items:
            extents = [-(-extent // items) for extent, items in zip(extents, local, strict=True)]
        used = max([1, *(axis + 1 for axis in range(len(local)) if local[axis] > 1 or extents[axis] > 1)])
        return Launch(local[:used], extents[:used], values)


def _t1_launch(kernel: Mapping[str, Any]) -> _Blocks:
    local = [str(kernel["LocalSize"].get(axis, 1)) for axis in "XYZ"]
    if "ProblemSize" in kernel:
        # Some files state another GlobalSize beside it: Kernel Tuner takes the problem's.
        grid = GridRule(kernel["ProblemSize"], [kernel.get(f"GridDiv{axis}") for axis in "XYZ"], local)
        return _Blocks(local, (), items=False, grid=grid)
    extents = [str(kernel["GlobalSize"].get(axis, 1)) for axis in "XYZ"]
    counted = kernel.get("GlobalSizeType") or kernel.get("Language")
    return _Blocks(local, extents, items=str(counted).lower() == "opencl")


def _t1_argument(given: Mapping[str, Any]) -> int | str | None:
    if given.get("MemoryType") == "Scalar":
        return int(given["FillValue"]) if "int" in str(given.get("Type")) and "FillValue" in given else None
    return None


def values_of(given: Any) -> list[Any]:
    """Return a tunable's values: a list, or its text, such as ``"[1, 2] + list(range(4, 33, 4))"``."""
    return list(given) if isinstance(given, list) else _items(ast.parse(str(given), mode="eval").body, {})


def _items(node: ast.expr, values: dict[str, Any]) -> list[Any]:
    match node:
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_item(each, values) for each in items]
        case ast.BinOp(left=first, op=ast.Add(), right=second):
            return _items(first, values) + _items(second, values)
        case ast.Call(func=ast.Name(id="list"), args=[inner], keywords=[]):
            return _items(inner, values)
        case ast.Call(func=ast.Name(id="range"), args=limits, keywords=[]):
            found = range(*(int(_item(each, values)) for each in limits))
            if len(found) > _MOST_VALUES:
                msg = f"{ast.unparse(node)} has more than {_MOST_VALUES} values"
                raise ValueError(msg)
            return list(found)
        case ast.ListComp(elt=item, generators=[ast.comprehension(target=ast.Name(id=name), iter=inner, ifs=[])]):
            return [_item(item, {**values, name: value}) for value in _items(inner, values)]
        case _:
            msg = f"cannot read the values {ast.unparse(node)!r}; write a list of numbers"
            raise ValueError(msg)


def _item(node: ast.expr, values: dict[str, Any]) -> Any:
    return parse_formula(ast.unparse(node)).value(values)


def load_space(file: str | Path) -> VariantSpace:
    """Return the variants of a kernel's source that a file describes.

    Parameters
    ----------
    file
        A script that calls Kernel Tuner's ``tune_kernel`` (``.py``), as it is: it is executed up to this call, which is
        not made; its own arguments may follow its name. Or a T1 file (``.json``), or one of schema
        ``perflex-source/1`` (``.yaml``).

    Returns
    -------
    VariantSpace
        The variants, with the sizes that the file states.

    Raises
    ------
    SpaceError
        There is no such file, the script fails or ends without such a call, or the space is empty.
    FileFormatError
        The file is damaged, or of another format.
    UnsupportedKernelError
        No variant can be read.
    """
    path, arguments = Path(file), list[str]()
    if not path.is_file() and ".py " in str(file):
        name, *arguments = shlex.split(str(file))
        path = Path(name)
    if not path.is_file():
        msg = f"there is no file {path}"
        raise SpaceError(msg, path=path)
    if path.suffix == ".py":
        from perflex.search.kernel_tuner_script import kernel_tuner_space

        return kernel_tuner_space(path, arguments)
    return t1_space(path) if path.suffix == ".json" else source_file_space(path)
