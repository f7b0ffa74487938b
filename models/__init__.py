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

``like: NAME`` takes the measurement kernels of another model, and its descriptions of parameters that are not given.

The output may be ``f_cl_wall_time`` alone; the device is added when the model is calibrated.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from perflex.errors import FileFormatError, PerflexError
from perflex.expression.model import Model
from perflex.models.sizes import SizeRule
from perflex.yaml_file import Section, read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KernelSet", "ModelDescription", "ParameterDescription", "load_model", "model_names"]

_FORMAT = "perflex-model/1"
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class ParameterDescription:
    """What a parameter of a ready model means, and its unit."""

    meaning: str
    unit: str


@dataclass(frozen=True)
class KernelSet:
    """Filter tags that select measurement kernels, and the match condition (None for the collection's own)."""

    tags: tuple[str, ...]
    match: str | None = None
    # How sizes are made to suit a device, by argument.
    scale: Mapping[str, SizeRule] = field(default_factory=dict)


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
    """

    name: str
    description: str
    output: str
    expression: str
    parameters: Mapping[str, ParameterDescription]
    measurement_kernels: tuple[KernelSet, ...]

    def model(self, output: str | None = None) -> Model:
        """Return the model, with another output feature if one is given.

        Raises
        ------
        ModelSyntaxError
            The output is not a feature identifier.
        """
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
            nearest = difflib.get_close_matches(name, model_names(), n=1, cutoff=0.0)
            hint = f"did you mean {nearest[0]!r}? " if nearest else ""
            msg = f"no model is called {name!r}; {hint}(known: {', '.join(model_names())}; files end in .yaml)"
            raise FileFormatError(msg, path=path)
        path = Path(str(files(__name__) / f"{name}{_SUFFIXES[0]}"))
    return _read(read_yaml(path, _FORMAT))


def _read(top: Section) -> ModelDescription:
    output, expression = top.text("output"), top.text("expression")
    try:
        model = Model(output, expression)
    except PerflexError as error:
        raise top.error(error.message, "expression") from error
    like = load_model(top.text("like")) if "like" in top else None
    known = {} if like is None else dict(like.parameters)
    own = top.section("parameters") if like is None or "parameters" in top else None
    given = set() if own is None else set(own)
    needed = set(model.params())
    if not (given <= needed <= given | known.keys()):
        msg = f"the parameters must be those of the expression: {', '.join(model.params())}"
        raise top.error(msg, "parameters")
    parameters = {}
    for name in model.params():
        if own is None or name not in given:
            parameters[name] = known[name]
            continue
        entry = own.section(name)
        parameters[name] = ParameterDescription(entry.text("meaning"), entry.text("unit"))
        entry.finish()
    kernel_sets = [] if like is None else list(like.measurement_kernels)
    for entry in top.sections("measurement_kernels") if like is None or "measurement_kernels" in top else ():
        match = entry.text("match") if "match" in entry else None
        scale = _scale_rules(entry.section("scale")) if "scale" in entry else {}
        kernel_sets.append(KernelSet(entry.texts("tags"), match, scale))
        entry.finish()
    description = ModelDescription(
        top.text("name"), top.text("description"), output, expression, parameters, tuple(kernel_sets)
    )
    top.finish()
    return description


def _scale_rules(section: Section) -> dict[str, SizeRule]:
    rules = {}
    for argument in section:
        rule = section.section(argument)
        only_up = rule.flag("only_up") if "only_up" in rule else False
        most = rule.number("most") if "most" in rule else inf
        rules[argument] = SizeRule(rule.integer("power"), rule.integer("step"), only_up, most)
        rule.finish()
    section.finish()
    return rules
