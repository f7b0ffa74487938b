"""Generators of kernel creation functions, and work-removed and in-core versions of them (paper Section 7.1.1)."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING

from perflex.formula import parse_formula
from uipick._generator import Argument, Arguments, Constraint, Criterion, Generator
from uipick.generators._arguments import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import loopy as lp

    from uipick._generator import Value


def declared(
    build: Callable[..., lp.TranslationUnit],
    tags: str,
    arguments: Sequence[Argument],
    sizes: Sequence[Argument],
    *constraints: Constraint,
    name: str = "",
    values: Mapping[str, str] | Callable[[Arguments], Mapping[str, int]] | None = None,
    fits: str = "",
) -> Generator:
    """Return the generator of a kernel creation function, whose name it has unless another one is given.

    Its name is one of its tags. The function takes the arguments that have several values and are no sizes.

    `values` gives the kernel's size parameters, as formulas or by a function, where they are not the size arguments.
    `fits` are remainders of sizes, ``"nx % lsize_0, ny % lsize_1"``, that are zero with ``groups_fit:True``: in its
    place the function takes ``assume``, what loopy is to assume of the sizes.
    """
    name = name or build.__name__
    remainders = [part.strip() for part in fits.split(",") if part]
    if fits:
        zero = " and ".join(f"{each} == 0" for each in remainders)
        constraints = (needs("groups_fit:True", zero), *constraints)
    dropped = {a.name for a in arguments if a.allowed == (True,) or (fits and a.name == "groups_fit")}

    @wraps(build)
    def made(**variant: Value) -> lp.TranslationUnit:
        given = {name: value for name, value in variant.items() if name not in dropped}
        if not fits:
            return build(**given)
        divided = [_divided(each, variant) for each in remainders] if variant["groups_fit"] else []
        return build(**given, assume=" and ".join([*(f"{size.name} >= 1" for size in sizes), *divided]))

    size_names = tuple(size.name for size in sizes)
    computed = values if values is None or callable(values) else _computed(values)
    tag_set = frozenset({name, *tags.split()})
    return Generator(name, tag_set, (*arguments, *sizes), made, size_names, constraints, computed)


def _divided(remainder: str, variant: Arguments) -> str:
    size, _, step = remainder.partition(" % ")
    return f"{size} mod {parse_formula(step).value(variant)} = 0"


def _computed(values: Mapping[str, str]) -> Callable[[Arguments], Mapping[str, int]]:
    formulas = {name: parse_formula(text).value for name, text in values.items()}
    return lambda a: {name: value(a) for name, value in formulas.items()}


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
    constraints = [*application.constraints, _STORES_ALONE]
    if present is not None:
        words = "keep names access tags that the variant has"
        constraints.append(Constraint(words, lambda a: set(a["keep"].split("_")) <= set(present(a))))

    def build(*, keep: str, **variant: Value) -> lp.TranslationUnit:
        from uipick._derived_kernels import remove_work

        return remove_work(application.built(variant), keep_tags=keep.split("_"))

    build.__doc__ = f"""Global accesses of {application.name}, arithmetic and local memory removed.

    The kernels of ``{application.name}`` after work removal: of the accesses {", ".join(access_tags)} only those in
    ``keep`` (joined by ``_``) are left, in their loops, with their patterns, conditions and tags. Loads are summed in
    one variable, which is stored once per work-item (by a kept store, or in ``read_tgt_dest`` without an access tag).
    Isolates ``f_mem_access_tag:<tag>``; beside it there is one addition per load.

    Source: the paper's Sections 7.1.1 and 7.1.2, second variety of global memory access.
    """
    made = _version(application, "mem", "work_removed", _keep(access_tags, together), build)
    return replace(made, constraints=tuple(constraints))


def _keep(access_tags: Sequence[str], together: Sequence[str]) -> Argument:
    loads = [tag for tag in access_tags if tag.endswith("LD")]
    allowed = Criterion(
        f"one or more of {', '.join(access_tags)} in this order, joined by _",
        lambda keep: keep != "" and keep.split("_") == [tag for tag in access_tags if tag in keep.split("_")],
    )
    default = dict.fromkeys([*loads, *(together or ["_".join(loads)])]) if loads else access_tags[:1]
    return Argument("keep", "str", "access tags of the accesses that are left", allowed, tuple(default))


_OWN = "work-groups along each axis that load data of their own; all others load the same again"
_CONFINED = Argument("confined", "int", _OWN, Criterion("integers from 1", lambda value: value >= 1), (4,))


def in_core(application: Generator) -> Generator:
    """Return the generator ``<application>_core``: the application's kernels with confined loads."""

    def build(*, confined: int, **variant: Value) -> lp.TranslationUnit:
        from uipick._derived_kernels import confine_loads

        return confine_loads(application.built(variant), confined)

    build.__doc__ = f"""Work of {application.name} on data that stays in the caches next to the cores.

    The kernels of ``{application.name}``, except that their work-groups load what the first ``confined`` of them along
    each axis load: the same instructions, loops, local memory, barriers and stores, but hardly any transfer of
    loaded data. Isolates the in-core time of a variant, whatever the compiler made of it; what it computes is of no
    use. The complement of ``{application.name}_mem``, which keeps the transfer and removes the work.

    Source: the in-core part of the ECM model (Stengel et al. 2015), measured rather than estimated.
    """
    return _version(application, "core", "in_core", _CONFINED, build)


def _version(
    application: Generator, ending: str, tag: str, own: Argument, build: Callable[..., lp.TranslationUnit]
) -> Generator:
    """Return a generator with one more argument, which stands before the sizes."""
    name, first_size = f"{application.name}_{ending}", len(application.arguments) - len(application.size_arguments)
    arguments = (*application.arguments[:first_size], own, *application.arguments[first_size:])
    return replace(application, name=name, tags=frozenset({name, tag}), arguments=arguments, build=build)
