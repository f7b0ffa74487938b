"""The OpenCL C that loopy generates, read from its text, counts as the kernel that it was generated of.

Compared at two sizes are operations by kind and type, bytes loaded and stored by array, barriers and chains.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import loopy as lp
import pytest

from oracles.nasty import NASTY
from perflex.errors import PerflexError, UnsupportedKernelError
from perflex.features import Scop, extract_scop, source_kernel
from perflex.features.counting.chains import chained_operations, chains_of
from perflex.features.counting.scop_counts import counts_of
from support.small_kernels import SMALL
from uipick import ALL_GENERATORS, KernelCollection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    _Kernel = tuple[str, Callable[[], Any], Mapping[str, int]]

# loopy uses what pymbolic and pytools have deprecated since.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

# Reason -> kernel -> pattern of the rows that differ. They differ on purpose: what the text says is something else.
DIFFERS: Mapping[str, Mapping[str, str]] = {
    "the text computes the base of a square twice": {
        "square_of_a_load": "load global x",
        "power_of_a_sum_squared": "load global x|float32 add",
        "power_of_double_exponents": "load global x",
    },
    "the text calls a function of loopy's, a power that is a loop of products or a rounding division": {
        "power_three": "float32 (mul|pow)",
        "power_minus_one": "float32 (mul|pow)|float64 div",
        "integer_division_of_data": "int32 (add|cmp|div|floordiv|mod)",
        "segmented_sum": "int32 bit",
    },
    "products with a variable that is 1 are none in C, sums with 0 are none for loopy": {
        "tree_product_and_max": "float32 mul",
        "multiplied_by_zero_and_one": "float32 add",
    },
    "the arithmetic of an instruction counts for loopy, also where its result is a subscript": {
        "computed_scalar_in_subscript": "int32 (floordiv|madd)"
    },
    "loops of one iteration are written out in the text": {"scan_of_odd_length": "chain", "dot": "chain"},
    "in C, chains go through other variables, too": {
        **dict.fromkeys((f"flops_{each}_pattern" for each in ("add", "mul", "madd", "div", "sqrt")), "chain"),
        **dict.fromkeys((f"iops_{each}_pattern" for each in ("add", "mul", "madd", "bit", "shift")), "chain"),
    },
    "arrays that share memory are one array in C": {"aliased_temporaries": "(load|store) local [mtu]"},
}
# Kernel -> why its text is not read.
UNREAD = {
    **{name: "pyopencl-complex.h" for name in NASTY if name.startswith("complex_") and not NASTY[name].refused},
    "atomic_update": "trip count of 'do'",
    "power_of_integer": "trip count of 'while",
}
NAMES = [*(name for name in NASTY if not NASTY[name].refused), *SMALL]
PROCESSES = 16


def _rows(scop: Scop, sizes: Mapping[str, int], times: int = 1) -> Counter[str]:
    counts, found = counts_of(scop), Counter[str]()
    for statement in scop.statements:
        number = times * counts.instances(statement).evaluate(sizes)
        for operation in statement.operations:
            found[f"{operation.dtype} {operation.kind}"] += number * operation.count
        for access in statement.accesses:
            array = scop.array(access.array)
            found[f"{access.direction} {array.space} {array.name}"] += number * array.itemsize
    for launch in range(len(scop.launches)):
        for kind in {barrier.kind for barrier in scop.barriers}:
            found[f"barrier {kind}"] += times * counts.barriers(kind, launch).evaluate(sizes)
    for variables in chains_of(scop).values():
        chained = (
            sum(chained_operations(one) * counts.instances(one).evaluate(sizes) for one in each)
            for each in variables.values()
        )
        found["chain"] += times * max(chained)
    return found


def _of_text(kernel: Any, scop: Scop, sizes: Mapping[str, int]) -> Counter[str]:
    """Return rows of the generated text; names of sizes that loopy leaves out of the description are 0."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # loopy's advice
        text = lp.generate_code_v2(getattr(kernel, "translation_unit", kernel)).device_code()
    programs = re.findall(r"reqd_work_group_size\(([\d, ]+)\)+ (\w+)\(", text)
    assert len(programs) == len(scop.launches)
    found = Counter[str]()
    for (items, name), launch in zip(programs, scop.launches, strict=True):
        local = [int(each) for each in items.split(",")]
        groups = [int(each.evaluate(sizes)) for each in launch.groups]
        read = source_kernel(text, name, local=local, groups=(groups + [1] * 3)[: len(local)])
        given = {size: sizes.get(size, 0) for size in read.sizes}
        found += _rows(read.scop(given), given, int(launch.repeats.evaluate(sizes)))
    return found


def _differing(make: Callable[[], Any], sizes: Mapping[str, int]) -> set[str]:
    """Return rows that differ at two sizes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel = make()
    scop, found = extract_scop(kernel), set()
    for factor in (1, 2):
        larger = {name: factor * value for name, value in sizes.items()}
        try:
            scop.check_sizes(larger)
        except PerflexError:
            assert factor == 2
            continue
        one, two = _rows(scop, larger), _of_text(kernel, scop, larger)
        found |= {row for row in one.keys() | two.keys() if one[row] != two[row]}
    return found


def _kernels(names: Iterable[str], most: int | None = None) -> Iterator[_Kernel]:
    """Yield nasty kernels and those of generators, at most so many of each."""
    catalog = KernelCollection(ALL_GENERATORS)
    for name in names:
        if name in NASTY:
            yield name, NASTY[name].make, NASTY[name].sizes
            continue
        for one in catalog.generate_kernels([name, *SMALL[name].split()])[:most]:
            yield name, lambda one=one: one.kernel, one.sizes


def _check(kernels: Iterable[_Kernel]) -> None:
    expected = {name: pattern for entries in DIFFERS.values() for name, pattern in entries.items()}
    found: dict[str, set[str]] = {}
    for name, make, sizes in kernels:
        if name in UNREAD:
            with pytest.raises(UnsupportedKernelError, match=UNREAD[name]):
                _differing(make, sizes)
            continue
        found.setdefault(name, set()).update(_differing(make, sizes))
    wrong = {
        name: rows for name, rows in found.items() if not all(re.fullmatch(expected.get(name, ""), row) for row in rows)
    }
    assert wrong == {}
    agreeing = [name for name, rows in found.items() if name in expected and not rows]
    assert agreeing == [], "these no longer differ"


def test_every_fifteenth_kernel_counts_as_its_text():
    _check(_kernels(NAMES[::15], 1))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(PROCESSES))
def test_kernels_count_as_their_texts(first):
    _check(_kernels(NAMES[first::PROCESSES]))
