"""Global memory: copy, scale, add and triad, with scalars or vectors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from uipick._argument import Argument
from uipick._generator import Generator
from uipick.generators._kernel import loaded_array, stored_array
from uipick.generators._line import LINE_ARGUMENTS, LINE_NELEMENTS, items_divide, make_line_kernel, whole_items

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp

_FORMS = {
    "copy": "a$aLD[{place}]",
    "scale": "3 * a$aLD[{place}]",
    "add": "a$aLD[{place}] + b$bLD[{place}]",
    "triad": "a$aLD[{place}] + 3 * b$bLD[{place}]",
}


def _stream(operation: str, *, dtype: str, lsize_0: int, groups_fit: bool, width: int) -> lp.TranslationUnit:
    import loopy as lp

    place, shape, dim_tags = "{item}", "nvectors", None
    if width > 1:
        # The tag vec makes OpenCL's vector types of the last axis.
        place, shape, dim_tags = "{item}, v", f"nvectors, {width}", "N0,vec"
    update = f"result$resST[{place}] = " + _FORMS[operation].replace("{place}", place)
    inputs = [name for name in "ab" if f"${name}LD" in update]
    kernel = make_line_kernel(
        f"gmem_{operation}",
        ["for v", update, "end"] if width > 1 else [update],
        [
            *(loaded_array(name, dtype, shape, dim_tags) for name in inputs),
            stored_array("result", dtype, shape, dim_tags),
        ],
        lsize_0=lsize_0,
        groups_fit=groups_fit,
        loops=[f"{{[v]: 0 <= v < {width}}}"] if width > 1 else [],
        items="nvectors",
    )
    if width == 1:
        return kernel
    # loopy orders loops with vectors by its older scheduler, which does as well for one instruction.
    entry = kernel.default_entrypoint
    entry = entry.copy(silenced_warnings=entry.silenced_warnings | {"v1_scheduler_fallback"})
    return lp.tag_inames(kernel.with_kernel(entry), "v:vec")


# Any: argument values by name, of the types that the declarations say.
def _width(arguments: Mapping[str, Any]) -> int:
    return int(arguments["width"])


def _described(operation: str, words: str, form: str, beside: str) -> Generator:
    # A partial object for its docstring: the generators differ in nothing else.
    build = partial(_stream, operation)
    loads = " and ``bLD``" if "b" in form else ""
    build.__doc__ = f"""Global memory {words}: ``{form}``, each work-item one element or one vector of them.

    All accesses have stride 1 (in vectors of ``width`` elements) and access-to-footprint ratio 1. Loads carry the
    access tags ``aLD``{loads}, the store ``resST``. Isolates ``f_mem_access_global_<dtype>`` with lid(0) stride
    ``width``, loads and stores in the ratio of this operation; {beside}.

    Source: the STREAM benchmark (McCalpin, 1995), with vector types; after the paper's Section 7.1.2.
    """
    name = f"gmem_{operation}"
    return Generator(
        name=name,
        tags=frozenset({name, "gmem", "gmem_stream"}),
        arguments=(
            *LINE_ARGUMENTS,
            Argument("width", "int", "elements per vector; 1 for scalars", (1, 2, 4, 8, 16), (1, 4)),
            LINE_NELEMENTS,
        ),
        build=build,
        size_arguments=("nelements",),
        constraints=(whole_items("width", _width), items_divide("width", _width)),
        sizes=lambda a: {"nvectors": a["nelements"] // _width(a)},
    )


GMEM_COPY = _described("copy", "copy", "result = a", "there is no arithmetic beside them")
GMEM_SCALE = _described("scale", "scaling", "result = 3 a", "beside them there is one multiplication per element")
GMEM_ADD = _described("add", "sum", "result = a + b", "beside them there is one addition per element")
GMEM_TRIAD = _described("triad", "triad", "result = a + 3 b", "beside them there is one multiply-add per element")
