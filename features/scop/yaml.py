"""Scops as YAML, for kernels described by hand."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import yaml
from msgspec import Meta

from perflex.errors import UnsupportedKernelError
from perflex.features.polynomials.cardinality import TooManyOperationsError, limited
from perflex.features.polynomials.late_values import align_parameters, parameter_space
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.numbering import by_number
from perflex.features.scop.scop import Access, Array, Barrier, Launch, Operation, Recurrence, Scop, Statement
from perflex.features.scop.whole_sizes import read_fraction
from perflex.features.scop.words import unknown_operation
from perflex.file_io import read_text
from perflex.isl import isl
from perflex.yaml_file import Fields, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable
    from fractions import Fraction

    from perflex.yaml_file import Section

SCHEMA = "perflex-scop/1"

# isl reads brackets by recursion, and powers by multiplying: a short text can end the process, or take for ever.
_MAX_LENGTH = 500_000
_MAX_DEPTH = 100
_MAX_OPERATIONS = 200_000

# Of work-items and bytes: what devices can have.
_Extent = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Count = Annotated[int, Meta(ge=0, le=2**53)]
_Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]
# YAML reads a constant expression such as 16 as a number.
_Expression = str | Annotated[int, Meta(ge=-(2**53), le=2**53)]
_Where = tuple[str | int, ...]


# The schema. What may be left out may also be there without a value: YAML reads "barriers:" as null.
class _Launch(Fields, frozen=True):
    groups: tuple[_Expression, ...]
    items: tuple[_Extent, ...]
    repeats: _Expression = 1
    host_loops: tuple[str, ...] | None = ()
    unrolled: tuple[str, ...] | None = ()


class _Array(Fields, frozen=True):
    name: str
    space: str
    dtype: str
    shape: tuple[_Expression, ...]
    strides: tuple[_Expression, ...]
    alignment: _Extent = 128


class _Access(Fields, frozen=True):
    array: str
    direction: Literal["load", "store"]
    relation: str
    tag: str | None = None
    text: str | None = None
    strides: tuple[_Expression, ...] | None = None
    distinct: bool = True
    stated: str | None = None


class _Operation(Fields, frozen=True):
    kind: str
    dtype: str
    count: _Count = 1


class _Recurrence(Fields, frozen=True):
    variable: str
    operations: tuple[_Operation, ...] | None = ()


class _Barrier(Fields, frozen=True, kw_only=True):
    kind: Literal["local", "global"]
    domain: str
    launch: _Index = 0
    schedule: tuple[_Index | str, ...] | None = ()
    averages: dict[str, str | int | float] | None = None
    stated: str | None = None


class _Statement(Fields, frozen=True, kw_only=True):
    name: str
    domain: str
    accesses: tuple[_Access, ...] | None = ()
    operations: tuple[_Operation, ...] | None = ()
    launch: _Index = 0
    schedule: tuple[_Index | str, ...] | None = ()
    guarded: bool = False
    recurrence: _Recurrence | None = None
    assigns: str | None = None
    averages: dict[str, str | int | float] | None = None
    stated: str | None = None


class _ScopFile(Fields, frozen=True, kw_only=True):
    name: str
    parameters: tuple[str, ...]
    assumptions: str | None = None
    launches: tuple[_Launch, ...]
    arrays: tuple[_Array, ...]
    statements: tuple[_Statement, ...]
    barriers: tuple[_Barrier, ...] | None = ()
    numbered: bool = False


class ScopReader:
    """Makes the fields of a `Scop` of a file's content."""

    def __init__(self, top: Section) -> None:
        self._top = top
        self._file = top.read(_ScopFile)
        self._parameters = self._file.parameters
        for place, name in enumerate(self._parameters):
            if not _NAME.fullmatch(name) or self._parameters.index(name) != place:
                msg = "names of sizes must stand here, each once"
                raise top.error(msg, "parameters", place)
        try:
            parameter_space(self._parameters)
        except isl.Error as error:
            msg = f"isl does not take these names: {_cause(error)}"
            raise top.error(msg, "parameters") from None

    def values(self) -> dict[str, Any]:
        """Return the fields of the Scop."""
        file = self._file
        header = f"[{', '.join(self._parameters)}] -> " if self._parameters else ""
        assumptions = f"{header}{{ : }}" if file.assumptions is None else file.assumptions
        return {
            "name": file.name,
            "parameters": self._parameters,
            "assumptions": self._aligned(isl.Set, assumptions, "assumptions").params(),
            "launches": tuple(self._launch(entry, "launches", n) for n, entry in enumerate(file.launches)),
            "arrays": tuple(self._array(entry, "arrays", n) for n, entry in enumerate(file.arrays)),
            "statements": tuple(self._statement(entry, "statements", n) for n, entry in enumerate(file.statements)),
            "barriers": tuple(self._barrier(entry, "barriers", n) for n, entry in enumerate(file.barriers or ())),
            "numbered": file.numbered,
        }

    def _isl(self, kind: Any, text: str, *where: str | int) -> Any:
        """Return an isl object whose parameters are sizes."""
        if len(text) > _MAX_LENGTH or _depth(text) > _MAX_DEPTH:
            cause = f"it is longer than {_MAX_LENGTH} characters, or nested more than {_MAX_DEPTH} deep"
            raise self._top.error(cause, *where)
        if _LONG_NUMBER.search(text):
            msg = "a number has more than 15 digits"
            raise self._top.error(msg, *where)
        try:
            with limited(_MAX_OPERATIONS):
                found = kind(text)
        except (isl.Error, TooManyOperationsError) as error:
            # At its limit, isl mostly takes the text for wrong, too.
            cause = f"it is not isl notation, or takes isl too long: {_shortened(text)!r} ({_cause(error)})"
            raise self._top.error(cause, *where) from None
        names = found.get_var_names(isl.dim_type.param)
        unknown = [name for name in names if name not in self._parameters]
        if unknown:
            msg = f"{unknown[0]!r} is none of the parameters; add it to them"
            raise self._top.error(msg, *where)
        return found

    def _aligned(self, kind: Any, text: str, *where: str | int) -> Any:
        return align_parameters(self._isl(kind, text, *where), self._parameters)

    def _polynomial(self, value: str | int, *where: str | int) -> QuasiPolynomial:
        text = str(value)
        # Plain numbers and expressions are written without isl's frame.
        if "{" not in text:
            text = f"[{', '.join(self._parameters)}] -> {{ {text} }}"
        found = self._isl(isl.PwQPolynomial, text, *where)
        if found.dim(isl.dim_type.in_):
            msg = "an expression in the parameters must stand here, not in other variables"
            raise self._top.error(msg, *where)
        return QuasiPolynomial(found)

    def _polynomials(self, values: Iterable[str | int], *where: str | int) -> tuple[QuasiPolynomial, ...]:
        return tuple(self._polynomial(value, *where, place) for place, value in enumerate(values))

    def _launch(self, entry: _Launch, *where: str | int) -> Launch:
        return Launch(
            groups=self._polynomials(entry.groups, *where, "groups"),
            items=entry.items,
            repeats=self._polynomial(entry.repeats, *where, "repeats"),
            host_loops=entry.host_loops or (),
            unrolled=entry.unrolled or (),
        )

    def _array(self, entry: _Array, *where: str | int) -> Array:
        self._check_dtype(entry.dtype, *where)
        if len(entry.strides) != len(entry.shape):
            msg = f"{len(entry.shape)} strides must stand here, one per axis"
            raise self._top.error(msg, *where, "strides")
        return Array(
            name=entry.name,
            space=entry.space,
            dtype=entry.dtype,
            shape=self._polynomials(entry.shape, *where, "shape"),
            strides=self._polynomials(entry.strides, *where, "strides"),
            alignment=entry.alignment,
        )

    def _check_dtype(self, name: str, *where: str | int) -> None:
        try:
            known = bool(_DTYPE.fullmatch(name)) and np.dtype(name).kind in "biufc"
        except TypeError:
            known = False
        if not known:
            msg = f"a numpy type such as float32 must stand here, not {name!r}"
            raise self._top.error(msg, *where, "dtype")

    def _statement(self, entry: _Statement, *where: str | int) -> Statement:
        accesses = enumerate(entry.accesses or ())
        recurrence = entry.recurrence
        return Statement(
            name=entry.name,
            domain=self._aligned(isl.Set, entry.domain, *where, "domain"),
            accesses=tuple(self._access(access, *where, "accesses", n) for n, access in accesses),
            operations=self._operations(entry.operations, *where, "operations"),
            launch=entry.launch,
            schedule=entry.schedule or (),
            guarded=entry.guarded,
            recurrence=None
            if recurrence is None
            else Recurrence(
                recurrence.variable, self._operations(recurrence.operations, *where, "recurrence", "operations")
            ),
            assigns=entry.assigns or "",
            averages=self._averages(entry, *where),
            stated=entry.stated or "",
        )

    def _averages(self, entry: _Statement | _Barrier, *where: str | int) -> tuple[tuple[str, Fraction], ...]:
        found = []
        for loop, given in (entry.averages or {}).items():
            average = read_fraction(str(given))
            if average is None:
                cause = f"a positive number such as 5/6 must stand here, not {given!r}"
                raise self._top.error(cause, *where, "averages", loop)
            found.append((loop, average))
        return tuple(found)

    def _operations(self, entries: tuple[_Operation, ...] | None, *where: str | int) -> tuple[Operation, ...]:
        for place, entry in enumerate(entries or ()):
            self._check_dtype(entry.dtype, *where, place)
            if cause := unknown_operation(entry.kind):
                raise self._top.error(cause, *where, place, "kind")
        return tuple(Operation(entry.kind, entry.dtype, entry.count) for entry in entries or ())

    def _access(self, entry: _Access, *where: str | int) -> Access:
        return Access(
            array=entry.array,
            direction=entry.direction,
            relation=self._aligned(isl.Map, entry.relation, *where, "relation"),
            tag=entry.tag,
            text=entry.text or entry.array,
            strides=None if entry.strides is None else self._polynomials(entry.strides, *where, "strides"),
            distinct=entry.distinct,
            stated=entry.stated or "",
        )

    def _barrier(self, entry: _Barrier, *where: str | int) -> Barrier:
        return Barrier(
            entry.kind,
            self._aligned(isl.Set, entry.domain, *where, "domain"),
            entry.launch,
            entry.schedule or (),
            self._averages(entry, *where),
            entry.stated or "",
        )


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONG_NUMBER = re.compile(r"\d{16}")
_DTYPE = re.compile(r"[a-z]+\d{0,3}")


def _depth(text: str) -> int:
    """Return how deep brackets are nested."""
    depth = most = 0
    for character in text:
        if character in "([{":
            depth += 1
            most = max(most, depth)
        elif character in ")]}":
            depth -= 1
    return most


def _cause(error: Exception) -> str:
    return str(error).partition("\n")[0] or "too many operations"


def _shortened(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def scop_to_yaml(scop: Scop) -> str:
    """Return the Scop as YAML text; `scop_from_yaml` restores an equal Scop."""
    # Wide: PyYAML folds at 80 columns, in the middle of isl's sets.
    document = scop_document(scop)
    # Where a condition leaves out the first iterations, the loop would be taken to begin later.
    if by_number(scop) != (scop.statements, scop.barriers):
        document["numbered"] = True
    return yaml.safe_dump(document, sort_keys=False, width=1_000_000)


def scop_document(scop: Scop) -> dict[str, Any]:
    """Return the Scop as nested dicts and lists of texts and numbers, its fields in their order."""
    document = {"schema": SCHEMA, **_document(scop)}
    del document["numbered"]  # it always is
    return document


def _document(value: Any) -> Any:
    if isinstance(value, QuasiPolynomial):
        return value.text
    if is_dataclass(value) and not isinstance(value, type):
        document = {field.name: _document(getattr(value, field.name)) for field in fields(value)}
        if isinstance(value, (Statement, Barrier)):
            # Neither YAML nor JSON has fractions: 5/6 goes as text.
            document["averages"] = {loop: str(average) for loop, average in value.averages}
        return document
    if isinstance(value, tuple):
        return [_document(item) for item in value]
    return value if value is None or isinstance(value, (str, int)) else str(value)


def scop_from_yaml(text: str) -> Scop:
    """Read a Scop; extents and strides may be plain numbers or expressions in the parameters.

    Parameters
    ----------
    text
        YAML with ``schema: perflex-scop/1``. Domains and relations are isl strings; extents, strides and
        repeats are numbers, isl strings, or expressions such as ``"16*n"`` or ``"floor(n/16)"``.

    Raises
    ------
    FileFormatError
        The text is no such document; the field is named with its line.
    UnsupportedKernelError
        The description contradicts itself.
    """
    return _scop(text, "the Scop description")


def read_scop(path: Path | str) -> Scop:
    """Read a Scop from a YAML file, as `scop_from_yaml`; messages name the file."""
    return _scop(read_text(path), Path(path))


def _scop(text: str, place: Path | str) -> Scop:
    values = ScopReader(parse_yaml(text, SCHEMA, place)).values()
    try:
        return Scop(**values)
    except UnsupportedKernelError as error:
        if isinstance(place, Path):
            error.message = f"{place}: {error.message}"
        raise
