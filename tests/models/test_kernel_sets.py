"""The measurement kernels of a model description."""

import pytest

from perflex.errors import TagError
from perflex.models import KernelSet, ModelDescription, load_model, measurement_kernels, model_names, split_sizes


def description(*sets):
    return ModelDescription("mine", "mine", "f_cl_wall_time", "p_a * f_thread_groups", {}, sets)


EMPTY = ("empty", "ngroups:16,64")
MADD = ("flops_madd_pattern", "dtype:float32", "groups_fit:True", "nelements:131072", "m:64")


def test_sets_are_joined_and_a_kernel_in_two_of_them_is_measured_once():
    kernels = measurement_kernels(description(KernelSet(EMPTY), KernelSet(MADD), KernelSet(("empty", "ngroups:64"))))
    assert [kernel.generator for kernel in kernels] == ["empty", "empty", "flops_madd_pattern"]
    assert len({kernel.name for kernel in kernels}) == 3


def test_sizes_follow_the_device():
    kernels = measurement_kernels(description(KernelSet(EMPTY), KernelSet(MADD)), 2.0)
    assert [dict(kernel.sizes) for kernel in kernels[:2]] == [{"ngroups": 16}, {"ngroups": 64}]
    assert kernels[2].sizes["nelements"] == 262144


@pytest.mark.parametrize(("match", "generators"), [
    (None, {"lmem_move"}),
    ("superset", {"lmem_move"}),
    ("Intersect", {"lmem_move", "lmem_load", "lmem_broadcast", "lmem_madd", "lmem_exchange"}),
])  # fmt: skip
def test_match_conditions(match, generators):
    sets = description(KernelSet(("lmem_move", "lmem"), match))
    assert {kernel.generator for kernel in measurement_kernels(sets)} == generators


@pytest.mark.parametrize(("kernel_set", "message"), [
    (KernelSet(()), "set 1 of the measurement kernels has no tags"),
    (KernelSet(EMPTY, "bogus"), "no match condition is called 'bogus'; there are identical, subset, superset"),
    (KernelSet(("matmul_sq", "n:16", "n:32")), "argument 'n' is given twice"),
    (KernelSet(("emty",)), "no generator has the tag 'emty'; did you mean empty"),
    (KernelSet(("empty", "ngroups:-1")), "'-1' is not allowed for argument 'ngroups'"),
])  # fmt: skip
def test_sets_that_select_nothing(kernel_set, message):
    with pytest.raises(TagError, match=message):
        measurement_kernels(description(kernel_set))


@pytest.mark.parametrize("tag", ["nelements:x", "nelements:-5", "n:1.5", "n:", "n", "n:16,", "n:\u00b2", "n:16,16"])
def test_what_is_no_number_is_left_for_the_generators_to_refuse(tag):
    assert split_sizes(["flops", tag], {}) == (["flops", tag], {})
    if ":" in tag:
        sets = description(KernelSet(("flops_madd_pattern" if tag.startswith("nel") else "matmul_sq", tag)))
        with pytest.raises(TagError):
            measurement_kernels(sets, 3.0)


# More than five hundred kernels each, which loopy makes in seconds.
LARGEST = ("general_cpu", "general_cpu_code")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LARGEST else name for name in model_names()]
)
def test_shipped_models_have_kernels_enough_and_never_what_the_demo_predicts(name):
    shipped = load_model(name)
    kernels = measurement_kernels(shipped)
    assert len(kernels) > len(shipped.parameters)
    # One follows one kernel over sizes, and is fitted to that kernel at other sizes than it predicts; the general ones
    # are no models of the demo's.
    if name not in {"matmul_ecm", "general_cpu", "general_cpu_code"}:
        assert "matmul_sq" not in {kernel.generator for kernel in kernels}
