"""Values that were counted once: in memory while the kernel lives, and as records for the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.polynomials.record import polynomial_from_record, polynomial_record
from perflex.isl import ISL_LOCK

if TYPE_CHECKING:
    from collections.abc import Callable

_Value = TypeVar("_Value")


class CountMemory:
    """Counted values by name; each is computed when first asked for, unless it was kept.

    Parameters
    ----------
    load
        Returns the records that were kept, by name; called once, when the first value is asked for.
    """

    def __init__(self, load: Callable[[], dict[str, Any]]) -> None:
        self._load = load
        self._values: dict[str, Any] = {}
        self._kept: dict[str, Any] | None = None
        self._fresh: list[str] = []
        self._polynomials: dict[str, QuasiPolynomial] = {}

    def get(self, name: str, compute: Callable[[], _Value]) -> _Value:
        """Return the value of that name: a quasi-polynomial, text, number, truth value, None, or tuples of those."""
        # Reading a dict is atomic in CPython: values that are there do not wait for isl.
        try:
            return self._values[name]  # type: ignore[no-any-return]
        except KeyError:
            pass
        # isl counts operations and stops at a limit per process, not per thread.
        with ISL_LOCK:
            if name not in self._values:
                self._values[name] = self._find(name, compute)
            return self._values[name]  # type: ignore[no-any-return]

    def _find(self, name: str, compute: Callable[[], _Value]) -> Any:
        if self._kept is None:
            self._kept = self._load()
        if name in self._kept:
            return self._from_record(self._kept[name])
        value = compute()
        self._fresh.append(name)
        return value

    def _from_record(self, record: Any) -> Any:
        if isinstance(record, dict):
            return self._polynomial(record["polynomial"])
        if isinstance(record, list):
            return tuple([self._from_record(item) for item in record])
        return record

    def _polynomial(self, record: list[Any]) -> QuasiPolynomial:
        # The text says nothing of deferred parts: polynomials that have some are not shared by it.
        text, _, _, deferred = record
        if deferred:
            return polynomial_from_record(record)
        # Most are strides of 0 and 1.
        if text not in self._polynomials:
            self._polynomials[text] = polynomial_from_record(record)
        return self._polynomials[text]

    @property
    def has_fresh(self) -> bool:
        """Whether something was computed since `take_fresh`."""
        return bool(self._fresh)

    def take_fresh(self) -> dict[str, Any]:
        """Return the records of what was computed since the last call."""
        with ISL_LOCK:
            names, self._fresh = self._fresh, []
            return {name: _record(self._values[name]) for name in names}


def _record(value: Any) -> Any:
    if isinstance(value, QuasiPolynomial):
        return {"polynomial": polynomial_record(value)}
    if isinstance(value, tuple):
        return [_record(item) for item in value]
    return value
