"""Numbers of points: symbolic where that takes few operations, else evaluated at given sizes.

barvinok counts most domains of kernels in a millisecond, and some in minutes. So a set is first taken apart into
factors whose dimensions have nothing to do with each other. Factors of few constraints are counted here, others in a
worker process with a limit on isl's operations; those that take more, or whose constraints may meet in too many
corners, are kept as sets, and their points are counted once the sizes are known. Operations and corners are the same
on each machine, however fast and loaded it is: time decides no number, but whether there is a formula where that takes
seconds, and ends what would go on for ever with an error.
"""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from math import comb
from threading import Lock
from typing import Any

from perflex.child_process import ChildLostError, RemoteProcess
from perflex.errors import UnsupportedKernelError
from perflex.features.polynomials.card_worker import count
from perflex.isl import ISL_LOCK, isl

# Processor time after which a count at given sizes ends in an error. The operations allowed take a few seconds of it.
_NET_S = 60.0
# That after which no formula is sought any more: what takes longer has hundreds of cases.
_SYMBOLIC_S = 3.0
# A loaded machine gives a process less than all of a core; the first answer includes the start of Python.
_LONGEST_WAIT_S = 20 * _NET_S


class CardProcess:
    """A worker process, started when first needed, and again after it has ended."""

    def __init__(self) -> None:
        self._forget()
        atexit.register(self.close)
        # A fork must not share pipes with its parent.
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = Lock()
        self._worker: RemoteProcess | None = None

    def card(self, points: str, assumptions: str, operations: int, seconds: float | None = None) -> str | None:
        """Return the number of points of a set as isl's text of a piecewise quasi-polynomial.

        None if that takes more operations, or the processor time given, or is more than barvinok can do.
        """
        with self._lock:
            try:
                asked = (seconds or _NET_S, operations, points, assumptions)
                answer = self._running().call(count, *asked, limit_s=_LONGEST_WAIT_S)
                if answer is None and seconds:
                    return None
                reason = f"it took {_NET_S:g} s of processor time"
            except (ChildLostError, OSError) as error:  # the next set gets a new worker
                answer, reason = None, f"the process that counts was lost: {error}"
        if answer is None:
            msg = f"the points of {points} were not counted, {reason}; fix some sizes, e.g. with lp.fix_parameters"
            raise UnsupportedKernelError(msg, domain=points)
        return answer or None

    def _running(self) -> RemoteProcess:
        if self._worker is None or not self._worker.alive:
            if self._worker is not None:
                self._worker.end()
            self._worker = RemoteProcess()
        return self._worker

    def close(self) -> None:
        """End the worker, if there is one."""
        with self._lock:
            if self._worker is not None:
                self._worker.end()
            self._worker = None


card_process = CardProcess()


# isl's operations in a count, symbolic or at given sizes: mostly three to ten in a microsecond.
_SYMBOLIC_OPERATIONS = 200_000
_FIXED_OPERATIONS = 12_000_000
# isl's operations on sets: some tenths of a second on a current core.
SYMBOLIC_LIMIT = 50_000
# barvinok's search for the ranges of sizes that have one formula each does no operations of isl. In so many dimensions
# that depend on each other, it may run for hours where so many corners are possible.
_FEW_DIMENSIONS = 4
_MOST_CORNERS = 6_500
# Sets of so few pieces, with so few constraints on dimensions that depend on each other, are counted in milliseconds.
_FEW_PIECES = 2
_FEW_CONSTRAINTS = 6
# Some hundredths of a second; sums of simple counts need a hundredth of that.
SUM_LIMIT = 5_000
# With more existential variables than this that are no floors, barvinok may run without end.
_EXISTENTIAL = 1
_QUANTIFIER = re.compile(r"exists \(([^:]*):")


class TooManyOperationsError(Exception):
    """The limit on isl's operations was reached; never leaves this package."""


@contextmanager
def limited(operations: int) -> Iterator[None]:
    """Let isl do so many operations in the block."""
    context = isl.DEFAULT_CONTEXT
    with ISL_LOCK:
        # isl holds the limit against all operations since the last reset.
        context.reset_operations()
        context.set_max_operations(operations)
        try:
            yield
        except isl.Error as error:
            if is_exhausted(error):
                raise TooManyOperationsError from None
            raise
        finally:
            # The limit is the context's, which all share; 0 is none.
            context.set_max_operations(0)
            context.reset_operations()


def is_exhausted(error: Exception) -> bool:
    """Return whether an error of isl says that its limit is reached, while the limit holds."""
    try:
        isl.Val.zero(isl.DEFAULT_CONTEXT)
    except isl.Error as again:
        # Where it ends isl's parser, that calls it a syntax error.
        error = again
    # islpy has one class for all errors of isl: only the text tells this one.
    return "maximal number of operations" in str(error)


def spend(operations: int) -> None:
    """Let isl do so many operations less in the block of `limited`, for what is done without it."""
    context = isl.DEFAULT_CONTEXT
    if (most := context.get_max_operations()) > 0:
        context.set_max_operations(max(most - operations, 1))


def at_once(domain: Any, assumptions: Any) -> Any:
    """Return what `card` returns; None where a few sizes are better counted one by one."""
    with ISL_LOCK:
        factors = _factors(domain.intersect_params(assumptions))
        sizes = isl.dim_type.param
        if any(not quick and factor.involves_dims(sizes, 0, factor.dim(sizes)) for factor, quick in factors):
            return None
        return _card(domain, assumptions, factors)


def card(domain: Any, assumptions: Any) -> Any:
    """Return the number of points of a set under assumptions, an ``isl.PwQPolynomial`` in the parameters."""
    with ISL_LOCK:
        return _card(domain, assumptions, _factors(domain.intersect_params(assumptions)))


def _card(domain: Any, assumptions: Any, factors: list[tuple[Any, bool]]) -> Any:
    counted: Any = None
    # barvinok itself multiplies what independent dimensions give, so that only the slow ones are worth parting.
    for factor, quick in factors:
        if _existential_variables(factor) > _EXISTENTIAL or (not quick and _corners(factor) > _MOST_CORNERS):
            raise TooManyOperationsError
        points = _card_of_factor(factor, assumptions, quick, _SYMBOLIC_OPERATIONS, _SYMBOLIC_S)
        counted = points if counted is None else counted.mul(points)
    _check_finite(counted, domain)
    return counted.coalesce().gist_params(assumptions)


def _factors(domain: Any) -> list[tuple[Any, bool]]:
    """Return sets whose product a set is, as far as its constraints tell, and whether each is quickly counted."""
    pieces = domain.get_basic_sets()
    parts = [_connected(piece) for piece in pieces]
    few = all(len(met) <= _FEW_CONSTRAINTS for groups in parts for _, met in groups)
    if few or len(pieces) != 1 or len(parts[0]) < 2:
        return [(domain, few and len(pieces) <= _FEW_PIECES and not _existential_variables(domain))]
    quick: set[int] = set().union(*(group for group, met in parts[0] if len(met) <= _FEW_CONSTRAINTS))
    found = [(_only(pieces[0], group), False) for group, met in parts[0] if len(met) > _FEW_CONSTRAINTS]
    rest = [_only(pieces[0], quick)] if quick else []
    return [*found, *((each, not _existential_variables(each)) for each in rest)]


def _corners(factor: Any) -> int:
    """Return a bound for the corners of a set's parts, over dimensions and sizes, times the sizes they depend on."""
    total, sizes = 0, range(factor.dim(isl.dim_type.param))
    for piece in factor.remove_redundancies().get_basic_sets():
        for group, met in _connected(piece):
            if len(group) > _FEW_DIMENSIONS:
                unequal = sum(not constraint.is_equality() for constraint in met)
                used = sum(any(one.involves_dims(isl.dim_type.param, size, 1) for one in met) for size in sizes)
                total += used * comb(unequal + used, len(group) + used)
    return total


def _connected(piece: Any) -> list[tuple[set[int], list[Any]]]:
    """Return groups of set dimensions that share no constraint, directly or by way of others or of local variables.

    Beside each group stand the constraints on it.
    """
    kinds = isl.dim_type
    dims, local = piece.dim(kinds.set), piece.dim(kinds.div)
    involved: list[tuple[frozenset[int], Any]] = []
    for constraint in piece.get_constraints():
        together = {position for position in range(dims) if constraint.involves_dims(kinds.set, position, 1)}
        together |= {dims + position for position in range(local) if constraint.involves_dims(kinds.div, position, 1)}
        if together:  # others are on parameters only
            involved.append((frozenset(together), constraint))
    alone = (frozenset({position}) for position in range(dims + local))
    groups = connected([*alone, *(together for together, _ in involved)])
    return [
        ({p for p in group if p < dims}, [constraint for together, constraint in involved if together & group])
        for group in groups
        if min(group) < dims
    ]


def _only(piece: Any, group: set[int]) -> Any:
    """Return a set's projection on some dimensions."""
    kept = sorted(group)
    # From the last dimension on, and neighbours at once: projecting out renumbers what is behind.
    for before, after in reversed([*pairwise([-1, *kept, piece.dim(isl.dim_type.set)])]):
        if after > before + 1:
            piece = piece.project_out(isl.dim_type.set, before + 1, after - before - 1)
    return isl.Set.from_basic_set(piece)


def _card_of_factor(factor: Any, assumptions: Any, quick: bool, operations: int, seconds: float | None = None) -> Any:
    if quick:
        return factor.card()
    text = card_process.card(str(factor), str(assumptions), operations, seconds)
    if text is None:
        raise TooManyOperationsError
    return isl.PwQPolynomial(text)


def _check_finite(counted: Any, domain: Any) -> None:
    if any(polynomial.is_infty() or polynomial.is_nan() for _, polynomial in counted.get_pieces()):
        msg = f"a loop of the kernel has no end: {domain}; give every loop a lower and an upper bound"
        raise UnsupportedKernelError(msg, domain=str(domain))


def _existential_variables(domain: Any) -> int:
    """Return the most existential variables of one piece of a set that are not defined as floors."""
    if domain.is_params() or not any(piece.dim(isl.dim_type.div) for piece in domain.get_basic_sets()):
        return 0
    # In isl's text a floor has its definition: exists (e0 = floor((n)/2), e1: ...).
    found = (quantified.split(",") for quantified in _QUANTIFIER.findall(str(domain)))
    return max((sum("=" not in variable for variable in variables) for variables in found), default=0)


def at_sizes(domain: Any, sizes: Mapping[str, int]) -> Any:
    """Return an isl set or map without parameters: at the given sizes."""
    for position, name in enumerate(domain.get_var_names(isl.dim_type.param)):
        domain = domain.fix_val(isl.dim_type.param, position, isl.Val(int(sizes[name])))
    return domain.project_out(isl.dim_type.param, 0, domain.dim(isl.dim_type.param))


@lru_cache(maxsize=65536)
def card_at(domain: Any, sizes: tuple[tuple[str, int], ...]) -> int:
    """Return the number of points of a set at given sizes."""
    try:
        with ISL_LOCK:
            # Hundreds of overlapping pieces become few, where barvinok would first make them disjoint.
            plain = at_sizes(domain, dict(sizes)).coalesce()
            total = 1
            for factor, quick in _factors(plain):
                counted = _card_of_factor(factor, isl.Set("{ : }"), quick, _FIXED_OPERATIONS)
                _check_finite(counted, domain)
                total *= int(counted.eval(isl.Point.zero(counted.get_domain_space())).to_python())
            return total
    except TooManyOperationsError:
        shown = ", ".join(f"{name}={value}" for name, value in sizes) or "fixed sizes"
        msg = f"a domain of the kernel is too complex to count, even at {shown}: {domain}; simplify its loop bounds"
        raise UnsupportedKernelError(msg, domain=str(domain)) from None


def connected(sets: Iterable[frozenset[int]]) -> list[frozenset[int]]:
    """Return the unions of sets that share members, directly or by way of others."""
    parts: list[frozenset[int]] = []
    for item in sets:
        met = [part for part in parts if part & item]
        parts = [part for part in parts if not part & item]
        parts.append(item.union(*met))
    return parts
