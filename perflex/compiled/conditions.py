"""Conditions of jumps and moves, from what the last comparison compared (Intel 64 manual, volume 1, appendix B)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Flags:
    """What set the flags.

    Attributes
    ----------
    kind
        ``"compared"`` for the difference of `left` and `right`, ``"result"`` for an operation whose result is `left`.
    left, right
        The numbers, of which the lowest `bits` count.
    bits
        Width of the operation.
    """

    kind: str
    left: int
    right: int
    bits: int


def signed(value: int, bits: int) -> int:
    """Return a number of so many bits as a signed one."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def holds(condition: str, flags: Flags) -> bool | None:
    """Return whether a condition such as ``"ne"`` holds; None where the flags do not tell."""
    inverse = {"ne": "e", "nz": "e", "ge": "l", "nl": "l", "g": "le", "nle": "le", "ae": "b", "nb": "b", "nc": "b",
               "a": "be", "nbe": "be", "ns": "s"}  # fmt: skip
    if condition in inverse:
        found = holds(inverse[condition], flags)
        return None if found is None else not found
    mask = (1 << flags.bits) - 1
    left, right = flags.left & mask, flags.right & mask
    if condition in {"e", "z"}:
        return left == right
    if condition == "s":
        return signed(left - right, flags.bits) < 0
    if condition in {"l", "le"}:
        # Of other operations than comparisons only those that cannot overflow are followed.
        less = signed(left, flags.bits) < signed(right, flags.bits)
        return less or (condition == "le" and left == right)
    if flags.kind == "compared" and condition in {"b", "c", "be"}:
        return left < right or (condition == "be" and left == right)
    return None
