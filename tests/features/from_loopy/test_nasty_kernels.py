"""Kernels written to be nasty: counts are what Oclgrind executes, or the kernel is refused with cause and remedy."""

from __future__ import annotations

import time
import warnings
from typing import Any

import pytest

from oracles import brute, oclgrind
from oracles.compare import SUB_GROUP, check_accesses
from oracles.expressions import NotEnumerableError
from oracles.nasty import NASTY
from oracles.nasty.rows import counted_rows, executed_rows, mismatches
from perflex.errors import UnsupportedKernelError
from perflex.features import AnnotatedKernel, count_features, extract_scop

# loopy uses what pymbolic and pytools have deprecated since, in what it keeps in its cache and in its reductions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

COUNTED = [name for name, nasty in NASTY.items() if not nasty.refused]
REFUSED = [name for name, nasty in NASTY.items() if nasty.refused]
REASONS = {
    "signs", "squares", "powers", "zeros and ones", "complex", "vectors", "empty",
}  # fmt: skip
# Of processor time. Generous: most take some hundredths of a second.
SLOW = 5.0
PROCESSES = 8


def translation_unit(kernel: Any) -> Any:
    return kernel.translation_unit if isinstance(kernel, AnnotatedKernel) else kernel


def test_there_are_many_and_every_difference_has_a_reason() -> None:
    assert len(NASTY) >= 60
    for nasty in NASTY.values():
        assert (nasty.why in REASONS) if nasty.differs else not nasty.why, nasty.name


@pytest.mark.slow
@oclgrind.needs_oclgrind
@pytest.mark.parametrize("first", range(PROCESSES))
def test_counts_are_what_is_executed(first: int) -> None:
    """Each simulator runs some of the kernels, since starting one takes longer than most of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # loopy's advice is for those who mean to keep the kernel
        kernels = {name: NASTY[name].make() for name in COUNTED[first::PROCESSES]}
    runs = oclgrind.run_each([(translation_unit(kernel), dict(NASTY[name].sizes)) for name, kernel in kernels.items()])
    for (name, kernel), run in zip(kernels.items(), runs, strict=True):
        assert isinstance(run, oclgrind.Executed), (name, run)
        start = time.process_time()
        counted = counted_rows(extract_scop(kernel), NASTY[name].sizes)
        assert time.process_time() - start < SLOW, name
        differing = mismatches(counted, executed_rows(run)).items()
        assert {row: pair[:2] for row, pair in differing} == NASTY[name].differs, name


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTED)
def test_accesses_are_what_enumeration_finds(name: str) -> None:
    """Instances, sub-groups, footprints and strides of each access."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel = NASTY[name].make()
        if isinstance(kernel, AnnotatedKernel):
            pytest.skip("counted differently from what the kernel says")
        sizes = dict(NASTY[name].sizes)
        try:
            counted = brute.count(kernel, sizes, SUB_GROUP)
        except NotEnumerableError as error:
            pytest.skip(f"not enumerable: {error}")
        if counted.launches != 1:
            pytest.skip("launches of different sizes are not enumerated")
    check_accesses(counted, extract_scop(kernel), sizes)


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_names_cause_and_remedy(name: str) -> None:
    with pytest.raises(UnsupportedKernelError, match=NASTY[name].refused) as caught:
        count_features(extract_scop(NASTY[name].make()), NASTY[name].sizes)
    assert "\n" not in str(caught.value)
