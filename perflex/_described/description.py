"""Descriptions: a family of kernels that loopy never saw, as tunables, constraints and formulas of its features."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex._described.formula import Formula, parse_formula
from perflex._described.platform import PLATFORM_FACTS
from perflex._yaml_file import Section, read_yaml
from perflex.errors import FileFormatError, ModelSyntaxError, PerflexError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Description", "Parameter", "Tunable", "description_names", "load_description"]

SCHEMA = "perflex-description/1"
_SUFFIXES = (".yaml", ".yml")
_HOME = "perflex.models"


@dataclass(frozen=True)
class Tunable:
    """A tunable: its meaning, the values it may have, and what makes it meaningless.

    Attributes
    ----------
    meaning
        What it is.
    values
        Allowed values, ascending.
    dead
        Condition under which it changes nothing: settings that differ only in it are one kernel.
    """

    meaning: str
    values: tuple[float, ...]
    dead: Formula | None = None


@dataclass(frozen=True)
class Parameter:
    """A parameter of the analytic model, positive, with what is known before any measurement.

    Attributes
    ----------
    meaning
        What it is.
    unit
        Its unit.
    prior
        Its value before any measurement.
    spread
        How far it may be from it: standard deviation of its natural logarithm.
    """

    meaning: str
    unit: str
    prior: float
    spread: float


@dataclass(frozen=True)
class Description:
    """A family of kernels as formulas over its tunables.

    Attributes
    ----------
    name, text
        The family's name and what it computes.
    aliases
        Other names of the family, e.g. in collections of measurements.
    tunables, constants
        What is chosen; and numbers of the problem, which a space may state otherwise.
    constraints
        Conditions that every configuration fulfils.
    features
        Formulas by name, in order: each may use tunables, constants, facts of the device (``m_...``) and
        features before it. Those whose name begins with ``f_`` are features; others are parts of them.
    model
        The analytic model's expression for the time, in the unit of the parameter of time.
    parameters
        The model's parameters.
    alternatives
        Settings that some builds of the kernel ignore: each is a reading of the description in which they have the
        given values whatever is chosen. Measurements decide.
    """

    name: str
    text: str
    aliases: tuple[str, ...]
    tunables: Mapping[str, Tunable]
    constants: Mapping[str, float]
    constraints: tuple[Formula, ...]
    features: Mapping[str, Formula]
    model: str
    parameters: Mapping[str, Parameter]
    alternatives: tuple[Mapping[str, float], ...] = ()
    path: Path | None = field(default=None, compare=False)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in the order of the description."""
        return tuple(name for name in self.features if name.startswith("f_"))

    def columns(self, settings: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
        """Return tunables and constants as columns of one length, from columns or single numbers.

        Raises
        ------
        FileFormatError
            A tunable has no value, or one that is no number.
        """
        missing = [name for name in self.tunables if name not in settings]
        if missing:
            msg = f"the settings lack {', '.join(missing)}, which description {self.name!r} needs; add the column"
            raise FileFormatError(msg, description=self.name, field=missing[0])
        found = {**self.constants, **{name: settings[name] for name in (*self.tunables, *self.constants) if name in settings}}
        try:
            arrays = {name: np.atleast_1d(np.asarray(value, dtype=np.float64)) for name, value in found.items()}
            broadcast = np.broadcast_arrays(*arrays.values())
        except (TypeError, ValueError) as error:
            msg = f"the settings of description {self.name!r} are no columns of numbers of one length: {error}"
            raise FileFormatError(msg, description=self.name) from error
        return dict(zip(arrays, (np.ascontiguousarray(column) for column in broadcast), strict=True))

    def kernels(self, settings: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
        """Return the tunables with every meaningless one at its smallest value: equal rows are one kernel."""
        columns = self.columns(settings)
        made = {name: columns[name] for name in self.tunables}
        for name, tunable in self.tunables.items():
            if tunable.dead is not None:
                made[name] = np.where(tunable.dead(columns) != 0, min(tunable.values), columns[name])
        return made

    def valid(self, settings: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Return which configurations fulfil all constraints."""
        columns = self.columns(settings)
        rows = len(next(iter(columns.values())))
        holds = np.ones(rows, dtype=np.bool_)
        for constraint in self.constraints:
            holds &= np.broadcast_to(constraint(columns) != 0, rows)
        return holds

    def space(self) -> dict[str, NDArray[np.float64]]:
        """Return all configurations: every allowed combination of values that fulfils the constraints.

        Raises
        ------
        FileFormatError
            The constraints leave none.
        """
        axes = np.meshgrid(*(np.array(tunable.values) for tunable in self.tunables.values()), indexing="ij")
        every = dict(zip(self.tunables, (axis.ravel() for axis in axes), strict=True))
        holds = self.valid(every)
        if not holds.any():
            msg = f"the constraints of description {self.name!r} contradict each other: no configuration is left"
            raise FileFormatError(msg, description=self.name)
        return {name: column[holds] for name, column in every.items()}

    def compute(
        self, settings: Mapping[str, Any], platform: Mapping[str, float], alternative: int | None = None
    ) -> dict[str, NDArray[np.float64]]:
        """Return every feature of every configuration.

        Parameters
        ----------
        settings
            Columns of the tunables, shape ``(n,)`` each.
        platform
            Facts of the device, see `perflex._described.platform`.
        alternative
            Index of the alternative reading to use; None for the description as it stands.

        Raises
        ------
        FileFormatError
            A feature is not finite for some configuration.
        """
        ignored = self.alternatives[alternative] if alternative is not None else {}
        known: dict[str, Any] = {**platform, **self.columns({**settings, **ignored})}
        rows = len(known[next(iter(self.tunables))])
        for name, formula in self.features.items():
            known[name] = np.broadcast_to(formula(known), rows)
        found = {name: np.array(known[name]) for name in self.feature_names}
        for name, column in found.items():
            bad = ~np.isfinite(column)
            if bad.any():
                first = int(np.argmax(bad))
                where = ", ".join(f"{key}={known[key][first]:g}" for key in self.tunables)
                msg = f"feature {name} of description {self.name!r} is no finite number for {where}; mend its formula"
                raise FileFormatError(msg, description=self.name, field=name)
        return found


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
    conditions = [_formula(top, "constraints", text) for text in (top.texts("constraints") if "constraints" in top else ())]
    for formula in (*conditions, *(t.dead for t in tunables.values() if t.dead is not None)):
        _check_names(top, "constraints", formula, known - set(PLATFORM_FACTS))
    section = top.section("features")
    features: dict[str, Formula] = {}
    for name in section:
        features[name] = _formula(section, name, section.text(name) if not _is_number(section, name) else str(section.number(name)))
        _check_names(section, name, features[name], known)
        if name in known:
            raise section.error("the name stands for something else already; choose another", name)
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
    if not values or not all(isinstance(value, int | float) for value in values) or len(set(values)) != len(values):
        raise entry.error("a list of different numbers must stand here", "values")
    dead = _formula(entry, "dead_when", entry.text("dead_when")) if "dead_when" in entry else None
    tunable = Tunable(entry.text("meaning"), tuple(sorted(float(value) for value in values)), dead)
    entry.finish()
    return tunable


def _alternative(section: Section, tunables: Mapping[str, Tunable]) -> dict[str, float]:
    section.text("meaning")
    settings = section.section("settings")
    found = {name: settings.number(name) for name in settings}
    unknown = [name for name in found if name not in tunables]
    if unknown:
        raise settings.error("it is no tunable of this description", unknown[0])
    section.finish()
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
            msg = f"the name {name!r} is not known here; did you mean {near[0]!r}?" if near else f"{name!r} is not known"
            raise section.error(msg, key)


def _parameters(top: Section) -> dict[str, Parameter]:
    section = top.section("parameters")
    found = {}
    for name in section:
        entry = section.section(name)
        found[name] = Parameter(entry.text("meaning"), entry.text("unit"), entry.number("prior"), entry.number("spread"))
        if found[name].prior <= 0 or found[name].spread <= 0:
            raise entry.error("prior and spread must be positive", "prior")
        entry.finish()
    return found


def _check_model(top: Section, made: Description) -> None:
    from perflex._expression import names
    from perflex._expression_parse import parse_expression

    try:
        used = names(parse_expression(made.model))
    except PerflexError as error:
        raise top.error(str(error), "model") from error
    known = {*made.feature_names, *made.parameters}
    unknown: Sequence[str] = [name for name in used if name not in known]
    if unknown:
        raise top.error(f"{unknown[0]} is neither a feature nor a parameter of this file; declare it", "model")
    unused = [name for name in made.parameters if name not in used]
    if unused:
        raise top.error(f"the model does not use {unused[0]}; remove it", "parameters")
