"""What the sub-groups of a work-group do at one place of a kernel's text, enumerated in numpy, without perflex.

Integer declarations of the text are evaluated as they stand there, for all work-items of one work-group at once.
"""

import re
from itertools import product
from types import SimpleNamespace

import numpy as np

SIZE = 32
_INT = re.compile(r"\bint ([^;]*);")
_ARRAY = re.compile(r"(?:__shared__|__local) float (\w+)((?:\[\d+\])+);")
_POINTER = re.compile(r"\b(float|uchar)([24]?) \*(\w+)")
_STRUCT = re.compile(r"struct (\w+) { float ([^;]*); };")


class _Array:
    """An array whose elements are their addresses in bytes."""

    def __init__(self, itemsize, extents=(), start=0):
        self.itemsize, self.extents, self.start = itemsize, extents, start

    def __getitem__(self, index):
        element = self.start + index
        if len(self.extents) > 1:
            return _Array(self.itemsize, self.extents[1:], element * self.extents[1])
        return element * self.itemsize


def _python(expression):
    return expression.replace("&&", "&").replace("/", "//")


def _arrays(text):
    """Return arrays by name, and the offset in bytes of each field of a struct."""
    found = {
        name: _Array((4 if scalar == "float" else 1) * int(width or 1))
        for scalar, width, name in _POINTER.findall(text)
    }
    offsets = {}
    for struct, fields in _STRUCT.findall(text):
        names = fields.split(", ")
        offsets |= {name: 4 * place for place, name in enumerate(names)}
        found |= {name: _Array(4 * len(names)) for name in re.findall(rf"\b{struct} \*(\w+)", text)}
    for name, extents in _ARRAY.findall(text):
        found[name] = _Array(4, [int(each) for each in re.findall(r"\d+", extents)])
    return found, offsets


def _declared(text):
    """Return expressions of the text's integers by name, in their order."""
    found = {}
    for declaration in _INT.findall(text[text.index("{", text.index("void ")) :]):
        for part in declaration.split(", "):
            if "=" in part:
                name, value = part.split("=", 1)
                found.setdefault(name.strip(), _python(value))
    return found


def _names(expression):
    return re.findall(r"\b[A-Za-z_]\w*", expression)


def _needed(expressions, declared):
    """Return the names that some expressions use, directly or through declarations."""
    found, open_names = set(), [name for text in expressions for name in _names(text)]
    while open_names:
        name = open_names.pop()
        if name not in found:
            found.add(name)
            open_names += _names(declared.get(name, ""))
    return found


def evaluated(text, expressions, local, sizes, over):
    """Yield the values of expressions for all work-items of work-group (1, 1), for each value of the loops' integers.

    Values of ``a[i]`` are addresses in bytes, arrays begin at a multiple of 32 bytes (at zero).
    """
    declared = _declared(text)
    arrays, offsets = _arrays(text)
    expressions = [re.sub(r"\]\.(\w+)", lambda it: f"] + {offsets[it[1]]}", _python(each)) for each in expressions]
    needed = _needed(expressions, declared)
    lx, ly = (*local, 1)[:2]
    items = np.arange(lx * ly)
    ids = items % lx, items // lx
    axes = {
        "threadIdx": SimpleNamespace(x=ids[0], y=ids[1]),
        "blockIdx": SimpleNamespace(x=1, y=1, z=1),
        "blockDim": SimpleNamespace(x=lx, y=ly),
        "get_local_id": ids.__getitem__,
        "get_group_id": (1, 1).__getitem__,
        "get_global_id": lambda axis: (lx, ly)[axis] + ids[axis],
    }
    loops = {name: values for name, values in over.items() if name in needed}
    for values in product(*loops.values()):
        names = {**axes, **arrays, **sizes, **dict(zip(loops, values, strict=True))}
        for name, expression in declared.items():
            if name in needed and name not in loops:
                names[name] = eval(expression, {}, names)
        yield [np.broadcast_to(eval(each, {}, names), items.shape) for each in expressions]


def _requests(text, access, *where):
    """Return the addresses of each sub-group, one after the other."""
    found = evaluated(text, [access], *where)
    return [part for (each,) in found for part in np.split(each, range(SIZE, len(each), SIZE))]


def sectors(*where):
    """Return sectors of 32 bytes per request, on average."""
    return np.mean([len(np.unique(addresses // 32)) for addresses in _requests(*where)])


def least_sectors(text, access, *where):
    """Return the sectors that a request's elements would fill side by side, on average."""
    itemsize = _arrays(text)[0][access.split("[")[0]].itemsize
    return np.mean([len(np.unique(addresses)) * itemsize / 32 for addresses in _requests(text, access, *where)])


def wavefronts(*where):
    """Return wavefronts per request to 32 banks of 4 bytes, on average."""
    return np.mean([np.bincount(np.unique(addresses // 4) % 32).max() for addresses in _requests(*where)])


def loads_per_element(*where):
    addresses = np.concatenate(_requests(*where))
    return len(addresses) / len(np.unique(addresses))


def active_share(*where):
    """Return the active share of the work-items of sub-groups in which the condition holds for any."""
    return np.mean([condition.mean() for condition in _requests(*where) if condition.any()])


class _Number:
    """A number in C's arithmetic that counts operations in float64."""

    def __init__(self, is_double, counted):
        self.is_double, self.counted = is_double, counted

    def _with(self, other):
        either = self.is_double or isinstance(other, float) or getattr(other, "is_double", False)
        self.counted.append(either)
        return _Number(either, self.counted)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _with


def float64_operations(expression):
    """Return operations in float64 of an expression in which all names and ``a[...]`` are float32."""
    counted = []
    expression = re.sub(r"[A-Za-z_]\w*(?:\[[^]]*\])+|[\d.]+f\b|\b[A-Za-z_]\w*", "number", expression)
    eval(expression, {"number": _Number(False, counted)})
    return sum(counted)
