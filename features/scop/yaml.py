"""Scops as YAML, for kernels described by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import yaml

from perflex.errors import FileFormatError, UnsupportedKernelError
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.scop import Access, Array, Barrier, Launch, Operation, Recurrence, Scop, Statement
from perflex.isl import isl

SCHEMA = "perflex-scop/1"


def scop_to_yaml(scop: Scop) -> str:
    """Return the Scop as YAML text; `scop_from_yaml` restores an equal Scop."""
    return yaml.safe_dump(scop_document(scop), sort_keys=False, width=1_000_000)


def scop_document(scop: Scop) -> dict[str, Any]:
    """Return the Scop as nested dicts and lists of texts and numbers."""
    return {
        "schema": SCHEMA,
        "name": scop.name,
        "parameters": list(scop.parameters),
        "assumptions": str(scop.assumptions),
        "launches": [
            {
                "groups": [extent.text for extent in launch.groups],
                "items": list(launch.items),
                "repeats": launch.repeats.text,
                "host_loops": list(launch.host_loops),
            }
            for launch in scop.launches
        ],
        "arrays": [
            {
                "name": array.name,
                "space": array.space,
                "dtype": array.dtype,
                "shape": [extent.text for extent in array.shape],
                "strides": [stride.text for stride in array.strides],
                "alignment": array.alignment,
            }
            for array in scop.arrays
        ],
        "statements": [_statement_document(statement) for statement in scop.statements],
        "barriers": [
            {
                "kind": barrier.kind,
                "domain": str(barrier.domain),
                "launch": barrier.launch,
                "schedule": list(barrier.schedule),
                "averages": _average_documents(barrier.averages),
                "stated": barrier.stated,
            }
            for barrier in scop.barriers
        ],
    }


def _statement_document(statement: Statement) -> dict[str, Any]:
    return {
        "name": statement.name,
        "domain": str(statement.domain),
        "accesses": [
            {
                "array": access.array,
                "direction": access.direction,
                "relation": str(access.relation),
                "tag": access.tag,
                "text": access.text,
                "strides": None if access.strides is None else [stride.text for stride in access.strides],
                "distinct": access.distinct,
                "stated": access.stated,
            }
            for access in statement.accesses
        ],
        "operations": _operation_documents(statement.operations),
        "launch": statement.launch,
        "schedule": list(statement.schedule),
        "guarded": statement.guarded,
        "recurrence": None
        if statement.recurrence is None
        else {
            "variable": statement.recurrence.variable,
            "operations": _operation_documents(statement.recurrence.operations),
        },
        "assigns": statement.assigns,
        "averages": _average_documents(statement.averages),
        "stated": statement.stated,
    }


def _average_documents(averages: tuple[tuple[str, Fraction], ...]) -> dict[str, str]:
    return {loop: str(average) for loop, average in averages}


def _operation_documents(operations: tuple[Operation, ...]) -> list[dict[str, Any]]:
    return [{"kind": op.kind, "dtype": op.dtype, "count": op.count} for op in operations]


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
        return self._isl(isl.Set, text, where).align_params(self._space())

    def _space(self) -> Any:
        return isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[], params=list(self.parameters))

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
            relation=relation.align_params(self._space()),
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
