"""loopy kernels in a short notation: texts of arrays, and of splits and tags of loops."""

import re

import loopy as lp
import numpy as np


def written(domains, text, data, steps="", *, more=(), assume="n >= 1", name="written", **options):
    """Make a kernel with arrays as of `arrays` and ``more``, and take steps as of `stepped`.

    Integers ``n`` and ``m`` are declared where they are used.
    """
    declared = [*arrays(data), *more]
    known = {argument.name for argument in declared if hasattr(argument, "name")}
    known |= set(re.findall(r"<\w*> ?(\w+) =", str(text)))
    used = set(re.findall(r"\b[nm]\b", f"{domains} {text} {data} {assume}"))
    sizes = [lp.ValueArg(size, np.int32) for size in sorted(used - known)]
    made = lp.make_kernel(
        domains, text, [*declared, *sizes], assumptions=assume, lang_version=(2018, 2), name=name, **options
    )
    return stepped(made, steps)


def stepped(t_unit, steps):
    """Return a kernel after steps such as ``i/8: g.0, l.0; j: unr``: i split in two with tags, j tagged."""
    for step in filter(None, steps.split(";")):
        loop, _, tags = (part.strip() for part in step.partition(":"))
        iname, _, size = loop.partition("/")
        if size:
            outer, inner = ([*(tag.strip() or None for tag in tags.split(",")), None])[:2]
            t_unit = lp.split_iname(t_unit, iname, int(size), outer_tag=outer, inner_tag=inner)
        else:
            t_unit = lp.tag_inames(t_unit, {iname: tags})
    return t_unit


def arrays(text):
    """Return arguments from texts such as ``x, y: float32[n + 1, 4]; s: int32`` (a value)."""
    found = []
    for part in filter(None, map(str.strip, text.split(";"))):
        names, _, kind = part.partition(":")
        dtype, bracket, shape = kind.strip().partition("[")
        for name in map(str.strip, names.split(",")):
            extents = tuple(map(str.strip, shape.rstrip("]").split(",")))
            found.append(lp.GlobalArg(name, dtype, shape=extents) if bracket else lp.ValueArg(name, np.dtype(dtype)))
    return found
