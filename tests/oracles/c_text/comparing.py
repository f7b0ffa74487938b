"""What perflex counts in a kernel of C text, against what executing the text counts."""

from collections import Counter
from dataclasses import dataclass, field

from oracles.c_text.machine import execute
from oracles.c_text.types import UndefinedError
from perflex.errors import PerflexError
from perflex.features import counts_of, source_kernel

# Operations on floats that both count; comparisons and conversions, and integers, have rules of their own.
_KINDS = {"add", "mul", "div", "madd", "fma", "min", "max", "sqrt", "exp", "abs", "sin", "log", "floor"}


@dataclass(frozen=True)
class Text:
    """A kernel ``k`` with its launch and sizes."""

    source: str
    cuda: bool
    local: tuple[int, ...] = (8,)
    groups: tuple[int, ...] = (2,)
    sizes: dict[str, int] = field(default_factory=dict)
    stated: dict[str, int] = field(default_factory=dict)
    name: str = "k"
    seed: int = 0

    def __repr__(self):
        return f"{self.source}\n// local {self.local}, groups {self.groups}, {self.sizes}, stated {self.stated}"


def executed(text):
    """Return what executing counts, by words."""
    function = text.name.partition("<")[0]
    counts = execute(text.source, function, (text.local, text.groups), text.sizes, cuda=text.cuda, seed=text.seed)
    found = Counter()
    for (direction, name), count in counts.bytes.items():
        found[f"bytes {direction} {name}"] += count
    for name, count in counts.footprints.items():
        found[f"touched of {name}"] += count
    for (dtype, kind), count in counts.operations.items():
        if kind not in _KINDS:
            continue
        found[f"{dtype} {kind}"] += count
    items = 1
    for extent in text.local:
        items *= extent
    found["barriers"] += counts.barriers // items
    return found


def counted(text):
    """Return what perflex counts by the same words, and which of them are upper bounds."""
    kernel = source_kernel(text.source, text.name, local=text.local, groups=text.groups, stated=text.stated)
    scop = kernel.scop(text.sizes)
    counts, found, bounds = counts_of(scop), Counter(), set()

    def add(word, number, *, bound):
        found[word] += number.evaluate(text.sizes)
        bounds.update([word] if bound else [])

    # Private arrays are the compiler's to place; the interpreter has them for variables.
    accesses = [item for item in counts.accesses if item.array.space != "private"]
    for item in accesses:
        word = f"bytes {item.access.direction} {item.array.name}"
        add(word, item.work_item_count * item.array.itemsize, bound=item.certainty.bound)
    for array in scop.arrays:
        items = [item for item in accesses if item.array is array and array.space != "local"]
        anywhere = any(item.access.assumed for item in items)
        footprint = counts.footprint_among(items)
        add(f"touched of {array.name}", footprint.bytes, bound=anywhere or footprint.elements_certainty.bound)
    for (kind, dtype), certainty in counts.operation_certainty.items():
        if kind in _KINDS and dtype.startswith("float"):
            add(f"{dtype} {kind}", counts.operation_total(kind, dtype, None), bound=certainty.bound)
    guarded = any(barrier.guarded for barrier in scop.barriers)
    add("barriers", counts.barriers("local", 0), bound=guarded)
    return found, bounds


@dataclass(frozen=True)
class Outcome:
    """How a kernel fared: ``right``, ``bound``, ``refused``, ``wrong`` or ``undefined``, and why."""

    word: str
    why: str = ""


def compared(text):
    """Return how perflex's counts compare with what is executed."""
    try:
        truth = executed(text)
    except UndefinedError as error:
        return Outcome("undefined", str(error))
    try:
        found, bounds = counted(text)
    except PerflexError as error:
        return Outcome("refused", str(error))
    wrong = [
        f"{word}: {found[word]} ({'upper bound' if word in bounds else 'exact'}), executed {truth[word]}"
        for word in sorted({*truth, *found})
        if (found[word] < truth[word] if word in bounds else found[word] != truth[word])
    ]
    if wrong:
        return Outcome("wrong", "; ".join(wrong))
    return Outcome("bound" if bounds else "right")
