"""Gravitation between all pairs of bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument, multiples_of
from uipick._generator import Generator
from uipick.generators._arguments import DTYPE, GROUPS_FIT
from uipick.generators._kernel import loaded_array, local_array, make_kernel, size_parameters, stored_array
from uipick.generators._vectors import VECTOR_FITS, VECTOR_LSIZE

if TYPE_CHECKING:
    import loopy as lp

_SOFTENING = 0.0625  # Its square is added to squared distances, which keeps a body's pull on itself finite.
_AXES = "xyz"


def nbody(*, dtype: str, prefetch: bool, lsize_0: int, groups_fit: bool) -> lp.TranslationUnit:
    """Accelerations of n bodies by the gravitation of all of them, one body per work-item.

    ``body[0:3]`` are coordinates and ``body[3]`` masses, ``acc[:, i] = sum(j, m_j d / (|d|^2 + s^2)^1.5)`` with
    d from i to j and the softening length s = 0.0625. With ``prefetch:True`` the bodies j are fetched into local memory
    in tiles of lsize_0, one each per work-item, two barriers per tile; with ``prefetch:False`` all work-items load the
    same body j. Access tags ``ownLD`` (the work-item's own coordinates), ``bodyLD`` (the bodies j) and ``accST``.
    Features: additions, multiplications, multiply-adds and one rsqrt per pair, loads of the pattern chosen; mostly
    arithmetic, but an application, which isolates none of them.

    Source: Nyland, Harris and Prins, Fast N-Body Simulation with CUDA (GPU Gems 3, 2007, chapter 31).
    """
    import loopy as lp

    place, tile = f"{lsize_0}*group + item", f"{lsize_0}*tile + in_tile"
    source = "tile_body[{axis}, in_tile]" if prefetch else f"body$bodyLD[{{axis}}, {tile}]"
    own = [f"<{dtype}> own_{x} = body$ownLD[{axis}, {place}]" for axis, x in enumerate(_AXES)]
    start = [f"<{dtype}> sum_{x} = 0 {{id=start_{x}}}" for x in _AXES]
    fetch = [f"tile_body[{axis}, fetch] = body$bodyLD[{axis}, {lsize_0}*tile + fetch]" for axis in range(4)]
    pair = [
        *(f"<{dtype}> d_{x} = {source.format(axis=axis)} - own_{x}" for axis, x in enumerate(_AXES)),
        f"<{dtype}> inverse = rsqrt(d_x * d_x + d_y * d_y + d_z * d_z + {_SOFTENING**2})",
        f"<{dtype}> pull = {source.format(axis=3)} * inverse * inverse * inverse",
        *(f"sum_{x} = sum_{x} + pull * d_{x}" for x in _AXES),
    ]
    store = [f"acc$accST[{axis}, {place}] = sum_{x}" for axis, x in enumerate(_AXES)]
    lines = ["for group", "for item", *own, *start, "end", "for tile"]
    lines += ["for fetch", *fetch, "end"] if prefetch else []
    lines += ["for item, in_tile", *pair, "end", "end", "for item", *store, "end", "end"]
    data = [
        loaded_array("body", dtype, "4, n"),
        stored_array("acc", dtype, "3, n"),
        size_parameters("n"),
    ]
    domains = [
        f"{{[group]: 0 <= {lsize_0}*group < n}}",
        f"{{[item]: 0 <= item < {lsize_0} and {place} < n}}",
        f"{{[tile]: 0 <= {lsize_0}*tile < n}}",
        f"{{[in_tile]: 0 <= in_tile < {lsize_0} and {tile} < n}}",
    ]
    if prefetch:
        domains.append(f"{{[fetch]: 0 <= fetch < {lsize_0} and {lsize_0}*tile + fetch < n}}")
        data.append(local_array("tile_body", dtype, (4, lsize_0)))
    kernel = make_kernel(
        "nbody",
        domains,
        "\n".join(lines),
        data,
        in_order=True,
    )
    kernel = lp.assume(kernel, "n >= 1" + (f" and n mod {lsize_0} = 0" if groups_fit else ""))
    return lp.tag_inames(kernel, {"group": "g.0", "item": "l.0"} | ({"fetch": "l.0"} if prefetch else {}))


NBODY = Generator(
    name="nbody",
    tags=frozenset({"nbody"}),
    arguments=(
        DTYPE,
        Argument("prefetch", "bool", "fetch tiles of bodies into local memory", (True, False)),
        VECTOR_LSIZE,
        GROUPS_FIT,
        Argument("n", "int", "bodies", multiples_of(1), (2048, 4096, 6144, 8192)),
    ),
    build=nbody,
    size_arguments=("n",),
    constraints=(VECTOR_FITS,),
)
