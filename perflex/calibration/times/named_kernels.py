"""Kernels that a table names: functions of the user's that make them, and tags of generators."""

from __future__ import annotations

import inspect
import math
import re
from typing import TYPE_CHECKING, Any

from perflex.errors import CalibrationError, TagError, UnsupportedKernelError
from perflex.features.scop.checks import is_whole

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from types import ModuleType

_LABEL = re.compile(r"\s*(\w+)\((.*)\)(?: #(\d+))?\s*")
# Values may hold commas, names of arguments may not.
_NEXT_ARGUMENT = re.compile(r",\s*(?=[A-Za-z_]\w*=)")
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")


class MadeKernel:
    """A kernel that a row of a table names, with its sizes."""

    def __init__(self, kernel: Any, sizes: Mapping[str, Any], name: str, generator: str, used: set[str]) -> None:
        self.kernel, self.sizes, self.name, self.generator, self.used = kernel, sizes, name, generator, used


def read_value(text: str) -> Any:
    """Return a cell as what it says: a whole number, another finite number, true or false, or a text."""
    text = text.strip()
    if _WHOLE.fullmatch(text):
        return int(text)
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


class NamedKernels:
    """Makes the kernels that rows of a table name, each variant once."""

    def __init__(self, known: Mapping[str, Any] | ModuleType | None = None) -> None:
        self.known: dict[str, Any] = own_functions(known) if inspect.ismodule(known) else dict(known or {})
        # Rows of one variant share a kernel, which is then described and counted once.
        self._made: dict[tuple[Any, ...], Any] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the user's own kernels."""
        return tuple(self.known)

    def of(self, kernel: str, cells: Mapping[str, str]) -> MadeKernel:
        """Return the kernel that a row names."""
        name, stated = split_label(kernel)
        cells = {**cells, **stated}
        if name in self.known:
            return self._own(name, cells)
        return self._generated(name, cells, set(stated))

    def _own(self, name: str, cells: Mapping[str, str]) -> MadeKernel:
        from perflex.features.from_loopy.extract import extract_scop

        maker = self.known[name]
        parameters: Mapping[str, inspect.Parameter] = {}
        if callable(maker) and not _is_kernel(maker):
            parameters = inspect.signature(maker).parameters
        arguments = {key: read_value(text) for key, text in cells.items() if key in parameters}
        _require_arguments(name, parameters, arguments)
        key = (name, *((word, type(value), value) for word, value in sorted(arguments.items())))
        if key not in self._made:
            made = maker(**arguments) if callable(maker) and not _is_kernel(maker) else maker
            self._made[key] = _checked_kernel(made, name)
        unit, own = self._made[key]
        # Tables of other programs have 1024.0 where a column has an empty cell, too: labels are the same.
        others = {
            word: int(value) if is_whole(value) else value
            for word, value in ((word, read_value(text)) for word, text in cells.items())
        }
        try:
            scop = extract_scop(unit, {**own, **{word: value for word, value in others.items() if type(value) is int}})
        except UnsupportedKernelError:
            # What cannot be described is left out with a warning where it is counted.
            sizes = {word: value for word, value in others.items() if isinstance(value, int)}
        else:
            sizes = {**own, **{word: value for word, value in others.items() if word in scop.parameters}}
            missing = [word for word in scop.parameters if word not in sizes]
            if missing:
                msg = f"kernel {name!r} needs a value for size {', '.join(missing)}; give a column of that name"
                raise CalibrationError(msg, kernel=name)
            for word, value in sizes.items():
                if isinstance(value, (str, bool)):
                    msg = f"size {word} of kernel {name!r} must be a whole number, not {value!r}"
                    raise CalibrationError(msg, kernel=name)
            scop.check_sizes(sizes)
        shown = ", ".join(f"{word}={value}" for word, value in {**arguments, **sizes}.items())
        return MadeKernel(unit, sizes, f"{name}({shown})", name, {*arguments, *sizes})

    def _generated(self, tags: str, cells: Mapping[str, str], stated: set[str]) -> MadeKernel:
        from uipick import ALL_GENERATORS, KernelCollection

        words = tags.split()
        collection = KernelCollection(ALL_GENERATORS)
        try:
            (generator,) = collection.matching_generators(words)
            given = {word.partition(":")[0] for word in words if ":" in word}
            added = [
                f"{argument.name}:{cells[argument.name].strip()}"
                for argument in generator.arguments
                if argument.name in cells and argument.name not in given
            ]
            # What a label states, it states of its generator: a word too many is an error there.
            added += [f"{word}:{cells[word]}" for word in sorted(stated - set(generator.by_name))]
            made = collection.generate_kernels([*words, *added])
        except TagError as error:
            own = f"the functions are {', '.join(self.known)}; as tags of a generator: " if self.known else ""
            msg = f"no kernel is called {tags!r}: {own}{error.message}"
            raise CalibrationError(msg, kernel=tags) from error
        except ValueError:
            names = ", ".join(generator.name for generator in collection.matching_generators(words))
            msg = f"{tags!r} fits several generators ({names}); name one"
            raise CalibrationError(msg, kernel=tags) from None
        if len(made) != 1:
            open_ = [word for word in made[0].arguments if len({str(one.arguments[word]) for one in made}) > 1]
            msg = f"{tags!r} fits {len(made)} kernels; state {', '.join(open_)}, as tags or columns"
            raise CalibrationError(msg, kernel=tags)
        one = made[0]
        return MadeKernel(one.kernel, one.sizes, one.name, one.generator, set(generator.by_name) & set(cells))


def split_label(text: str) -> tuple[str, dict[str, str]]:
    """Return the name or tags in the text of a row, and what a label states beside them."""
    found = _LABEL.fullmatch(text)
    if found is None:
        return text.strip(), {}
    parts = [part.partition("=") for part in _NEXT_ARGUMENT.split(found[2]) if part]
    return found[1], {name.strip(): value for name, _, value in parts}


def label_key(text: str) -> Hashable:
    """Return what a label says, which is the same in whichever order it states sizes."""
    name, stated = split_label(text)
    found = _LABEL.fullmatch(text)
    return name, frozenset(stated.items()), found and found[3]


def own_functions(module: ModuleType) -> dict[str, Any]:
    """Return the functions and kernels of a module by name, without what it keeps to itself."""
    # What the file imports is not its own: a table shall not call that.
    return {
        name: value
        for name, value in vars(module).items()
        if name[:1] != "_"
        and (_is_kernel(value) or (inspect.isfunction(value) and value.__module__ == module.__name__))
    }


def _is_kernel(value: Any) -> bool:
    import loopy as lp

    from perflex.features import AnnotatedKernel, Scop, SourceKernel

    return isinstance(value, (lp.TranslationUnit, AnnotatedKernel, Scop, SourceKernel)) or hasattr(value, "generator")


def _require_arguments(name: str, parameters: Mapping[str, inspect.Parameter], arguments: Mapping[str, Any]) -> None:
    several = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    needed = [
        word
        for word, one in parameters.items()
        if one.default is one.empty and one.kind not in several and word not in arguments
    ]
    if needed:
        msg = f"{name} needs arguments that the row does not have: {', '.join(needed)}; give columns of these names"
        raise CalibrationError(msg, kernel=name)


def _checked_kernel(made: Any, name: str) -> tuple[Any, Mapping[str, Any]]:
    """Return the kernel that a function made, and the sizes that it brings with it."""
    own = made.sizes if hasattr(made, "generator") else {}
    kernel = getattr(made, "kernel", made)
    if not _is_kernel(kernel):
        msg = (
            f"{name} returns a {type(made).__name__}; it must return a loopy TranslationUnit, a source kernel or a Scop"
        )
        raise CalibrationError(msg, kernel=name)
    return kernel, own
