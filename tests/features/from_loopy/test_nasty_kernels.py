"""Kernels written to be nasty: counts are what Oclgrind executes, or the kernel is refused with cause and remedy."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import pytest

from oracles import brute, oclgrind
from oracles.compare import SUB_GROUP, check_accesses
from oracles.expressions import NotEnumerableError
from oracles.nasty import NASTY, NastyKernel
from oracles.nasty.rows import Counted, counted_rows, executed_rows, mismatches
from perflex.errors import UnsupportedKernelError
from perflex.features import AnnotatedKernel, count_features, extract_scop

# loopy uses what pymbolic and pytools have deprecated since, in what it keeps in its cache and in its reductions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

# Kernels that are counted wrongly, with what is wrong.
AWAITING: dict[str, str] = {}
COUNTED = [name for name, nasty in NASTY.items() if not nasty.refused]
REFUSED = [name for name, nasty in NASTY.items() if nasty.refused]
REASONS = {
    "signs", "squares", "powers", "zeros and ones", "complex", "vectors", "empty",
}  # fmt: skip
# Generous: most take some hundredths of a second.
SLOW = 5.0


def translation_unit(kernel: Any) -> Any:
    return kernel.translation_unit if isinstance(kernel, AnnotatedKernel) else kernel


@dataclass
class Made:
    """A kernel, what it executed, and whether counting it was quick."""

    nasty: NastyKernel
    kernel: Any
    run: oclgrind.Executed | oclgrind.OclgrindError


@pytest.fixture(scope="module")
def made() -> dict[str, Made]:
    """All kernels that are counted, executed in a few processes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # loopy's advice is for those who mean to keep the kernel
        kernels = {name: NASTY[name].make() for name in COUNTED}
    jobs = [(translation_unit(kernels[name]), dict(NASTY[name].sizes)) for name in COUNTED]
    runs = oclgrind.run_each(jobs, processes=4)
    return {name: Made(NASTY[name], kernels[name], run) for name, run in zip(COUNTED, runs, strict=True)}


def test_there_are_many_and_every_difference_has_a_reason() -> None:
    assert len(NASTY) >= 60
    for nasty in NASTY.values():
        assert (nasty.why in REASONS) if nasty.differs else not nasty.why, nasty.name
    assert set(AWAITING) <= set(NASTY)


@pytest.mark.slow
@oclgrind.needs_oclgrind
@pytest.mark.parametrize("name", COUNTED)
def test_counts_are_what_is_executed(name: str, made: dict[str, Made]) -> None:
    if name in AWAITING:
        pytest.skip(AWAITING[name])
    case = made[name]
    assert isinstance(case.run, oclgrind.Executed), case.run
    start = time.perf_counter()
    counted = counted_rows(extract_scop(case.kernel), case.nasty.sizes)
    assert time.perf_counter() - start < SLOW
    executed = executed_rows(case.run)
    seen = {row: (pair[0], pair[1]) for row, pair in mismatches(counted, executed).items()}
    assert seen == case.nasty.differs


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTED)
def test_accesses_are_what_enumeration_finds(name: str) -> None:
    """Instances, sub-groups, footprints and strides of each access."""
    if name in AWAITING:
        pytest.skip(AWAITING[name])
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
    if name in AWAITING:
        pytest.skip(AWAITING[name])
    with pytest.raises(UnsupportedKernelError, match=NASTY[name].refused) as caught:
        count_features(extract_scop(NASTY[name].make()), NASTY[name].sizes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("ours", "theirs", "contradict"),
    [
        (Counted(5), 5, False),
        (Counted(5), 4, True),
        (Counted(5), 6, True),
        (Counted(5, exact=False), 4, False),
        (Counted(5, exact=False), 6, True),
        (None, 1, True),
        (Counted(0), 0, False),
    ],
)
def test_comparison_sees_what_is_wrong(ours: Counted | None, theirs: int, contradict: bool) -> None:
    assert bool(mismatches({} if ours is None else {"add": ours}, {"add": theirs})) == contradict
