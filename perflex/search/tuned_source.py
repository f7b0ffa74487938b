"""A kernel's source with tunables: what every such file says, and the space of variants that follows."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from perflex.errors import PerflexError, SpaceError
from perflex.features.from_source.source import source_kernel
from perflex.search.constraints import formula_of
from perflex.search.variant_space import VariantSpace
from perflex.search.variants import built

if TYPE_CHECKING:
    from pathlib import Path

    from perflex.features.from_source.parsing import Language
    from perflex.features.from_source.source import SourceKernel
    from perflex.search.constraints import Given

Settings = Mapping[str, Any]
# A number, a formula of tunables, or a function that takes all settings as one mapping.
Stated = int | str | Callable[[dict[str, Any]], Any]
AXES = "xyz"
# By what tuners call languages, and back ends that stand for them.
LANGUAGES: Mapping[str, Language] = {
    "OPENCL": "opencl", "CUDA": "cuda", "CUPY": "cuda", "NVCUDA": "cuda", "HIP": "hip",
}  # fmt: skip
BLOCK_SIZES = ("block_size_x", "block_size_y", "block_size_z")
# Kernel Tuner's, where no tunable says how many threads a block has.
USUAL_BLOCK = (256, 1, 1)


@dataclass(frozen=True)
class Launch:
    """A variant's launch: work-items and work-groups along each axis, and the macros that the host program sets."""

    local: Sequence[int]
    groups: Sequence[str | int]
    defines: Settings


@dataclass(frozen=True)
class GridRule:
    """How Kernel Tuner finds the grid: the problem's extents, divided by products along each axis."""

    problem: Stated | Sequence[Stated]
    divisors: Sequence[Stated | Sequence[Stated] | None] = (None, None, None)
    block_names: Sequence[str] = BLOCK_SIZES
    defines: Mapping[str, Stated] | None = None
    # Threads of a block along each axis where no tunable has its name.
    usual_block: Sequence[int | str] = USUAL_BLOCK

    def __call__(self, settings: Settings) -> Launch:
        """Return a variant's launch, with the macros that Kernel Tuner sets."""
        values = dict(settings)
        names = (*self.block_names, *BLOCK_SIZES[len(self.block_names) :])
        local = [whole_number(values.get(*pair), values) for pair in zip(names, self.usual_block, strict=True)]
        problem: Any = self.problem(values) if callable(self.problem) else self.problem
        extents = [_cut(each, values) for each in ([problem] if _is_one(problem) else problem)]
        extents += [1] * (3 - len(extents))
        divisors = [
            values.get(name, 1) if given is None else _divisor(given, values)
            for name, given in itertools.zip_longest(names, self.divisors)
        ]
        if not all(divisors):
            msg = f"the grid's divisors are {divisors}; a divisor of 0 makes no grid"
            raise SpaceError(msg)
        groups = [math.ceil(extent / divisor) for extent, divisor in zip(extents, divisors, strict=True)]
        if self.defines is None:
            grid = {f"grid_size_{axis}": count for axis, count in zip(AXES, groups, strict=True)}
            defines = {"kernel_tuner": 1, **grid, **dict(zip(names, local, strict=True)), **values}
        else:
            defines = {name: _defined(given, values) for name, given in self.defines.items()}
        used = max([1, *(axis + 1 for axis in range(3) if local[axis] > 1 or groups[axis] > 1)])
        return Launch(local[:used], groups[:used], defines)


def _is_one(given: Any) -> bool:
    """Return whether something is a number or a formula, and no list of these."""
    return isinstance(given, str) or not isinstance(given, Iterable)


def _divisor(given: Any, values: dict[str, Any]) -> float:
    """Return a product of divisors, each of which is cut to an integer but for what functions return."""
    if callable(given):
        return float(given(values))
    return _cut(given, values) if _is_one(given) else math.prod(_divisor(each, values) for each in given)


def _cut(given: Stated, values: dict[str, Any]) -> int:
    return int(number_of(given, values))


def replaced(text: str, values: Settings) -> str:
    """Return a text with the values of tunables in the place of their names."""
    return re.sub(r"\w+", lambda found: str(values.get(found[0], found[0])), text)


def number_of(given: Stated, values: dict[str, Any]) -> float:
    """Return a number that is stated as such, as a formula of tunables, or by a function of all of them."""
    found: Any = given(values) if callable(given) else given
    if isinstance(found, str):
        found = formula_of(found, values).value(values)
    return float(found)


def whole_number(given: int | str, values: dict[str, Any]) -> int:
    """Return how many work-items a work-group has along an axis; a SpaceError where that is no whole number."""
    number = number_of(given, values)
    if not number.is_integer():
        msg = f"a work-group of {given} = {number:g} work-items; write // to divide, so that it is a whole number"
        raise SpaceError(msg, formula=given)
    return int(number)


def _defined(given: Stated, values: dict[str, Any]) -> Any:
    if callable(given):
        return given(values)
    return replaced(given, values) if isinstance(given, str) else given


@dataclass(frozen=True)
class TunedSource:
    """A kernel's source with tunables; called with settings, it returns the variant's kernel."""

    # The file, or its text, or a function of the settings that returns it.
    source: Path | str | Callable[[dict[str, Any]], str]
    # The kernel's function, with template arguments.
    kernel: str
    launch: Callable[[Settings], Launch]
    # Where neither the file's suffix nor its text says so.
    language: Language | None = None
    # Where headers are looked for, and macros that the compiler's options set.
    folders: Sequence[Path] = ()
    defines: Settings = field(default_factory=dict)
    # By position: what integer arguments are, and the bytes of arrays as texts; None for others.
    arguments: Sequence[int | str | None] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    stated: Mapping[str, Any] = field(default_factory=dict)
    # Whether the grid is stated in numbers, which hold for these sizes alone.
    fixed_sizes: bool = True

    def __call__(self, **settings: Any) -> SourceKernel:
        """Return a variant's kernel."""
        launch = self.launch(settings)
        made = source_kernel(
            self.source(settings) if callable(self.source) else self.source,
            replaced(self.kernel, settings),
            local=launch.local,
            groups=launch.groups,
            # Those of the launch stand in the source, behind the compiler's.
            defines={**self.defines, **launch.defines},
            folders=self.folders,
            stated=self.stated,
            language=self.language,
        )
        shapes = {
            name: str(int(given) // size)
            for (name, _, _, size), given in zip(made.arguments, self.arguments, strict=False)
            if isinstance(given, str) and size
        }
        return replace(made, shapes=shapes | dict(made.shapes)) if shapes else made

    def space(self, tunables: Mapping[str, Sequence[Any]], constraints: Sequence[Given], name: str) -> VariantSpace:
        """Return the space of its variants; sizes are those of the first variant that can be read."""
        space = VariantSpace(self, tunables, constraints, name=name)
        if next(iter(space), None) is None:
            space.enumerated()  # which says what is wrong with the constraints
        space.sizes = self.sizes_in(space)
        return space

    def sizes_in(self, every: Iterable[Settings]) -> dict[str, int]:
        """Return the sizes of the first variant that can be read; where none can, the first one's error is raised."""
        first: PerflexError | None = None
        # A space whose first variants cannot be read is likely one of which none can.
        for settings in itertools.islice(every, _TRIED):
            try:
                kernel = built(self, settings)
                positions = kernel.arguments
            except PerflexError as error:
                first = first or error
                continue
            wanted = set(kernel.sizes)
            found = zip(positions, self.arguments, strict=False)
            numbers = {argument[0]: given for argument, given in found if isinstance(given, int)}
            return {name: value for name, value in {**numbers, **self.sizes}.items() if name in wanted}
        if first is not None:
            raise first
        return {}


_TRIED = 20
