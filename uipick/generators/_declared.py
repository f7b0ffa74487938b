"""Generators of kernel creation functions, and work-removed and in-core versions of them (paper Section 7.1.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._generator import Argument, Arguments, Constraint, Criterion, Generator

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import loopy as lp


def declared(
    build: Callable[..., lp.TranslationUnit],
    tags: str,
    arguments: Sequence[Argument],
    sizes: Sequence[Argument],
    *constraints: Constraint,
    name: str = "",
    values: Callable[[Arguments], Mapping[str, int]] | None = None,
) -> Generator:
    """Return the generator of a kernel creation function, whose name it has unless another one is given.

    Its name is one of its tags. `values` gives the kernel's size parameters where they are not the size arguments.
    """
    name = name or build.__name__
    return Generator(
        name,
        frozenset({name, *tags.split()}),
        (*arguments, *sizes),
        build,
        tuple(size.name for size in sizes),
        constraints,
        values,
    )


# Intel's OpenCL runtime for CPUs drops guards of the form that loopy writes in kernels that load nothing from global
# memory: all work-items store, also beyond the array's end.
_STORES_ALONE = Constraint(
    "stores alone need groups_fit:True (there are compilers that drop the guards of a kernel without loads)",
    lambda a: a.get("groups_fit", True) or any(tag.endswith("LD") for tag in a["keep"].split("_")),
)


def work_removed(
    application: Generator,
    access_tags: Sequence[str],
    present: Callable[[Arguments], Collection[str]] | None = None,
    together: Sequence[str] = (),
) -> Generator:
    """Return the generator ``<application>_mem``: the application's kernels after work removal.

    It takes the application's arguments and ``keep``: the access tags of the accesses that are left, joined by
    ``_``. By default each load is kept alone, then all of them together (or the values
    `together`). `access_tags` has loads before stores; `present` tells which of them a variant has.
    """
    keep = _keep(access_tags, together)
    constraints = (*application.constraints, _STORES_ALONE)
    if present is not None:
        has = Constraint(
            "keep names access tags that the variant has", lambda a: set(a["keep"].split("_")) <= set(present(a))
        )
        constraints = (*constraints, has)

    def build(*, keep: str, **variant: str | bool | int) -> lp.TranslationUnit:
        from uipick._derived_kernels import remove_work

        return remove_work(application.built(variant), keep_tags=keep.split("_"))

    build.__doc__ = f"""Global accesses of {application.name}, arithmetic and local memory removed.

    The kernels of ``{application.name}`` after work removal: of the accesses {", ".join(access_tags)} only those in
    ``keep`` (joined by ``_``) are left, in their loops, with their patterns, conditions and tags. Loads are summed in
    one variable, which is stored once per work-item (by a kept store, or in ``read_tgt_dest`` without an access tag).
    Isolates ``f_mem_access_tag:<tag>``; beside it there is one addition per load.

    Source: the paper's Sections 7.1.1 and 7.1.2, second variety of global memory access.
    """
    return _version(application, "mem", "work_removed", keep, build, constraints)


def _keep(access_tags: Sequence[str], together: Sequence[str]) -> Argument:
    loads = [tag for tag in access_tags if tag.endswith("LD")]
    allowed = Criterion(
        f"one or more of {', '.join(access_tags)} in this order, joined by _",
        lambda keep: keep != "" and keep.split("_") == [tag for tag in access_tags if tag in keep.split("_")],
    )
    default = dict.fromkeys([*loads, *(together or ["_".join(loads)])]) if loads else access_tags[:1]
    return Argument("keep", "str", "access tags of the accesses that are left", allowed, tuple(default))


_CONFINED = Argument(
    "confined",
    "int",
    "work-groups along each axis that load data of their own; all others load the same again",
    Criterion("integers from 1", lambda value: value >= 1),
    (4,),
)


def in_core(application: Generator) -> Generator:
    """Return the generator ``<application>_core``: the application's kernels with confined loads."""

    def build(*, confined: int, **variant: str | bool | int) -> lp.TranslationUnit:
        from uipick._derived_kernels import confine_loads

        return confine_loads(application.built(variant), confined)

    build.__doc__ = f"""Work of {application.name} on data that stays in the caches next to the cores.

    The kernels of ``{application.name}``, except that their work-groups load what the first ``confined`` of them along
    each axis load: the same instructions, loops, local memory, barriers and stores, but hardly any transfer of
    loaded data. Isolates the in-core time of a variant, whatever the compiler made of it; what it computes is of no
    use. The complement of ``{application.name}_mem``, which keeps the transfer and removes the work.

    Source: the in-core part of the ECM model (Stengel et al. 2015), measured rather than estimated.
    """
    return _version(application, "core", "in_core", _CONFINED, build, application.constraints)


def _version(
    application: Generator,
    ending: str,
    tag: str,
    own: Argument,
    build: Callable[..., lp.TranslationUnit],
    constraints: tuple[Constraint, ...],
) -> Generator:
    """Return a generator with one more argument, which stands before the sizes."""
    name = f"{application.name}_{ending}"
    sizes = [argument for argument in application.arguments if argument.name in application.size_arguments]
    others = [argument for argument in application.arguments if argument not in sizes]
    return declared(build, tag, (*others, own), sizes, *constraints, name=name, values=application.sizes)
