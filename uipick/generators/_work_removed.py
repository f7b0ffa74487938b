"""Work-removed versions of application generators: their global accesses alone (paper Section 7.1.1)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING

from uipick._argument import Argument
from uipick._generator import Constraint, Generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    import loopy as lp

__all__ = ["work_removed"]


def work_removed(application: Generator, access_tags: Sequence[str] | Mapping[str, Sequence[str]]) -> Generator:
    """Return the generator ``<application>_mem``: the application's kernels after work removal.

    It takes the application's arguments and ``keep``: the access tags of the accesses that are left, joined by
    ``_``. By default each load is kept alone, then all of them together.

    Parameters
    ----------
    application
        The generator; all its global accesses carry access tags.
    access_tags
        Those tags, loads (``...LD``) before stores (``...ST``); no tag contains ``_``. Where they differ between the
        values of the argument ``variant``: the tags by its value.
    """
    by_variant = access_tags if isinstance(access_tags, Mapping) else {"": access_tags}
    allowed = list(dict.fromkeys(keep for tags in by_variant.values() for keep in _subsets(tags)))
    chosen = tuple(dict.fromkeys(keep for tags in by_variant.values() for keep in _loads(tags)))
    names = ", ".join(dict.fromkeys(tag for tags in by_variant.values() for tag in tags))
    constraints = list(application.constraints)
    if isinstance(access_tags, Mapping):
        constraints.append(
            Constraint(
                "keep names access tags that the variant has ("
                + "; ".join(f"{variant}: {', '.join(tags)}" for variant, tags in access_tags.items())
                + ")",
                lambda a: set(a["keep"].split("_")) <= set(access_tags[a["variant"]]),
            )
        )
    sizes = [argument for argument in application.arguments if argument.name in application.size_arguments]
    others = [argument for argument in application.arguments if argument.name not in application.size_arguments]

    def build(*, keep: str, **variant: str | bool | int) -> lp.TranslationUnit:
        from uipick._remove_work import remove_work

        return remove_work(application.build(**variant), keep_tags=keep.split("_"))

    build.__doc__ = f"""Global accesses of {application.name}, arithmetic and local memory removed.

    The kernels of ``{application.name}`` after work removal: of the accesses {names} only those in
    ``keep`` (joined by ``_``) are left, in their loops, with their patterns, conditions and tags. Loads are summed in
    one variable, which is stored once per work-item (by a kept store, or in ``read_tgt_dest`` without an access tag).
    Isolates ``f_mem_access_tag:<tag>``; beside it there is one addition per load.

    Source: the paper's Sections 7.1.1 and 7.1.2, second variety of global memory access.
    """
    return Generator(
        name=f"{application.name}_mem",
        tags=frozenset({f"{application.name}_mem", "work_removed"}),
        arguments=(
            *others,
            Argument("keep", "str", "access tags of the accesses that are left, joined by _", tuple(allowed), chosen),
            *sizes,
        ),
        build=build,
        size_arguments=application.size_arguments,
        constraints=tuple(constraints),
        sizes=application.sizes,
    )


def _subsets(tags: Sequence[str]) -> list[str]:
    return ["_".join(kept) for count in range(1, len(tags) + 1) for kept in combinations(tags, count)]


def _loads(tags: Sequence[str]) -> list[str]:
    """Each load alone, then all of them; the first store where there is none."""
    loads = [tag for tag in tags if tag.endswith("LD")]
    return [*loads, "_".join(loads)] if loads else [tags[0]]
