"""In-core versions of application generators: their work, on data that stays next to the cores."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from uipick._argument import Argument, Criterion

if TYPE_CHECKING:
    import loopy as lp

    from uipick._generator import Generator

_CONFINED = Argument(
    "confined",
    "int",
    "work-groups along each axis that load data of their own; all others load the same again",
    Criterion("integers from 1", lambda value: value >= 1),
    (4,),
)


def in_core(application: Generator) -> Generator:
    """Return the generator ``<application>_core``: the application's kernels with confined loads.

    Parameters
    ----------
    application
        The generator; its kernels load nothing that they also store.
    """
    sizes = [argument for argument in application.arguments if argument.name in application.size_arguments]
    others = [argument for argument in application.arguments if argument.name not in application.size_arguments]

    def build(*, confined: int, **variant: str | bool | int) -> lp.TranslationUnit:
        from uipick._confine_loads import confine_loads

        return confine_loads(application.built(variant), confined)

    build.__doc__ = f"""Work of {application.name} on data that stays in the caches next to the cores.

    The kernels of ``{application.name}``, except that their work-groups load what the first ``confined`` of them along
    each axis load: the same instructions, loops, local memory, barriers and stores, but hardly any transfer of
    loaded data. Isolates the in-core time of a variant, whatever the compiler made of it; what it computes is of no
    use. The complement of ``{application.name}_mem``, which keeps the transfer and removes the work.

    Source: the in-core part of the ECM model (Stengel et al. 2015), measured rather than estimated.
    """
    return replace(
        application,
        name=f"{application.name}_core",
        tags=frozenset({f"{application.name}_core", "in_core"}),
        arguments=(*others, _CONFINED, *sizes),
        build=build,
    )
