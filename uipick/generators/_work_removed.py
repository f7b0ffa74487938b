"""Work-removed versions of application generators: their global accesses alone (paper Section 7.1.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, Criterion
from uipick._generator import Constraint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import loopy as lp

    from uipick._generator import Generator

# Intel's OpenCL runtime for CPUs drops guards of the form that loopy writes in kernels that load nothing from global
# memory: all work-items store, also beyond the array's end.
_STORES_ALONE = Constraint(
    "stores alone need groups_fit:True (there are compilers that drop the guards of a kernel without loads)",
    lambda a: a.get("groups_fit", True) or any(tag.endswith("LD") for tag in a["keep"].split("_")),
)


def work_removed(
    application: Generator,
    access_tags: Sequence[str],
    present: Callable[[Mapping[str, Any]], Collection[str]] | None = None,
    together: Sequence[str] = (),
) -> Generator:
    """Return the generator ``<application>_mem``: the application's kernels after work removal.

    It takes the application's arguments and ``keep``: the access tags of the accesses that are left, joined by
    ``_``. By default each load is kept alone, then all of them together.

    Parameters
    ----------
    application
        The generator; all its global accesses carry access tags.
    access_tags
        Those tags, loads (``...LD``) before stores (``...ST``); no tag contains ``_``.
    present
        The tags that the kernel with the given arguments has, if not all variants have all tags.
    together
        Then: values of ``keep`` used by default instead of all loads together.
    """
    keep = _keep(access_tags, together)
    constraints = (*application.constraints, _STORES_ALONE)
    if present is not None:
        has = Constraint(
            "keep names access tags that the variant has", lambda a: set(a["keep"].split("_")) <= set(present(a))
        )
        constraints = (*constraints, has)
    sizes = [argument for argument in application.arguments if argument.name in application.size_arguments]
    others = [argument for argument in application.arguments if argument.name not in application.size_arguments]

    def build(*, keep: str, **variant: str | bool | int) -> lp.TranslationUnit:
        from uipick._remove_work import remove_work

        return remove_work(application.built(variant), keep_tags=keep.split("_"))

    build.__doc__ = f"""Global accesses of {application.name}, arithmetic and local memory removed.

    The kernels of ``{application.name}`` after work removal: of the accesses {", ".join(access_tags)} only those in
    ``keep`` (joined by ``_``) are left, in their loops, with their patterns, conditions and tags. Loads are summed in
    one variable, which is stored once per work-item (by a kept store, or in ``read_tgt_dest`` without an access tag).
    Isolates ``f_mem_access_tag:<tag>``; beside it there is one addition per load.

    Source: the paper's Sections 7.1.1 and 7.1.2, second variety of global memory access.
    """
    return replace(
        application,
        name=f"{application.name}_mem",
        tags=frozenset({f"{application.name}_mem", "work_removed"}),
        arguments=(*others, keep, *sizes),
        build=build,
        constraints=constraints,
    )


def _keep(access_tags: Sequence[str], together: Sequence[str]) -> Argument:
    loads = [tag for tag in access_tags if tag.endswith("LD")]
    allowed = Criterion(
        f"one or more of {', '.join(access_tags)} in this order, joined by _",
        lambda keep: keep != "" and keep.split("_") == [tag for tag in access_tags if tag in keep.split("_")],
    )
    default = dict.fromkeys([*loads, *(together or ["_".join(loads)])]) if loads else access_tags[:1]
    return Argument("keep", "str", "access tags of the accesses that are left", allowed, tuple(default))
