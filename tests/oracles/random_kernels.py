"""Random valid loopy kernels: nasty loop nests at small sizes.

Drawn from: rectangular, triangular, banded (``min``/``max``) and halved loop bounds; one or two nested loops,
each sequential or split (with remainder) over groups and work-items; several statements over several
arrays; guards on statements and in expressions; reductions; private scalars and arrays; affine and
quasi-affine subscripts with ``//`` and ``%``; prefetches; row- and column-major arrays; float32 and float64.

`make_random_kernel` draws from a seed.
"""

import io
import random
import re
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import partial

import loopy as lp
import numpy as np
from loopy.check import pre_codegen_checks
from loopy.diagnostic import CannotBranchDomainTree, LoopyError
from pytools.graph import CycleError

_INNER_BOUNDS = (
    "0 <= j < m", "0 <= j < m", "0 <= j <= i", "i <= j < n", "0 <= j and i - 2 <= j <= i + 2 and j < n",
    "0 <= j and 2*j <= i", "i <= j < n + m and j < 2*m + 1", "1 <= j < m - 1",
)  # fmt: skip
_OUTER_BOUNDS = (
    "0 <= i < n", "0 <= i < n", "0 <= i < n", "1 <= i < n - 1", "0 <= i and 2*i < n", "2 <= i <= m + 1",
)  # fmt: skip
_REDUCED_BOUNDS = (
    "0 <= {k} < m", "0 <= {k} <= i", "i <= {k} < n", "0 <= {k} and {k} <= i + 1 and 3*{k} < n + m", "0 <= {k} < 4",
)  # fmt: skip
_GUARDS = ("i < 3", "i % 2 == 0", "i > 1 and i < n - 2", "i // 2 < 3", "n > 7")
_NESTED_GUARDS = (*_GUARDS, "j < i", "(i + j) % 3 == 1", "j == i or j == 2")
# Most are not exact in single precision.
_NUMBERS = ("2", "0.5", "3", "0.2", "0.3333333333333333", "1e-3", "1.7")
_FUNCTIONS = ("exp", "sqrt", "fabs", "sin", "cos", "log")


@dataclass(frozen=True)
class RandomKernel:
    """A kernel with sizes, and the text that it was made from."""

    kernel: lp.TranslationUnit
    sizes: dict[str, int]
    text: str

    def __repr__(self):
        return f"{self.text}\nat {self.sizes}"


@dataclass
class _Draft:
    """A kernel being put together."""

    choices: random.Random
    dtype: str = "float32"
    nested: bool = False
    inner_parallel: bool = False
    loops: list[tuple[str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    scalars: list[str] = field(default_factory=list)
    outputs: dict[str, int] = field(default_factory=dict)
    private_arrays: list[str] = field(default_factory=list)
    below_inner: set[str] = field(default_factory=set)
    prefetched: bool = False
    steps: list[str] = field(default_factory=list)

    def one_of(self, options):
        return options[self.choices.randint(0, len(options) - 1)]

    def chance(self, percent):
        return self.choices.randint(1, 100) <= percent

    def subscript(self, loops):
        x, y = self.one_of(loops), self.one_of(loops)
        forms = (x, x, x, f"{x} + 1", f"2*{x}", f"{x} // 2", f"{x} % 4", f"{x} + {y}", f"3*{x} + {y} + 2")
        rare = ("0", f"({x} + {y}) // 3", f"({x} + 1) % 3", f"2*({x} // 2) + {y}", f"n + m - {x}", f"4*({x} % 2)")
        return self.one_of(rare if self.chance(20) else forms)

    def leaf(self, loops):
        kind = self.choices.randint(0, 9)
        if kind == 0 and self.scalars:
            return self.one_of(self.scalars)
        if kind == 1:
            return self.one_of(_NUMBERS)
        if kind <= 5:
            return self.access(loops)
        tag = self.one_of(("", "$first", "$second"))
        return f"{self.one_of(('u', 'v'))}{tag}[{self.subscript(loops)}, {self.subscript(loops)}]"

    def guard(self, loops):
        return self.one_of(_NESTED_GUARDS if "j" in loops else _GUARDS)

    def access(self, loops):
        return f"{self.one_of(('a', 'b'))}[{self.subscript(loops)}]"

    def expression(self, loops, depth=2):
        kind = self.choices.randint(0, 9) if depth else 0
        first = self.expression(loops, depth - 1) if kind else self.access(loops)
        second = self.leaf(loops)
        leaf, access = partial(self.leaf, loops), partial(self.access, loops)
        guard = self.guard(loops) if kind == 9 else ""
        maximum = f"fmax({first}, {second}.0)" if second.isdecimal() else f"fmax({first}, {second})"
        forms = (
            lambda: self.one_of((first, f"{first}*{second}", f"({first} + {second})", first)),
            lambda: f"({first} + {second}*{leaf()})",
            lambda: f"({first} + {second}*{leaf()})",
            lambda: f"({second} - {first})",
            lambda: f"({first} - {second}*{access()} + {leaf()})",
            lambda: f"{second}*{first}",
            lambda: f"({access()}*{second} + {first}*{leaf()} + {access()})",
            lambda: f"{self.one_of(_FUNCTIONS)}({first})",
            # With an integer, loopy takes the maximum in double precision, whatever the kernel's type.
            lambda: self.one_of((f"({first})**2", f"({first} / {access()})", self.typed(maximum))),
            lambda: f"({access()} if {guard} else {first})",
        )
        return forms[kind]()

    def typed(self, text):
        """Put inexact numbers in single precision in a kernel of single precision.

        loopy takes a reduction or a function of a number that is not exact in double precision, and so products in them
        feed sums of another type: no multiply-adds, but `brute` knows nothing of the types of numbers.
        """
        inexact = r"\b(0\.2|0\.3333333333333333|1e-3|1\.7)\b"
        return text if self.dtype == "float64" else re.sub(inexact, r"\1f", text)

    def add(self, line, loops, options=""):
        number = len([entry for entry in self.lines if "{id=" in entry])
        after = f", dep=s{number - 1}" if number else ""
        self.lines.append(f"{line} {{id=s{number}, inames={':'.join(loops)}{after}{options}}}")

    def statement(self):
        deep = self.nested and (self.inner_parallel or self.chance(60))
        kinds = (*2 * [self._scalar], *3 * [self._reduction], self._private_array, *4 * [self.plain])
        kinds[self.choices.randint(0, 9)](["i", "j"] if deep else ["i"])

    def output(self, loops):
        name = f"out{len(self.outputs)}"
        self.outputs[name] = len(loops)
        return f"{name}[{', '.join(loops)}]"

    def plain(self, loops):
        target = self.output(loops)
        value = self.expression(loops)
        if self.chance(30):
            # Braces of the guard: statements inside are ordinary lines.
            self.lines.append(f"if {self.guard(loops)}")
            self.add(f"    {target} = {value}", loops)
            self.lines.append("end")
            return
        self.add(f"{target} = {value}", loops)
        if self.chance(30):
            self.add(f"{target} = {target} + {self.expression(loops, 1)}", loops)

    def _scalar(self, loops):
        name = f"t{len(self.lines)}"
        if "j" in loops and not self.inner_parallel:
            # A scalar set inside a sequential loop is used at once, in the same loop.
            self.add(f"<{self.dtype}> {name}x = {self.expression(loops, 1)}", loops)
            self.add(f"{self.output(loops)} = {name}x*{self.access(loops)} + {name}x", loops)
        else:
            self.add(f"<{self.dtype}> {name} = {self.expression(loops, 1)}", loops)
            self.scalars.append(name)

    def _reduction(self, loops):
        k = f"k{len(self.loops)}"
        self.loops.append((k, self.one_of(_REDUCED_BOUNDS).format(k=k)))
        if "j" in loops:
            self.below_inner.add(k)
        inside = [*loops, k]
        product = f"{self.access(inside)}*{self.access(inside)}"
        body = self.one_of((f"u[i, {k}]*v[{k}, {loops[-1]}]", product, self.expression(inside, 1)))
        reduced = f"reduce({self.one_of(('sum', 'sum', 'sum', 'product', 'max'))}, {k}, {self.typed(body)})"
        self.add(f"{self.output(loops)} = {reduced}{self.one_of(('', ' + ' + self.leaf(loops)))}", loops)

    def _private_array(self, loops):
        name = f"w{len(self.private_arrays)}"
        self.private_arrays.append(name)
        p, q = f"p{len(self.loops)}", f"q{len(self.loops)}"
        self.loops += [(p, f"0 <= {p} < 4"), (q, f"0 <= {q} < 4")]
        self.add(f"{name}[{p}] = {self.access([*loops, p])}", [*loops, p])
        self.add(f"{self.output(loops)} = sum({q}, {name}[3 - {q}]*{self.access(loops)})", loops)

    def prefetched_statement(self):
        terms = [f"f[i + {shift}]" for shift in range(self.choices.randint(1, 3))]
        loops = ["i", "j"] if self.inner_parallel else ["i"]
        self.add(f"{self.output(loops)} = {' + '.join(terms)} + {self.access(loops)}", loops)
        self.prefetched = True

    def choose_steps(self):
        size, inner_size = self.one_of(("2", "3", "4", "8")), self.one_of(("2", "3", "4"))
        if self.inner_parallel:
            taken = self.one_of(("g.0+l.0", "g.1+l.1", "g.0+l.1"))
            # The other axes.
            self.steps += [f"i:{taken}:{size}", f"j:{taken.translate(str.maketrans('01', '10'))}:{inner_size}"]
        else:
            self.steps.append(f"i:{self.one_of(('g.0+l.0', 'g.0+l.0', '+l.0', 'g.0+', 'g.0', '+', ''))}:{size}")
            if self.nested and self.chance(30):
                self.steps.append(f"j:+:{inner_size}")


def _draft(choices):
    draft = _Draft(choices)
    draft.dtype = draft.one_of(("float32", "float64"))
    draft.nested = draft.chance(70)
    draft.loops.append(("i", draft.one_of(_OUTER_BOUNDS)))
    if draft.nested:
        draft.loops.append(("j", draft.one_of(_INNER_BOUNDS)))
        draft.inner_parallel = draft.chance(35)
    for _ in range(choices.randint(1, 4)):
        draft.statement()
    draft.choose_steps()
    if any(step.startswith("i:g.0+l.0") for step in draft.steps) and draft.chance(50):
        draft.prefetched_statement()
    if not draft.outputs:
        draft.plain(["i", "j"] if draft.inner_parallel else ["i"])
    if not any("inames=i:j" in line for line in draft.lines):
        draft.loops = [loop for loop in draft.loops if loop[0] != "j"]
        draft.steps = [step for step in draft.steps if not step.startswith("j:")]
    return draft


def _apply(kernel, draft):
    for step in draft.steps:
        iname, tags, size = step.split(":")
        if "+" in tags:
            outer, inner = tags.split("+")
            kernel = lp.split_iname(kernel, iname, int(size), outer_tag=outer or None, inner_tag=inner or None)
        elif tags:
            kernel = lp.tag_inames(kernel, {iname: tags})
    if draft.prefetched:
        outer = ["i_outer", "j_outer"] if draft.inner_parallel else ["i_outer"]
        kernel = lp.add_prefetch(kernel, "f", ["i_inner"], default_tag="l.auto", fetch_outer_inames=frozenset(outer))
    return kernel


def _domain(iname, bounds, below_inner):
    parameters = ["n", "m"]
    if iname != "i" and re.search(r"\bi\b", bounds):
        parameters.append("i")
        if below_inner:
            # loopy refuses two loops inside one another whose bounds depend on i independently.
            parameters.append("j")
    return f"[{', '.join(parameters)}] -> {{ [{iname}]: {bounds} }}"


def _build(draft):
    text, dtype, extent = "\n".join(draft.lines), np.dtype(draft.dtype), "4*n + 4*m + 16"
    order = draft.one_of(("C", "C", "F"))
    private = {"shape": (4,), "address_space": lp.AddressSpace.PRIVATE}
    arrays = [
        *(lp.GlobalArg(name, dtype, shape=(extent,)) for name in "abf"),
        *(lp.GlobalArg(name, dtype, shape=(extent, extent), order=order) for name in "uv"),
        *(lp.GlobalArg(name, dtype, shape=("n + m + 4",) * rank) for name, rank in draft.outputs.items()),
        *(lp.TemporaryVariable(name, dtype, **private) for name in draft.private_arrays),
    ]
    used = [array for array in arrays if re.search(rf"\b{array.name}\b", text)]
    domains = [_domain(inames, bounds, inames in draft.below_inner) for inames, bounds in draft.loops]
    kernel = lp.make_kernel(
        domains, text, [*used, lp.ValueArg("n", np.int32), lp.ValueArg("m", np.int32)],
        assumptions="n >= 5 and m >= 3", lang_version=(2018, 2), name="drawn",
    )  # fmt: skip
    kernel = _apply(kernel, draft)
    sizes = {"n": draft.choices.randint(5, 13), "m": draft.choices.randint(3, 9)}
    return RandomKernel(kernel, sizes, "\n".join([*domains, text, *draft.steps]))


def make_random_kernel(seed):
    """Return the kernel of a seed, drawing again (deterministically) while loopy cannot put it in order."""
    choices = random.Random(seed)  # noqa: S311 - not for secrets
    while True:
        draft = _draft(choices)
        # loopy prints a kernel that it refuses.
        with suppress(LoopyError, CannotBranchDomainTree, CycleError), redirect_stdout(io.StringIO()):
            drawn = _build(draft)
            pre_codegen_checks(lp.linearize(lp.preprocess_program(drawn.kernel)))
            return drawn
