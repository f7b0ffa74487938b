"""Scops as YAML, for kernels described by hand."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

import yaml

from perflex.errors import FileFormatError, UnsupportedKernelError
from perflex.features.polynomials.isl_text import align_parameters
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.scop import Access, Array, Barrier, Launch, Operation, Recurrence, Scop, Statement
from perflex.isl import isl

SCHEMA = "perflex-scop/1"


def scop_to_yaml(scop: Scop) -> str:
    """Return the Scop as YAML text; `scop_from_yaml` restores an equal Scop."""
    # Wide: PyYAML folds at 80 columns, in the middle of isl's sets.
    return yaml.safe_dump(scop_document(scop), sort_keys=False, width=1_000_000)


def scop_document(scop: Scop) -> dict[str, Any]:
    """Return the Scop as nested dicts and lists of texts and numbers, its fields in their order."""
    return {"schema": SCHEMA, **_document(scop)}


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
        The text is no such document; the field is named.
    UnsupportedKernelError
        The description contradicts itself.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        msg = f"not a Scop description: {' '.join(str(error).split())}"
        raise FileFormatError(msg) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        msg = f"not a Scop description: expected 'schema: {SCHEMA}', found {found!r}"
        raise FileFormatError(msg)
    return _Reader(document).scop()


class _Reader:
    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.parameters = tuple(str(name) for name in self._list(document, "parameters", "the description"))

    def scop(self) -> Scop:
        document = self.document
        header = f"[{', '.join(self.parameters)}] -> " if self.parameters else ""
        return Scop(
            name=str(self._field(document, "name", "the description")),
            parameters=self.parameters,
            assumptions=self._set(document.get("assumptions", f"{header}{{ : }}"), "assumptions").params(),
            launches=tuple(self._launch(item) for item in self._list(document, "launches", "the description")),
            arrays=tuple(self._array(item) for item in self._list(document, "arrays", "the description")),
            statements=tuple(self._statement(item) for item in self._list(document, "statements", "the description")),
            barriers=tuple(self._barrier(item) for item in document.get("barriers") or ()),
        )

    @staticmethod
    def _field(mapping: Any, name: str, where: str) -> Any:
        if not isinstance(mapping, dict) or name not in mapping:
            msg = f"Scop description: {where} has no field {name!r}"
            raise FileFormatError(msg)
        return mapping[name]

    def _list(self, mapping: Any, name: str, where: str) -> list[Any]:
        value = self._field(mapping, name, where)
        if not isinstance(value, list):
            msg = f"Scop description: field {name!r} of {where} must be a list, not {type(value).__name__}"
            raise FileFormatError(msg)
        return value

    def _isl(self, kind: Any, text: object, where: str) -> Any:
        try:
            return kind(str(text))
        except isl.Error as error:
            reason = str(error).splitlines()[0]
            msg = f"Scop description: {where} is not isl notation: {text!r} ({reason})"
            raise FileFormatError(msg) from None

    def _set(self, text: object, where: str) -> Any:
        return align_parameters(self._isl(isl.Set, text, where), self.parameters)

    def _polynomial(self, value: object, where: str) -> QuasiPolynomial:
        text = str(value)
        # Plain numbers and expressions are written without isl's frame.
        if "{" not in text:
            text = f"[{', '.join(self.parameters)}] -> {{ {text} }}"
        return QuasiPolynomial(self._isl(isl.PwQPolynomial, text, where))

    def _launch(self, item: Any) -> Launch:
        return Launch(
            groups=tuple(
                self._polynomial(extent, "a group extent") for extent in self._list(item, "groups", "a launch")
            ),
            items=tuple(int(extent) for extent in self._list(item, "items", "a launch")),
            repeats=self._polynomial(item.get("repeats", 1), "the repeats of a launch"),
            host_loops=tuple(str(name) for name in item.get("host_loops", ())),
        )

    def _array(self, item: Any) -> Array:
        name = str(self._field(item, "name", "an array"))
        where = f"array {name!r}"
        return Array(
            name=name,
            space=str(self._field(item, "space", where)),
            dtype=str(self._field(item, "dtype", where)),
            shape=tuple(
                self._polynomial(extent, f"the shape of {where}") for extent in self._list(item, "shape", where)
            ),
            strides=tuple(
                self._polynomial(stride, f"a stride of {where}") for stride in self._list(item, "strides", where)
            ),
            alignment=int(item.get("alignment", 128)),
        )

    def _statement(self, item: Any) -> Statement:
        name = str(self._field(item, "name", "a statement"))
        where = f"statement {name!r}"
        return Statement(
            name=name,
            domain=self._set(self._field(item, "domain", where), f"the domain of {where}"),
            accesses=tuple(self._access(access, where) for access in item.get("accesses") or ()),
            operations=self._operations(item, where),
            launch=int(item.get("launch", 0)),
            schedule=tuple(item.get("schedule") or ()),
            guarded=bool(item.get("guarded", False)),
            recurrence=self._recurrence(item.get("recurrence"), where),
            assigns=str(item.get("assigns") or ""),
            averages=self._averages(item, where),
            stated=str(item.get("stated") or ""),
        )

    @staticmethod
    def _averages(item: Any, where: str) -> tuple[tuple[str, Fraction], ...]:
        averages = item.get("averages") or {}
        try:
            # By way of the text: 0.1 in YAML is a tenth, not the binary number next to it.
            return tuple((str(loop), Fraction(str(average))) for loop, average in averages.items())
        except (AttributeError, ValueError):
            msg = f"Scop description: averages of {where} must map loops to numbers, e.g. {{j: 5/6}}, not {averages!r}"
            raise FileFormatError(msg) from None

    def _operations(self, item: Any, where: str) -> tuple[Operation, ...]:
        owner = f"an operation of {where}"
        return tuple(
            Operation(
                str(self._field(op, "kind", owner)), str(self._field(op, "dtype", owner)), int(op.get("count", 1))
            )
            for op in item.get("operations") or ()
        )

    def _recurrence(self, item: Any, where: str) -> Recurrence | None:
        if item is None:
            return None
        owner = f"the recurrence of {where}"
        return Recurrence(str(self._field(item, "variable", owner)), self._operations(item, owner))

    def _access(self, item: Any, where: str) -> Access:
        array = str(self._field(item, "array", f"an access of {where}"))
        direction = str(self._field(item, "direction", f"the access to {array!r} in {where}"))
        if direction not in {"load", "store"}:
            msg = f"the access to {array!r} in {where} has direction {direction!r}; use load or store"
            raise UnsupportedKernelError(msg, access=array)
        relation = self._isl(isl.Map, self._field(item, "relation", where), f"the relation of {array!r} in {where}")
        tag, strides = item.get("tag"), item.get("strides")
        return Access(
            array=array,
            direction=direction,
            relation=align_parameters(relation, self.parameters),
            tag=None if tag is None else str(tag),
            text=str(item.get("text") or array),
            strides=None
            if strides is None
            else tuple(self._polynomial(stride, f"a stride of {array!r} in {where}") for stride in strides),
            distinct=bool(item.get("distinct", True)),
            stated=str(item.get("stated") or ""),
        )

    def _barrier(self, item: Any) -> Barrier:
        domain = self._set(self._field(item, "domain", "a barrier"), "the domain of a barrier")
        kind = str(self._field(item, "kind", "a barrier"))
        return Barrier(
            kind,
            domain,
            int(item.get("launch", 0)),
            tuple(item.get("schedule") or ()),
            self._averages(item, "a barrier"),
            str(item.get("stated") or ""),
        )
