"""Reading descriptions: those that come with perflex, and a user's own files.

A description file::

    schema: perflex-description/1
    name: copy
    description: what the kernel does
    tunables:
      items: {meaning: work-items of a work-group, values: [32, 64, 128]}
      unroll: {meaning: elements of a work-item, values: [1, 2, 4], dead_when: items == 32}
    constants: {size: 1048576}
    constraints: [items*unroll <= 256]
    features:
      groups: ceil_div(size, items*unroll)
      f_moves: groups*items*unroll
      f_sub_groups: groups*ceil_div(items, m_lanes)
    switches: [unroll]
    model: p_time*(f_moves + p_group*f_sub_groups)
    parameters: {
      p_time: {meaning: time of a move, unit: ms, prior: 1.0e-9, spread: 2},
      p_group: {meaning: a sub-group beside a move, unit: move, prior: 10, spread: 1} }

A formula may use tunables, constants, the features before it, and facts of the device (``m_...``, see
`perflex.search.described.platform`). The first parameter scales the time; ``spread`` is the standard deviation of a
parameter's natural logarithm. ``dead_when`` says when a tunable changes nothing; ``alternatives`` lists settings that
some builds of the kernel ignore; ``switches`` names tunables and features that make different code, of each
combination of which the tuner measures something. What a space file states for a constant replaces the value here.
"""

from __future__ import annotations

import difflib
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from perflex.errors import FileFormatError, ModelSyntaxError, PerflexError
from perflex.search.described.description import Description, Parameter, Tunable
from perflex.search.described.platform import PLATFORM_FACTS
from perflex.search.formula import Formula, parse_formula
from perflex.yaml_file import Fields, Finite, Positive, read_yaml

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.yaml_file import Section

SCHEMA = "perflex-description/1"
_SUFFIXES = (".yaml", ".yml")
_HOME = "perflex.models"


def description_names() -> tuple[str, ...]:
    """Return the names of the descriptions that come with perflex, sorted."""
    folder = files(_HOME) / "descriptions"
    return tuple(sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".yaml")))


@lru_cache(maxsize=16)
def _shipped(name: str) -> Description:
    with as_file(files(_HOME) / "descriptions" / f"{name}.yaml") as path:
        return _read(path)


def load_description(place: str | Path) -> Description:
    """Return a description.

    Parameters
    ----------
    place
        The name of a shipped description or one of its aliases, or a YAML file (a path, or a name that ends in
        ``.yaml``).

    Raises
    ------
    FileFormatError
        There is none of that name, or the file cannot be read; the field is named.
    """
    given: object = place
    if not isinstance(given, (str, Path)):
        msg = f"a description is given by its name or its file, not by {place!r}"
        raise FileFormatError(msg)
    if isinstance(place, Path) or place.endswith(_SUFFIXES):
        return _read(Path(place))
    for name in description_names():
        if place.casefold() in {alias.casefold() for alias in (name, *_shipped(name).aliases)}:
            return _shipped(name)
    near = difflib.get_close_matches(place, description_names(), n=1, cutoff=0.0)
    msg = f"there is no description {place!r}; did you mean {near[0]!r}? Known: {', '.join(description_names())}"
    raise FileFormatError(msg, description=place)


class _Tunable(Fields, frozen=True):
    meaning: str
    # Far from where products of a few values overflow.
    values: tuple[Annotated[float, msgspec.Meta(gt=-1e300, lt=1e300)], ...]
    dead_when: str | None = None


class _Parameter(Fields, frozen=True):
    meaning: str
    unit: str
    # The fit works with the logarithm of a parameter.
    prior: Positive
    spread: Positive


class _Alternative(Fields, frozen=True):
    meaning: str
    settings: dict[str, Finite]


class _DescriptionFile(Fields, frozen=True, kw_only=True):
    name: str
    description: str
    aliases: tuple[str, ...] = ()
    tunables: dict[str, _Tunable]
    constants: dict[str, Finite] = msgspec.field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    # YAML reads a constant formula such as 4 as a number.
    features: dict[str, str | Finite]
    switches: tuple[str, ...] = ()
    model: str
    parameters: dict[str, _Parameter]
    alternatives: tuple[_Alternative, ...] = ()


def _read(path: Path) -> Description:
    top = read_yaml(path, SCHEMA)
    file = top.read(_DescriptionFile)
    tunables = {name: _tunable(top, name, entry) for name, entry in file.tunables.items()}
    chosen, constants = set(tunables), set(file.constants)
    twice = [*(chosen & constants), *((chosen | constants) & set(PLATFORM_FACTS))]
    if twice:
        msg = f"{twice[0]} is defined twice, as a tunable, a constant or a fact of the device; rename it"
        raise top.error(msg, "tunables" if twice[0] in tunables else "constants")
    conditions = [_formula(top, text, "constraints", place) for place, text in enumerate(file.constraints)]
    for place, formula in enumerate(conditions):
        _check_names(top, formula, chosen | constants, "constraints", place)
    for name, tunable in tunables.items():
        if tunable.dead is not None:
            _check_names(top, tunable.dead, chosen | constants, "tunables", name, "dead_when")
    made = Description(
        name=file.name,
        text=file.description,
        aliases=file.aliases,
        tunables=tunables,
        constants=file.constants,
        constraints=tuple(conditions),
        features=_features(top, file, {*tunables, *constants, *PLATFORM_FACTS}),
        model=file.model,
        parameters=_parameters(top, file),
        alternatives=tuple(entry.settings for entry in file.alternatives),
        switches=file.switches,
        path=path,
    )
    _check_tunables_named(top, file, made)
    _check_model(top, made)
    return made


def _tunable(top: Section, name: str, entry: _Tunable) -> Tunable:
    if not entry.values or len(set(entry.values)) != len(entry.values):
        msg = "a list of different finite numbers must stand here"
        raise top.error(msg, "tunables", name, "values")
    dead = entry.dead_when if entry.dead_when is None else _formula(top, entry.dead_when, "tunables", name, "dead_when")
    return Tunable(entry.meaning, tuple(sorted(entry.values)), dead)


def _features(top: Section, file: _DescriptionFile, known: set[str]) -> dict[str, Formula]:
    features: dict[str, Formula] = {}
    for name, text in file.features.items():
        features[name] = _formula(top, str(text), "features", name)
        _check_names(top, features[name], known, "features", name)
        if name in known:
            msg = "the name is already in use; choose another"
            raise top.error(msg, "features", name)
        # Features may use those before them.
        known.add(name)
    return features


def _parameters(top: Section, file: _DescriptionFile) -> dict[str, Parameter]:
    if not file.parameters:
        msg = "a model needs at least one parameter, that of time"
        raise top.error(msg, "parameters")
    for name in file.parameters:
        if not name.startswith("p_"):
            msg = "the name of a parameter begins with p_; rename it"
            raise top.error(msg, "parameters", name)
    return {name: Parameter(*msgspec.structs.astuple(entry)) for name, entry in file.parameters.items()}


def _check_tunables_named(top: Section, file: _DescriptionFile, made: Description) -> None:
    for place, entry in enumerate(file.alternatives):
        for name in entry.settings:
            if name not in made.tunables:
                msg = "it is no tunable of this description"
                raise top.error(msg, "alternatives", place, "settings", name)
    for place, name in enumerate(file.switches):
        if name not in {*made.tunables, *made.feature_names}:
            msg = f"{name!r} is neither a tunable nor a feature of this description"
            raise top.error(msg, "switches", place)


def _formula(top: Section, text: str, *where: str | int) -> Formula:
    try:
        return parse_formula(text)
    except ModelSyntaxError as error:
        raise top.error(str(error), *where) from error


def _check_names(top: Section, formula: Formula, known: set[str], *where: str | int) -> None:
    for name in formula.names:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            msg = f"the name {name!r} is not known here{hint}"
            raise top.error(msg, *where)


def _check_model(top: Section, made: Description) -> None:
    from perflex.expression.parser import parse_expression
    from perflex.expression.tree import names

    try:
        used = names(parse_expression(made.model))
    except PerflexError as error:
        raise top.error(str(error), "model") from error
    known = {*made.feature_names, *made.parameters}
    unknown: Sequence[str] = [name for name in used if name not in known]
    if unknown:
        msg = f"{unknown[0]} is neither a feature nor a parameter of this file; declare it"
        raise top.error(msg, "model")
    # Nothing but its prior would determine it: the fit would return that as if it were a result.
    unused = [name for name in made.parameters if name not in used]
    if unused:
        msg = f"the model does not use {unused[0]}; remove it"
        raise top.error(msg, "parameters")
