"""The measurement kernels of a model description, and their sizes."""

import pytest

from perflex.errors import TagError
from perflex.models import KernelSet, ModelDescription, SizeRule, load_model, measurement_kernels, model_names

EMPTY = ("empty", "ngroups:16,64")
MADD = ("flops_madd_pattern", "dtype:float32", "groups_fit:True", "nelements:131072", "m:64")
ELEMENTS = {"nelements": SizeRule(power=1, step=32768, odd=False)}
MATRICES = SizeRule(power=3, step=32, least=3)
SIZES = (288, 416, 544, 672, 800, 928)


def description(*sets):
    return ModelDescription("mine", "mine", "f_cl_wall_time", "p_a * f_thread_groups", {}, sets)


def test_sets_are_joined_and_a_kernel_in_two_of_them_is_measured_once():
    kernels = measurement_kernels(description(KernelSet(EMPTY), KernelSet(MADD), KernelSet(("empty", "ngroups:64"))))
    assert [kernel.generator for kernel in kernels] == ["empty", "empty", "flops_madd_pattern"]
    assert len({kernel.name for kernel in kernels}) == 3


def test_sizes_follow_the_device_only_where_a_set_says_so():
    own, same = KernelSet(MADD, scale=ELEMENTS), KernelSet((*MADD[:-2], "nelements:65536", "m:64"))
    kernels = measurement_kernels(description(KernelSet(EMPTY), own, same), 2.0)
    assert [kernel.sizes.get("ngroups", kernel.sizes.get("nelements")) for kernel in kernels] == [16, 64, 262144, 65536]


@pytest.mark.parametrize("scale", [1e-3, 0.1, 0.165, 0.5, 1.0, 2.0, 60.0])
def test_sizes_of_matrices_are_odd_multiples_of_32_and_increase(scale):
    sizes = MATRICES.sizes(SIZES, scale)
    assert len(sizes) == len(SIZES)
    assert all(size % 64 == 32 and size >= 96 for size in sizes)
    assert list(sizes) == sorted(set(sizes))


@pytest.mark.parametrize(("rule", "sizes", "scale", "expected"), [
    (MATRICES, SIZES, 1.0, SIZES), (MATRICES, SIZES, 64.0, [pytest.approx(4 * size, abs=32) for size in SIZES]),
    (MATRICES, (288, 544), 0.1, (160, 224)), (ELEMENTS["nelements"], (262144, 131072), 0.1, (32768, 65536)),
    (ELEMENTS["nelements"], (131072, 262144), 3.0, (393216, 786432)),
    (SizeRule(power=2, step=112, only_up=True), (336,), 9.0, (1008,)),
    (SizeRule(power=2, step=112, only_up=True), (336,), 0.1, (336,)), (SizeRule(power=1, step=3), (9,), 9.0, (81,)),
    (SizeRule(power=1, step=3), (9,), 0.1, (3,)), (SizeRule(power=2, step=112), (112, 336), 1.0, (112, 336)),
    (SizeRule(power=2, step=112), (1232,), 9.0, (3 * 1232,)),
])  # fmt: skip
def test_sizes_grow_with_a_root_of_speed(rule, sizes, scale, expected):
    assert list(rule.sizes(sizes, scale)) == list(expected)


def test_only_sizes_with_a_rule_are_scaled():
    given = KernelSet(("fdiff", "n:336", "m: 64, 128", "tile:16"), scale={"n": SizeRule(power=2, step=112)})
    assert given.sized(9.0) == (["fdiff", "m: 64, 128", "tile:16"], {"n": (1008,)})
    assert given.sized(1.0) == ([*given.tags], {})


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
    for scale in (1.0, 3.0):
        with pytest.raises(TagError, match=message):
            measurement_kernels(description(kernel_set), scale)


@pytest.mark.parametrize("tag", ["nelements:x", "nelements:-5", "n:1.5", "n:", "n", "n:16,", "n:\u00b2", "n:16,16"])
def test_what_is_no_number_is_left_for_the_generators_to_refuse(tag):
    given = KernelSet(("flops_madd_pattern" if "el" in tag else "matmul_sq", tag), scale={**ELEMENTS, "n": MATRICES})
    assert given.sized(3.0) == ([*given.tags], {})
    if ":" in tag:
        with pytest.raises(TagError):
            measurement_kernels(description(given), 3.0)


# More than five hundred kernels each, which loopy makes in seconds.
LARGEST = ("general_cpu", "general_cpu_code")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in LARGEST else name
        for name in model_names()
        if load_model(name).measurement_kernels
    ],
)
def test_shipped_models_have_kernels_enough_and_never_what_the_demo_predicts(name):
    shipped = load_model(name)
    kernels = measurement_kernels(shipped)
    assert len(kernels) > len(shipped.parameters)
    # One follows one kernel over sizes, and is fitted to that kernel at other sizes than it predicts; the general ones
    # are no models of the demo's.
    if name not in {"matmul_ecm", *LARGEST}:
        assert "matmul_sq" not in {kernel.generator for kernel in kernels}


@pytest.mark.parametrize("name", [name for name in model_names() if not load_model(name).fixed_sizes])
def test_shipped_models_have_as_many_kernels_on_devices_of_any_speed(name):
    shipped = load_model(name)
    for kernel_set in shipped.measurement_kernels:
        few = ModelDescription("few", "", shipped.output, shipped.expression, {}, (kernel_set,))
        counts = {len(measurement_kernels(few, scale)) for scale in (0.1, 1.0, 7.0)}
        assert len(counts) == 1, kernel_set.tags
