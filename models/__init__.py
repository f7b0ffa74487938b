"""Ready models as YAML files: expression, meaning and unit of each parameter, tags of measurement kernels.

Their fields are those of `ModelDescription`; `docs/reference/files.md` explains them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from perflex.errors import FileFormatError, PerflexError, TagError
from perflex.expression.model import Model
from perflex.yaml_file import Fields, Finite, Positive, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perflex.yaml_file import Section
    from uipick import MatchCondition, MeasurementKernel

__all__ = [
    "GENERAL",
    "KernelSet",
    "ModelDescription",
    "ParameterDescription",
    "TimingSettings",
    "load_model",
    "model_names",
]

# Not a model of its own: ``general_cpu`` or ``general_gpu``, as the device is.
GENERAL = "general"
_FORMAT = "perflex-model/1"
_SUFFIXES = (".yaml", ".yml")
# Digits of the largest size: beyond any memory, and their products still fit in doubles.
_DIGITS = 15
_Count = Annotated[int, Meta(ge=1, le=10**_DIGITS)]


class SizeRule(Fields, frozen=True):
    """How a size argument is made to suit a device."""

    # Work grows with this power of the size.
    power: Annotated[int, Meta(ge=1, le=10)]
    # Sizes are odd multiples of it, or any, and no smaller ones than `least`.
    step: _Count
    only_up: bool = False
    most: Positive = inf
    least: _Count = 1
    odd: bool = True

    def sizes(self, sizes: Iterable[int], scale: float) -> tuple[int, ...]:
        """Return multiples of the step, increasing, for a device that is `scale` times as fast as `sizes` suit."""
        scale = min(max(scale, 1.0) if self.only_up else scale, self.most)
        found: list[int] = []
        for size in sorted(sizes):
            # Work grows with size**power, so the size grows with that root of the speed.
            multiple = size * scale ** (1 / self.power) / self.step
            multiple = 2 * round((multiple - 1) / 2) + 1 if self.odd else round(multiple)
            made = self.step * max(self.least, multiple)
            # Sizes that round alike stay apart.
            while found and made <= found[-1]:
                made += self.step * (2 if self.odd else 1)
            found.append(made)
        return tuple(found)


class ParameterDescription(Fields, frozen=True):
    """What a parameter of a ready model means, its unit, and its value where nothing is calibrated."""

    meaning: str
    unit: str
    usual: Finite | None = None
    # Standard deviation of the logarithm of its values about the usual one, over devices.
    spread: Positive = 0.2


class KernelSet(Fields, frozen=True):
    """Filter tags that select measurement kernels, and the match condition (None for the collection's own)."""

    tags: tuple[str, ...]
    match: str | None = None
    # How sizes are made to suit a device, by argument.
    # msgspec gives every instance an empty dict of its own.
    scale: Mapping[str, SizeRule] = {}

    def sized(self, scale: float) -> tuple[list[str], dict[str, tuple[int, ...]]]:
        """Return the tags for a device of a speed: those without sizes that follow it, and these by argument."""
        others: list[str] = []
        sizes: dict[str, tuple[int, ...]] = {}
        for tag in self.tags:
            argument, _, text = (part.strip() for part in tag.partition(":"))
            values = [value.strip() for value in text.split(",")]
            numbers = {int(value) for value in values if value.isdecimal() and len(value) <= _DIGITS}
            # At the reference speed sizes stand as they are. What is not plainly a list of numbers stays a tag, for the
            # generators say best what they allow.
            if scale != 1.0 and argument in self.scale and argument not in sizes and len(numbers) == len(values):
                sizes[argument] = self.scale[argument].sizes(numbers, scale)
            else:
                others.append(tag)
        return others, sizes


class FitSettings(Fields, frozen=True):
    """How a ready model is fitted where nothing else is said; as for `FitOptions`."""

    residual: Literal["relative", "logarithmic"] = "relative"
    on_undetermined: Literal["error", "warn"] = "error"


class TimingSettings(Fields, frozen=True):
    """How a ready model's kernels are timed where nothing else is said; None for what the file does not say."""

    trials: Annotated[int, Meta(ge=1)] | None = None
    budget_s: Positive | None = None
    precision: Annotated[float, Meta(ge=0, lt=1)] | None = None


class ModelDescription(Fields, frozen=True):
    """A ready model: the fields of its file, with what is like in another model filled in."""

    name: str
    description: str
    # ``f_cl_wall_time`` alone is completed by the device.
    output: str
    expression: str
    parameters: Mapping[str, ParameterDescription] = {}
    measurement_kernels: tuple[KernelSet, ...] = ()
    fit: FitSettings = FitSettings()
    general: bool = False
    fixed_sizes: bool = False
    timing: TimingSettings = TimingSettings()
    like: str | None = None

    @property
    def usual(self) -> Mapping[str, float]:
        """Values of all parameters, for predictions without a calibration; empty where one has none."""
        values = {name: one.usual for name, one in self.parameters.items() if one.usual is not None}
        return values if len(values) == len(self.parameters) else {}

    def model(self, output: str | None = None) -> Model:
        """Return the model, with another output feature if one is given."""
        return Model(self.output if output is None else output, self.expression)


def measurement_kernels(description: ModelDescription, scale: float = 1.0) -> list[MeasurementKernel]:
    """Generate the measurement kernels of a model description, sized for a device."""
    from uipick import ALL_GENERATORS, KernelCollection

    kernels: dict[str, MeasurementKernel] = {}
    for number, kernel_set in enumerate(description.measurement_kernels, start=1):
        if not kernel_set.tags:
            msg = f"set {number} of the measurement kernels has no tags; name the generator at least"
            raise TagError(msg)
        collection = KernelCollection(ALL_GENERATORS, _condition(kernel_set.match))
        # By name: a kernel that several sets ask for is measured once.
        kernels |= {kernel.name: kernel for kernel in collection.generate_kernels(*kernel_set.sized(scale))}
    return list(kernels.values())


def _condition(word: str | None) -> MatchCondition:
    from uipick import MatchCondition

    if word is None:
        return MatchCondition.SUPERSET
    try:
        return MatchCondition[word.upper()]
    except KeyError:
        known = ", ".join(condition.name.lower() for condition in MatchCondition)
        msg = f"no match condition is called {word!r}; there are {known}"
        raise TagError(msg, tag=word) from None


def model_names() -> list[str]:
    """Return the names of the models that come with perflex, sorted."""
    shipped = files(__name__).iterdir()
    return sorted(Path(entry.name).stem for entry in shipped if entry.name.endswith(_SUFFIXES[0]))


def load_model(path_or_name: Path | str) -> ModelDescription:
    """Read a model from a YAML file, or one that comes with perflex by its name.

    Parameters
    ----------
    path_or_name
        A path that ends in ``.yaml`` or ``.yml``, or one of `model_names`.

    Raises
    ------
    FileFormatError
        There is no such file or model, or a field is missing, unknown or wrong; it is named with its line.
    """
    return _load(path_or_name, ())


def _load(path_or_name: Path | str, above: tuple[Path, ...]) -> ModelDescription:
    """Return the model of a file or name; it is what the models of the files above are like."""
    path = above[-1].parent / path_or_name if above else Path(path_or_name)
    if path.suffix not in _SUFFIXES:
        name, known = str(path_or_name), model_names()
        if name not in known:
            nearest = difflib.get_close_matches(name, known if name == GENERAL else [GENERAL, *known], n=1, cutoff=0.0)
            hint = f"did you mean {nearest[0]!r}? " if nearest else ""
            msg = f"no model is called {name!r}; {hint}(known: {', '.join(known)}; files end in .yaml)"
            raise FileFormatError(msg, path=path)
        path = Path(str(files(__name__) / f"{name}{_SUFFIXES[0]}"))
    return _read(read_yaml(path, _FORMAT), (*above, path.resolve()))


def _read(top: Section, places: tuple[Path, ...]) -> ModelDescription:
    """Return the model of a file, the last of the places."""
    found = top.read(ModelDescription)
    try:
        params = found.model().params()
    except PerflexError as error:
        raise top.error(error.message, "expression") from error
    for number, kernel_set in enumerate(found.measurement_kernels):
        if lacking := kernel_set.scale.keys() - {tag.partition(":")[0].strip() for tag in kernel_set.tags}:
            msg = f"no tag of the set gives sizes of {min(lacking)}; add one such as {min(lacking)}:64"
            raise top.error(msg, "measurement_kernels", number, "scale")
    described, own = {**found.parameters}, found.parameters.keys()
    if found.like is not None:
        if places[-1] in places[:-1]:
            msg = f"the model is like itself: {' is like '.join(place.name for place in places)}; leave it out"
            raise top.error(msg, "like")
        like = _load(found.like, places)
        described = {**like.parameters, **described}
        inherited = {name: getattr(like, name) for name in ("fixed_sizes", "timing") if name not in top.entries}
        kernels = like.measurement_kernels + found.measurement_kernels
        found = replace(found, measurement_kernels=kernels, **inherited)
    for name in ("parameters", "measurement_kernels") if found.like is None else ():
        if name not in top.entries:
            msg = "it is missing; the file is incomplete"
            raise top.error(msg, name)
    if not own <= set(params) <= described.keys():
        msg = f"the parameters must be those of the expression: {', '.join(params)}"
        raise top.error(msg, "parameters")
    if found.fixed_sizes and any(kernel_set.scale for kernel_set in found.measurement_kernels):
        msg = "sizes that are fixed do not grow with a device's speed; leave out fixed_sizes, or scale of each set"
        raise top.error(msg, "fixed_sizes")
    return replace(found, parameters={name: described[name] for name in params})
