"""Spaces by the names of their files: scripts for Kernel Tuner, perflex's own files, and the T1 format."""

from __future__ import annotations

import ast
import json
import shlex
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import field

from perflex.errors import FileFormatError, PerflexError, SpaceError
from perflex.features.from_source.parsing import LANGUAGES as SUFFIXES
from perflex.file_io import read_text
from perflex.formula import parse_formula
from perflex.search.kernel_tuner_script import TuneCall, called_space, kernel_tuner_space
from perflex.search.tuned_source import Launch, Settings, TunedSource, whole_number
from perflex.yaml_file import Fields, read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.search.variant_space import VariantSpace

SCHEMA = "perflex-source/1"


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

    def launch(self, settings: Settings) -> Launch:
        """Return a launch by formulas: of tunables for work-groups, of tunables and sizes for the grid."""
        values = dict(settings)
        local = [whole_number(each, values) for each in self.local]
        groups = self.groups
        if groups is None:
            groups = [f"ceil_div({each}, {items})" for each, items in zip(self.extent or (), local, strict=True)]
        return Launch(local, groups, {**values, **self.defines})


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
    folders = tuple(path.parent / each for each in content.folders)
    tuned = TunedSource(
        path.parent / content.source,
        content.kernel,
        content.launch,
        folders=folders,
        sizes=content.sizes,
        stated=content.stated,
        fixed_sizes=False,
    )
    return tuned.space(content.tunables, content.constraints, path.stem)


def t1_space(path: Path) -> VariantSpace:
    """Return the space of a T1 file; raises as `load_space`."""
    try:
        return called_space(_t1_call(json.loads(read_text(path))), path)
    except PerflexError:
        raise
    except (KeyError, TypeError, ValueError, SyntaxError, RecursionError, AttributeError) as error:
        cause = f"has no {error}" if isinstance(error, KeyError) else f"cannot be read: {error}"
        msg = f"{path} is no T1 file: it {cause}"
        raise FileFormatError(msg, path=path) from error


def _t1_call(document: Mapping[str, Any]) -> TuneCall:
    """Return the call of ``tune_kernel`` that a T1 file stands for."""
    kernel, tuned = document["KernelSpecification"], document["ConfigurationSpace"]
    tunables = {each["Name"]: values_of(each["Values"]) for each in tuned["TuningParameters"]}
    file, language = Path(kernel["KernelFile"]), kernel.get("Language")
    local = [str(kernel["LocalSize"].get(axis, 1)) for axis in "XYZ"]
    divisors: list[Any]
    # Some files state another GlobalSize beside it: Kernel Tuner takes the problem's.
    if "ProblemSize" in kernel:
        problem, divisors = kernel["ProblemSize"], [kernel.get(f"GridDiv{axis}") for axis in "XYZ"]
    else:
        problem = [str(kernel["GlobalSize"].get(axis, 1)) for axis in "XYZ"]
        in_items = str(kernel.get("GlobalSizeType") or language).lower() == "opencl"
        divisors = [[items] if in_items else [] for items in local]
    return TuneCall(
        kernel["KernelName"],
        file,
        problem,
        [_t1_argument(each) for each in kernel.get("Arguments", ())],
        tunables,
        grid_div_x=divisors[0],
        grid_div_y=divisors[1],
        grid_div_z=divisors[2],
        restrictions=[str(each["Expression"]) for each in tuned.get("Conditions", ())],
        block_size_names=local,
        defines={name: itemgetter(name) for name in tunables},
        compiler_options=kernel.get("CompilerOptions"),
        lang=None if file.suffix in SUFFIXES else language,
        usual_block=local,
    )


def _t1_argument(given: Mapping[str, Any]) -> int | None:
    whole = given.get("MemoryType") == "Scalar" and "int" in str(given.get("Type"))
    return int(given["FillValue"]) if whole and "FillValue" in given else None


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
        case ast.Call(func=ast.Name(id="range")):
            return list(_item(node, values))
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
        return kernel_tuner_space(path, arguments)
    return t1_space(path) if path.suffix == ".json" else source_file_space(path)
