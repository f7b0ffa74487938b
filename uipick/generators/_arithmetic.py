"""Kernels that repeat arithmetic on private variables (paper Section 7.1.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument, multiples_of
from uipick._generator import Generator
from uipick.generators._arguments import NELEMENTS, PATTERN_ARGUMENTS
from uipick.generators._kernel import size_parameters, stored_array
from uipick.generators._pattern import PATTERN_CONSTRAINTS, make_pattern_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import loopy as lp

    from uipick.generators._recurrence import Recurrence


NVARS = Argument("nvars", "int", "private variables (16 suit devices with few registers)", (16, 32), (32,))


def arithmetic_generator(
    family: str,
    operation: str,
    build: Callable[..., lp.TranslationUnit],
    dtype: Argument,
    unroll: int,
    iterations: tuple[int, ...],
) -> Generator:
    """Return the generator ``<family>_<operation>_pattern`` of a kernel that `make_arithmetic_kernel` makes."""
    name = f"{family}_{operation}_pattern"
    return Generator(
        name=name,
        tags=frozenset({name, family}),
        arguments=(
            dtype,
            *PATTERN_ARGUMENTS[1:],
            NVARS,
            NELEMENTS,
            Argument("m", "int", "loop iterations", multiples_of(unroll), iterations),
        ),
        build=build,
        size_arguments=("nelements", "m"),
        constraints=PATTERN_CONSTRAINTS,
    )


def make_arithmetic_kernel(
    name: str,
    parts: Sequence[tuple[Recurrence, str]],
    *,
    dtype: str,
    nvars: int,
    **pattern: int | bool,
) -> lp.TranslationUnit:
    """Make a kernel that updates ``nvars`` private variables m times and stores their sum.

    Parameters
    ----------
    parts
        Recurrences, each with the element type of its variables; variable number v belongs to part v modulo
        ``len(parts)``.
    dtype
        Element type of the result.
    nvars
        Number of variables, a multiple of ``len(parts)``.
    pattern
        The arguments of the simple access pattern that stores the sum.
    """
    import loopy as lp

    names = [[f"x{v}" for v in range(part, nvars, len(parts))] for part in range(len(parts))]
    unroll = min(recurrence.unroll for recurrence, _ in parts)
    loops, domain = "k_outer, k_inner", f"0 <= k_inner < {unroll} and 0 <= {unroll}*k_outer < m"
    if unroll == 1:
        loops, domain = "k", "0 <= k < m"
    body = [line for part, own in zip(parts, names, strict=True) for line in _start(*part, own, pattern["lsize_0"])]
    body = [*dict.fromkeys(body), f"for {loops}"]
    updates = [_updates(recurrence, own) for (recurrence, _), own in zip(parts, names, strict=True)]
    body += [update for together in zip(*updates, strict=True) for update in together]
    body += ["end", *_sums(parts, names, dtype)]
    kernel = make_pattern_kernel(
        name,
        pattern,
        body,
        [
            stored_array("result", dtype, "nelements"),
            size_parameters("m"),
        ],
        loops=[f"{{[{loops}]: {domain}}}"],
        assume=f"m >= {unroll} and m mod {unroll} = 0" if unroll > 1 else "m >= 1",
    )
    if unroll == 1:
        return kernel
    # Without a priority loopy may put the unrolled loop outside: many loops in place of one long one.
    return lp.prioritize_loops(lp.tag_inames(kernel, "k_inner:unr"), "k_outer, k_inner")


def _start(recurrence: Recurrence, dtype: str, names: Sequence[str], lsize_0: int) -> list[str]:
    definitions = [(target.format(dtype=dtype), value.format(lsize_0=lsize_0)) for target, value in recurrence.start]
    body = [f"<{target.split()[0]}> {target.split()[1]} = {value}" for target, value in definitions]
    for position, name in enumerate(names):
        value = recurrence.cycle[position % len(recurrence.cycle)]
        if "{v}" in value:
            # A variable of its own, since loopy would compute the sum in the type of what it is assigned to.
            body.append(f"<int32> start_{name} = {value.format(v=name[1:])}")
            value = f"start_{name}"
        body.append(f"<{dtype}> {name} = {value}")
    return body


def _updates(recurrence: Recurrence, names: Sequence[str]) -> list[str]:
    lines = []
    for number, name in enumerate(names):
        earlier = [names[(number - back) % len(names)] for back in recurrence.offsets]
        lines.append(f"{name} = {recurrence.form.format(*earlier, own=name)}")
    return lines


def _sums(parts: Sequence[tuple[Recurrence, str]], names: Sequence[Sequence[str]], dtype: str) -> list[str]:
    """Sum the variables of the result's type, then add the sums of the others."""
    lines = []
    terms: list[str] = []
    for number, ((_, own_dtype), own) in enumerate(zip(parts, names, strict=True)):
        if own_dtype == dtype:
            terms += own
        else:
            lines += [f"<{own_dtype}> sum{number} = {' + '.join(own)}", f"<{dtype}> term{number} = sum{number}"]
            terms.append(f"term{number}")
    return [*lines, "result$resST[{index}] = " + " + ".join(terms)]
