"""Kernels written to be nasty: counts are what Oclgrind executes, or the kernel is refused with cause and remedy."""

import warnings

import pytest

from oracles import brute, oclgrind
from oracles.compare import SUB_GROUP, check_accesses
from oracles.nasty import NASTY
from oracles.nasty.rows import counted_rows, executed_rows, mismatches
from perflex.errors import UnsupportedKernelError
from perflex.features import AnnotatedKernel, count_features, extract_scop

# loopy uses what pymbolic and pytools have deprecated since, in what it keeps in its cache and in its reductions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

COUNTED = [name for name, nasty in NASTY.items() if not nasty.refused]
REFUSED = [name for name, nasty in NASTY.items() if nasty.refused]
REASONS = {"signs", "squares", "powers", "zeros and ones", "complex", "vectors", "empty"}
# What enumeration does not describe: calls, vectors, bits, several launches, and what data decide.
NOT_ENUMERATED = {
    "argmin_in_a_tree", "segmented_sum", "called_twice_two_levels", "vector_axis", "bits_and_shifts",
    "unsigned_arithmetic", "saved_and_reloaded", "launches_in_a_host_loop", "three_launches_of_different_sizes",
    "indirect_with_stand_in", "indirect_scatter", "computed_scalar_in_subscript", "nested_ifs",
    "scalar_argument_decides", "mixed_conditions",
}  # fmt: skip
PROCESSES = 8


def test_there_are_many_and_every_difference_has_a_reason():
    assert len(NASTY) >= 60
    for nasty in NASTY.values():
        assert (nasty.why in REASONS) if nasty.differs else not nasty.why, nasty.name


@pytest.mark.slow
@oclgrind.needs_oclgrind
@pytest.mark.parametrize("first", range(PROCESSES))
def test_counts_are_what_is_executed(first):
    """Each simulator runs some of the kernels, since starting one takes longer than most of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # loopy's advice is for those who mean to keep the kernel
        kernels = {name: NASTY[name].make() for name in COUNTED[first::PROCESSES]}
    plain = [each.translation_unit if isinstance(each, AnnotatedKernel) else each for each in kernels.values()]
    runs = oclgrind.run_jobs([(one, dict(NASTY[name].sizes)) for name, one in zip(kernels, plain, strict=True)])
    for (name, kernel), run in zip(kernels.items(), runs, strict=True):
        counted = counted_rows(extract_scop(kernel), NASTY[name].sizes)
        differing = mismatches(counted, executed_rows(run)).items()
        assert {row: pair[:2] for row, pair in differing} == NASTY[name].differs, name


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COUNTED if name not in NOT_ENUMERATED])
def test_accesses_are_what_enumeration_finds(name):
    """Instances, sub-groups, footprints and strides of each access."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel, sizes = NASTY[name].make(), dict(NASTY[name].sizes)
        counted = brute.count(kernel, sizes, SUB_GROUP)
    check_accesses(counted, extract_scop(kernel), sizes)


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_names_cause_and_remedy(name):
    with pytest.raises(UnsupportedKernelError, match=NASTY[name].refused) as caught:
        count_features(extract_scop(NASTY[name].make()), NASTY[name].sizes)
    assert "\n" not in str(caught.value)
