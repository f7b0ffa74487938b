"""Ready models as YAML: expression, meaning and unit of each parameter, measurement-kernel tags.

A model file::

    schema: perflex-model/1
    name: madd_only
    description: Time of the multiply-adds alone.
    output: f_cl_wall_time
    expression: p_madd * f_op_float32_madd
    parameters:
      p_madd: {meaning: cost of a multiply-add, unit: s per sub-group operation}
    measurement_kernels:
      - tags: [flops_madd_pattern, "dtype:float32"]
        match: intersect

A set may say how its sizes grow with a device's speed: ``scale: {n: {power: 2, step: 112}}`` makes them odd multiples
of 112 such that their squares grow with it. With ``only_up: true`` they do not shrink for slow devices: arrays that
have to be larger than caches stay so. With ``most: 16`` they grow no further than suits a device 16 times as fast as
the reference: main memories are not as much faster as arithmetic is, and subscripts have 32 bits.

``fit: {residual: logarithmic, on_undetermined: warn}`` says how the model is fitted where nobody says otherwise, as for
`perflex.fit_model`: a general model has costs that some devices do not have, such as that of a memory behind caches
which hold everything; it then takes them for zero with a warning. The defaults are ``relative`` and ``error``.

``general: true`` says that the model is for any kernel: it has so many measurement kernels that processes count them
side by side. ``timing: {trials: 12, budget_s: 0.15, precision: 0.03}`` says how they are timed where nobody says
otherwise, as `perflex.TimingOptions`; any of the three may be left out. ``fixed_sizes: true`` keeps the sizes as they
stand, whatever the device's speed, such as those made for the sizes of caches; no set may then say how they grow.

``like: NAME`` takes the measurement kernels of another model, with its ``timing`` and ``fixed_sizes`` where the file
does not state its own, and its descriptions of parameters that are not given.

The output may be ``f_cl_wall_time`` alone; the device is added when the model is calibrated.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from dataclasses import dataclass, field
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from perflex.errors import FileFormatError, PerflexError, TagError
from perflex.expression.model import Model
from perflex.yaml_file import Fields, Positive, read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from perflex.yaml_file import Section
    from uipick import MatchCondition, MeasurementKernel

# Lengths of arrays are multiples of it, so that work-groups of usual sizes divide them.
_BLOCK = 32768
# Digits of the largest size: beyond any memory, and their products still fit in doubles.
_DIGITS = 15
_Count = Annotated[int, Meta(ge=1, le=10**_DIGITS)]


class SizeRule(Fields, frozen=True):
    """How a size argument is made to suit a device."""

    # Work grows with this power of the size, and sizes are odd multiples of the step.
    power: Annotated[int, Meta(ge=1, le=10)]
    step: _Count
    # Sizes do not shrink for slow devices.
    only_up: bool = False
    # Sizes grow no further than suits a device so many times as fast: fast devices' main memories are not as much
    # faster as their arithmetic, and arrays would outgrow 32-bit subscripts.
    most: Positive = inf
    # The smallest multiple of the step.
    least: _Count = 1

    def sizes(self, sizes: Iterable[int], scale: float) -> tuple[int, ...]:
        """Return odd multiples of the step, increasing, for a device that is `scale` times as fast as `sizes` suit."""
        scale = min(max(scale, 1.0) if self.only_up else scale, self.most)
        # Work grows with size**power, so the size grows with that root of the speed; 2 * half + 1 is odd.
        halves = [round((size * scale ** (1 / self.power) / self.step - 1) / 2) for size in sorted(sizes)]
        # Two steps at a time keep the multiples odd.
        return _increasing([self.step * max(self.least, 2 * half + 1) for half in halves], 2 * self.step)


# Multiples of large powers of two are avoided, for there the columns of a matrix fall into few cache sets of a CPU, and
# a load costs several times as much: nothing a cost per access can see.
MATRIX_SIZES = SizeRule(power=3, step=32, least=3)


def _element_counts(counts: Iterable[int], scale: float) -> tuple[int, ...]:
    return _increasing([max(1, round(count * scale / _BLOCK)) * _BLOCK for count in sorted(counts)], _BLOCK)


def _increasing(values: Iterable[int], step: int) -> tuple[int, ...]:
    """Return values, each raised by steps until it is above the one before: sizes that round alike stay apart."""
    found: list[int] = []
    for value in values:
        while found and value <= found[-1]:
            value += step  # noqa: PLW2901 - raised in place
        found.append(value)
    return tuple(found)


# How sizes are scaled where the model's file does not say: extents of matrices that are multiplied, lengths of arrays.
_RULES: Mapping[str, Callable[[Iterable[int], float], tuple[int, ...]]] = {
    "n": MATRIX_SIZES.sizes,
    "nelements": _element_counts,
}


def split_sizes(tags: Iterable[str], rules: Mapping[str, SizeRule]) -> tuple[list[str], dict[str, tuple[int, ...]]]:
    """Take the sizes that follow a device's speed out of filter tags: return the other tags, and sizes by argument."""
    others: list[str] = []
    sizes: dict[str, tuple[int, ...]] = {}
    for tag in tags:
        argument, _, text = (part.strip() for part in tag.partition(":"))
        values = [value.strip() for value in text.split(",")]
        numbers = [int(value) for value in values if value.isdecimal() and len(value) <= _DIGITS]
        # What is not plainly a list of numbers stays a tag, for the generators say best what they allow.
        plain = len(set(numbers)) == len(values) and argument not in sizes
        if plain and (argument in rules or argument in _RULES):
            sizes[argument] = tuple(numbers)
        else:
            others.append(tag)
    return others, sizes


def scaled_sizes(
    sizes: Mapping[str, tuple[int, ...]], scale: float, rules: Mapping[str, SizeRule]
) -> dict[str, tuple[int, ...]]:
    """Return sizes by argument for a device that is `scale` times as fast as they suit."""
    # At the reference speed the sizes of the model's file stand as they are, odd multiples or not.
    if scale == 1.0:
        return dict(sizes)
    own = {argument: rule.sizes for argument, rule in rules.items()}
    return {argument: {**_RULES, **own}[argument](values, scale) for argument, values in sizes.items()}


def measurement_kernels(description: ModelDescription, scale: float = 1.0) -> list[MeasurementKernel]:
    """Generate the measurement kernels of a model description, sized for a device."""
    from uipick import ALL_GENERATORS, KernelCollection

    kernels: dict[str, MeasurementKernel] = {}
    for number, kernel_set in enumerate(description.measurement_kernels, start=1):
        if not kernel_set.tags:
            msg = f"set {number} of the measurement kernels has no tags; name the generator at least"
            raise TagError(msg)
        condition = _condition(kernel_set.match)
        tags, sizes = split_sizes(kernel_set.tags, kernel_set.scale)
        suited = scaled_sizes(sizes, scale, kernel_set.scale)
        # By name: a kernel that several sets ask for is measured once.
        made = KernelCollection(ALL_GENERATORS, condition).generate_kernels(tags, suited)
        kernels |= {kernel.name: kernel for kernel in made}
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


class ParameterDescription(Fields, frozen=True):
    """What a parameter of a ready model means, and its unit."""

    meaning: str
    unit: str


class KernelSet(Fields, frozen=True):
    """Filter tags that select measurement kernels, and the match condition (None for the collection's own)."""

    tags: tuple[str, ...]
    match: str | None = None
    # How sizes are made to suit a device, by argument.
    # msgspec gives every instance an empty dict of its own.
    scale: Mapping[str, SizeRule] = {}


class FitSettings(Fields, frozen=True):
    """How a ready model is fitted where nothing else is said; as for `FitOptions`."""

    residual: Literal["relative", "logarithmic"] = "relative"
    on_undetermined: Literal["error", "warn"] = "error"


class TimingSettings(Fields, frozen=True):
    """How a ready model's kernels are timed where nothing else is said; None for what the file does not say."""

    trials: Annotated[int, Meta(ge=1)] | None = None
    budget_s: Positive | None = None
    precision: Annotated[float, Meta(ge=0, lt=1)] | None = None


class _ModelFile(Fields, frozen=True, kw_only=True):
    name: str
    description: str
    output: str
    expression: str
    like: str | None = None
    parameters: dict[str, ParameterDescription] | None = None
    measurement_kernels: tuple[KernelSet, ...] | None = None
    fit: FitSettings = FitSettings()
    general: bool = False
    fixed_sizes: bool | None = None
    timing: TimingSettings | None = None


@dataclass(frozen=True)
class ModelDescription:
    """A ready model.

    Attributes
    ----------
    name, description
        What it is called and what it is for.
    output
        Output feature; ``f_cl_wall_time`` alone is completed by the device.
    expression
        The model string.
    parameters
        Meaning and unit of each parameter.
    measurement_kernels
        The sets of measurement kernels to calibrate it with.
    fit
        How it is fitted where nothing else is said.
    general
        Whether it is for any kernel.
    fixed_sizes
        Whether its measurement kernels keep their sizes on devices of any speed.
    timing
        How its measurement kernels are timed where nothing else is said.
    """

    name: str
    description: str
    output: str
    expression: str
    parameters: Mapping[str, ParameterDescription]
    measurement_kernels: tuple[KernelSet, ...]
    fit: FitSettings = field(default_factory=FitSettings)
    general: bool = False
    fixed_sizes: bool = False
    timing: TimingSettings = field(default_factory=TimingSettings)

    def model(self, output: str | None = None) -> Model:
        """Return the model, with another output feature if one is given."""
        return Model(self.output if output is None else output, self.expression)


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
    path = Path(path_or_name)
    if path.suffix not in _SUFFIXES:
        name = str(path_or_name)
        if name not in model_names():
            names = model_names() if name == GENERAL else [GENERAL, *model_names()]
            nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
            hint = f"did you mean {nearest[0]!r}? " if nearest else ""
            msg = f"no model is called {name!r}; {hint}(known: {', '.join(model_names())}; files end in .yaml)"
            raise FileFormatError(msg, path=path)
        path = Path(str(files(__name__) / f"{name}{_SUFFIXES[0]}"))
    return _read(read_yaml(path, _FORMAT))


def _read(top: Section) -> ModelDescription:
    file = top.read(_ModelFile)
    try:
        model = Model(file.output, file.expression)
    except PerflexError as error:
        raise top.error(error.message, "expression") from error
    like = load_model(file.like) if file.like is not None else None
    for name in ("parameters", "measurement_kernels") if like is None else ():
        if getattr(file, name) is None:
            msg = "it is missing; the file is incomplete"
            raise top.error(msg, name)
    given = file.parameters or {}
    known = {**(like.parameters if like is not None else {}), **given}
    if not (given.keys() <= set(model.params()) <= known.keys()):
        msg = f"the parameters must be those of the expression: {', '.join(model.params())}"
        raise top.error(msg, "parameters")
    kernels = (*(like.measurement_kernels if like is not None else ()), *(file.measurement_kernels or ()))
    fixed = (like is not None and like.fixed_sizes) if file.fixed_sizes is None else file.fixed_sizes
    if fixed and any(kernel_set.scale for kernel_set in kernels):
        msg = "sizes that are fixed do not grow with a device's speed; leave out fixed_sizes, or scale of each set"
        raise top.error(msg, "fixed_sizes")
    return ModelDescription(
        file.name,
        file.description,
        file.output,
        file.expression,
        {name: known[name] for name in model.params()},
        kernels,
        file.fit,
        file.general,
        fixed,
        file.timing or (TimingSettings() if like is None else like.timing),
    )
