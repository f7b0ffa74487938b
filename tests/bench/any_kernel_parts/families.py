"""All families by half: one that is used while models are developed, and one that is only looked at for the report."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from .family import Family

Half: TypeAlias = Literal["develop", "report"]
HALVES: tuple[Half, ...] = get_args(Half)


def families(half: Half) -> tuple[Family, ...]:
    """Return the families of a half, in the order of their names.

    Raises
    ------
    ValueError
        There is no such half, or two families have one name.
    """
    if half not in HALVES:
        msg = f"the halves are {' and '.join(HALVES)}, not {half!r}"
        raise ValueError(msg)
    modules = sorted(path.stem for path in Path(__file__).parent.glob(f"{half}_*.py"))
    found = [family for name in modules for family in import_module(f".{name}", __package__).FAMILIES]
    names = [family.name for family in found]
    if len(set(names)) < len(names):
        msg = f"several families of the half {half!r} have one name: {sorted(n for n in names if names.count(n) > 1)}"
        raise ValueError(msg)
    return tuple(sorted(found, key=lambda family: family.name))
