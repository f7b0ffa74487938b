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
from typing import TYPE_CHECKING

from perflex.errors import FileFormatError, ModelSyntaxError, PerflexError
from perflex.search.described.description import Description, Parameter, Tunable
from perflex.search.described.platform import PLATFORM_FACTS
from perflex.search.formula import Formula, parse_formula
from perflex.yaml_file import Section, read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["description_names", "load_description"]

SCHEMA = "perflex-description/1"
_SUFFIXES = (".yaml", ".yml")
_HOME = "perflex.models"
_LARGEST = 1e300


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


def _read(path: Path) -> Description:
    top = read_yaml(path, SCHEMA)
    tunables = {name: _tunable(top.section("tunables"), name) for name in top.section("tunables")}
    found = top.section("constants") if "constants" in top else None
    constants = {name: found.number(name) for name in found} if found is not None else {}
    known = {*tunables, *constants, *PLATFORM_FACTS}
    twice = [*(set(tunables) & set(constants)), *((set(tunables) | set(constants)) & set(PLATFORM_FACTS))]
    if twice:
        msg = f"{twice[0]} stands for two things: a tunable, a constant or a fact of the device; rename it"
        raise top.error(msg, "tunables" if twice[0] in tunables else "constants")
    conditions = [
        _formula(top, "constraints", text) for text in (top.texts("constraints") if "constraints" in top else ())
    ]
    for formula in (*conditions, *(t.dead for t in tunables.values() if t.dead is not None)):
        _check_names(top, "constraints", formula, known - set(PLATFORM_FACTS))
    section = top.section("features")
    features: dict[str, Formula] = {}
    for name in section:
        features[name] = _formula(
            section, name, section.text(name) if not _is_number(section, name) else str(section.number(name))
        )
        _check_names(section, name, features[name], known)
        if name in known:
            msg = "the name stands for something else already; choose another"
            raise section.error(msg, name)
        known.add(name)
    made = Description(
        name=top.text("name"),
        text=top.text("description"),
        aliases=top.texts("aliases") if "aliases" in top else (),
        tunables=tunables,
        constants=constants,
        constraints=tuple(conditions),
        features=features,
        model=top.text("model"),
        parameters=_parameters(top),
        alternatives=tuple(_alternative(entry, tunables) for entry in top.sections("alternatives"))
        if "alternatives" in top
        else (),
        switches=_switches(top, tunables, features),
        path=path,
    )
    _check_model(top, made)
    top.finish()
    return made


def _is_number(section: Section, name: str) -> bool:
    return isinstance(section.entries[name], int | float)


def _tunable(section: Section, name: str) -> Tunable:
    entry = section.section(name)
    values = entry.items("values")
    numbers = [value for value in values if isinstance(value, int | float) and abs(value) < _LARGEST]
    if not values or len(numbers) < len(values) or len(set(numbers)) != len(values):
        msg = "a list of different finite numbers must stand here"
        raise entry.error(msg, "values")
    dead = _formula(entry, "dead_when", entry.text("dead_when")) if "dead_when" in entry else None
    tunable = Tunable(entry.text("meaning"), tuple(sorted(float(value) for value in numbers)), dead)
    entry.finish()
    return tunable


def _alternative(section: Section, tunables: Mapping[str, Tunable]) -> dict[str, float]:
    section.text("meaning")
    settings = section.section("settings")
    found = {name: settings.number(name) for name in settings}
    unknown = [name for name in found if name not in tunables]
    if unknown:
        msg = "it is no tunable of this description"
        raise settings.error(msg, unknown[0])
    section.finish()
    return found


def _switches(top: Section, tunables: Mapping[str, Tunable], features: Mapping[str, Formula]) -> tuple[str, ...]:
    found = top.texts("switches") if "switches" in top else ()
    known = {*tunables, *(name for name in features if name.startswith("f_"))}
    unknown = [name for name in found if name not in known]
    if unknown:
        msg = f"{unknown[0]!r} is neither a tunable nor a feature of this description"
        raise top.error(msg, "switches")
    return found


def _formula(section: Section, key: str, text: str) -> Formula:
    try:
        return parse_formula(text)
    except ModelSyntaxError as error:
        raise section.error(str(error), key) from error


def _check_names(section: Section, key: str, formula: Formula, known: set[str]) -> None:
    for name in formula.names:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)
            msg = (
                f"the name {name!r} is not known here; did you mean {near[0]!r}?" if near else f"{name!r} is not known"
            )
            raise section.error(msg, key)


def _parameters(top: Section) -> dict[str, Parameter]:
    section = top.section("parameters")
    found = {}
    for name in section:
        entry = section.section(name)
        found[name] = Parameter(
            entry.text("meaning"), entry.text("unit"), entry.number("prior"), entry.number("spread")
        )
        if found[name].prior <= 0 or found[name].spread <= 0:
            msg = "prior and spread must be positive"
            raise entry.error(msg, "prior")
        entry.finish()
        if not name.startswith("p_"):
            msg = "the name of a parameter begins with p_; rename it"
            raise section.error(msg, name)
    if not found:
        msg = "a model needs at least one parameter, that of time"
        raise top.error(msg, "parameters")
    return found


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
    unused = [name for name in made.parameters if name not in used]
    if unused:
        msg = f"the model does not use {unused[0]}; remove it"
        raise top.error(msg, "parameters")
