"""Numbers of points: symbolic where that is quick, else evaluated at given sizes.

barvinok counts most domains of kernels in a millisecond, and some (projections with several existential
variables, above all) in minutes. Those are told by their form, or by isl, which counts its operations and
stops at a limit; they are kept as sets, and their points are counted once the sizes are known.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from perflex._islpy import ISL_LOCK, isl
from perflex.errors import UnsupportedKernelError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SUM_LIMIT", "TooManyOperationsError", "card", "card_at", "limited"]

# Some tenths of a second on a current core. Of the counts of random kernels that are done by four times the limit, all
# but one in five hundred are done by this one. Counting at fixed sizes is worth waiting for longer.
SYMBOLIC_LIMIT = 50_000
FIXED_LIMIT = 8_000_000
# Some hundredths of a second; sums of simple counts need a hundredth of that.
SUM_LIMIT = 5_000
# With more existential variables than this that are no floors, barvinok may run without end, and isl's count of
# operations does not see it.
_EXISTENTIAL = 1
_QUANTIFIER = re.compile(r"exists \(([^:]*):")


class TooManyOperationsError(Exception):
    """The limit on isl's operations was reached; never leaves this package."""


@contextmanager
def limited(operations: int) -> Iterator[None]:
    """Let isl do so many operations in the block.

    Raises
    ------
    TooManyOperationsError
        The block needs more.
    """
    context = isl.DEFAULT_CONTEXT
    with ISL_LOCK:
        context.reset_operations()
        context.set_max_operations(operations)
        try:
            yield
        except isl.Error as error:
            if "maximal number of operations" in str(error):
                raise TooManyOperationsError from None
            raise
        finally:
            context.set_max_operations(0)
            context.reset_operations()


def card(domain: Any, assumptions: Any) -> Any:
    """Return the number of points of a set under assumptions, an ``isl.PwQPolynomial`` in the parameters.

    Raises
    ------
    TooManyOperationsError
        That takes too long.
    UnsupportedKernelError
        There is no end to them.
    """
    with limited(SYMBOLIC_LIMIT):
        restricted = domain.intersect_params(assumptions)
        if _existential_variables(restricted) > _EXISTENTIAL:
            raise TooManyOperationsError
        counted = restricted.card()
        _check_finite(counted, domain)
        return counted.coalesce().gist_params(assumptions)


def _check_finite(counted: Any, domain: Any) -> None:
    polynomials: list[Any] = []
    counted.foreach_piece(lambda _, polynomial: polynomials.append(polynomial))  # it lets no error out
    if any(polynomial.is_infty() or polynomial.is_nan() for polynomial in polynomials):
        msg = f"a loop of the kernel has no end: {domain}; give every loop a lower and an upper bound"
        raise UnsupportedKernelError(msg, domain=str(domain))


def _existential_variables(domain: Any) -> int:
    """Return the most existential variables of one piece of a set that are not defined as floors."""
    most = 0
    for quantified in _QUANTIFIER.findall(str(domain)):
        most = max(most, sum("=" not in variable for variable in quantified.split(",")))
    return most


@lru_cache(maxsize=65536)
def card_at(domain: Any, sizes: tuple[tuple[str, int], ...]) -> int:
    """Return the number of points of a set at given sizes.

    Raises
    ------
    UnsupportedKernelError
        Even that takes too long.
    """
    kinds = isl.dim_type
    values = dict(sizes)
    fixed = domain
    for position in range(domain.dim(kinds.param)):
        name = domain.get_dim_name(kinds.param, position)
        fixed = fixed.fix_val(kinds.param, position, isl.Val(values[name]))
    try:
        with limited(FIXED_LIMIT):
            # Hundreds of overlapping pieces become few, where barvinok would first make them disjoint.
            counted = fixed.project_out(kinds.param, 0, fixed.dim(kinds.param)).coalesce().card()
            return int(counted.eval(isl.Point.zero(counted.get_domain_space())).to_python())
    except TooManyOperationsError:
        shown = ", ".join(f"{name}={value}" for name, value in sizes)
        msg = f"a domain of the kernel is too complex to count, even at {shown}: {domain}; simplify its loop bounds"
        raise UnsupportedKernelError(msg, domain=str(domain)) from None
