"""What counts kernels takes: kernels of all kinds, sizes that are whole numbers, machines that are chosen."""

import math
import re
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from fractions import Fraction
from threading import Barrier

import numpy as np
import pytest

from perflex import (
    Calibration,
    estimate_ecm,
    estimate_volumes,
    gather_feature_values,
    load_machine,
    machine_names,
    using_machine,
)
from perflex.calibration.gathering import target_on
from perflex.devices.device import Device
from perflex.errors import CalibrationError, MachineError, MeasurementError, MissingSizeError, UnsupportedKernelError
from perflex.features import (
    SizedKernel,
    Target,
    annotate,
    content_hash,
    count_features,
    counts_of,
    extract_scop,
    kernel_feature_values,
    parse_feature,
)
from perflex.features.sized_kernel import sized_kernels
from perflex.features.target import resolve_target
from perflex.features.values import target_of
from sample_kernels import matmul, pointwise
from support.written_kernels import written
from uipick import MeasurementKernel

LARGE = {"n": 512}
PRODUCT = matmul(prefetch=False)


@pytest.mark.parametrize("estimate", [
    lambda kernel: estimate_volumes(kernel, LARGE, "V100"),
    lambda kernel: estimate_ecm(kernel, LARGE, "Gold-6248"),
    lambda kernel: count_features(kernel, LARGE),
], ids=["volumes", "ecm", "counts"])  # fmt: skip
def test_kernels_of_all_kinds(estimate):
    measured = MeasurementKernel(PRODUCT, LARGE, "mine", "matmul", {})
    expected = str(estimate(extract_scop(PRODUCT)))
    assert [str(estimate(kernel)) for kernel in (PRODUCT, measured)] == [expected, expected]


NO_MACHINE, NO_SIZES = "given by its name, its file or a Machine, not by", r"needs a value for size n; pass {'n': 1024}"


@pytest.mark.parametrize(("kernel", "sizes", "machine", "error", "words"), [
    (PRODUCT, LARGE, None, MachineError, NO_MACHINE),
    (PRODUCT, LARGE, 3, MachineError, NO_MACHINE),
    (PRODUCT, LARGE, PRODUCT, MachineError, NO_MACHINE),
    (PRODUCT, None, ..., MissingSizeError, NO_SIZES),
    (PRODUCT, 512, ..., MissingSizeError, NO_SIZES),
    (PRODUCT.default_entrypoint, LARGE, ..., UnsupportedKernelError, r"t_unit\.with_entrypoints\('matmul'\)"),
    ("my.cl", LARGE, ..., UnsupportedKernelError, r"source_kernel\('my.cl', \.\.\.\)"),
    (None, LARGE, ..., UnsupportedKernelError, "expected a loopy TranslationUnit or a Scop"),
])  # fmt: skip
def test_what_is_no_kernel_no_sizes_or_no_machine(kernel, sizes, machine, error, words):
    for estimate, own in ((estimate_volumes, "V100"), (estimate_ecm, "Gold-6248")):
        with pytest.raises(error, match=words):
            estimate(kernel, sizes, own if machine is ... else machine)


def test_what_needs_a_scop_says_how_to_make_one():
    for function in (counts_of, content_hash):
        with pytest.raises(UnsupportedKernelError, match=r"give extract_scop\(kernel\)"):
            function(PRODUCT)


WRONG = [
    16.5, math.nan, math.inf, -math.inf, "16", None, True, np.True_, 16 + 0j, Fraction(33, 2), 2**63, 10**300, 1e300,
    [16, 16.5], [16, 32], (16,), np.array([16, math.nan]), np.array([]), [[16], [16, 32]], [None], {"n": 16},
]  # fmt: skip
RIGHT = [16, np.int8(16), np.uint64(16), 16.0, np.float32(16), Fraction(16)]
FITS = "n >= 16 and n mod 16 = 0"
DOUBLED = written("{[i]: 0<=i<n}", "b[i] = 2*a[i]", "a, b: float32[n]", "i/16: g.0, l.0", assume=FITS)
CALIBRATION = Calibration.load("matmul_sq_amd_epyc_4cores_pocl")
USES = {
    "count": lambda n: parse_feature("f_thread_groups").value(extract_scop(DOUBLED), {"n": n}, Target()),
    "values": lambda n: kernel_feature_values(["f_thread_groups"], DOUBLED, {"n": n}),
    "predict": lambda n: CALIBRATION.predict(DOUBLED, {"n": n}),
    "interval": lambda n: CALIBRATION.predict_interval(DOUBLED, {"n": n}),
    "gather": lambda n: gather_feature_values(["f_thread_groups"], [(DOUBLED, {"n": n})]),
    "volumes": lambda n: estimate_volumes(extract_scop(DOUBLED), {"n": n}, load_machine("V100")),
    "ecm": lambda n: estimate_ecm(extract_scop(DOUBLED), {"n": n}, load_machine("Gold-6248")),
}


@pytest.mark.filterwarnings("ignore::perflex.PerflexWarning")
@pytest.mark.parametrize("use", USES)
def test_what_is_no_whole_number_is_one_error(use):
    for wrong in WRONG:
        with pytest.raises(MissingSizeError, match=r"size n must be a whole number below 2\*\*63, such as 1024, not "):
            USES[use](wrong)


@pytest.mark.filterwarnings("ignore::perflex.PerflexWarning")
@pytest.mark.parametrize("use", ["values", "predict"])
def test_whole_numbers_of_any_type_are_the_same_size(use):
    assert len({repr(USES[use](right)) for right in RIGHT}) == 1


KERNEL = pointwise("x[i] * 2")


def test_a_label_that_looks_numbered_is_not_taken_twice():
    pair = (KERNEL, {"n": 64})
    assert [row.label for row in sized_kernels([pair] * 3)] == ["knl(n=64)", "knl(n=64) #2", "knl(n=64) #3"]
    measured = MeasurementKernel(KERNEL, {"n": 64}, "knl(n=64) #2", "scaling", {"n": 64})
    assert len({row.label for row in sized_kernels([pair, measured, pair])}) == 3


@pytest.mark.parametrize(("entry", "kind"), [
    (KERNEL, "TranslationUnit"), ("knl", "str"), (None, "NoneType"), ((KERNEL,), "tuple"), ((KERNEL, 64), "tuple"),
    ((KERNEL, {"n": 64}, "label"), "tuple"), ([KERNEL, {"n": 64}], "list"),
])  # fmt: skip
def test_entries_that_are_neither_are_named(entry, kind):
    message = f"expected a measurement kernel or a pair (loopy kernel, sizes), got {kind}"
    with pytest.raises(CalibrationError, match=f"^{re.escape(message)}$"):
        sized_kernels([(KERNEL, {"n": 64}), entry])


def test_what_is_built():
    stated = annotate(KERNEL, trip_counts={"j": 2})
    (plain, annotated) = sized_kernels([(KERNEL, {"n": 64}), (stated, {"n": 64})])
    assert plain.translation_unit is annotated.translation_unit is KERNEL
    assert annotated.kernel is stated
    with pytest.raises(MeasurementError, match="give a loopy kernel or source code instead") as caught:
        _ = SizedKernel(extract_scop(KERNEL), {"n": 64}, "x").translation_unit
    assert caught.value.kernel == "x"


# Work-groups of 32 work-items: a K20 holds 16 on each of 13 units, an L40 24 on each of 142.
WAVE = {"n": 32 * 16 * 13}


def chosen():
    machine = resolve_target().machine
    return machine and machine.name


@pytest.mark.parametrize("wrong", [0, -32, 32.5, "32"])
def test_a_sub_group_has_a_whole_number_of_work_items(wrong):
    with pytest.raises(MachineError, match="whole number of work-items above zero"):
        kernel_feature_values(["f_thread_groups"], DOUBLED, {"n": 16}, wrong)


@pytest.mark.parametrize("names", [["f_waves"], ["f_op_float32_mul", "f_waves"]])
def test_the_call_comes_before_the_block_and_the_block_before_the_name_otherwise(names):
    assert target_of(names, otherwise="V100").machine is load_machine("V100")
    with using_machine("L40"):
        assert target_of(names, otherwise="V100").machine is load_machine("L40")
        assert target_of(names, 64, "K20", otherwise="V100") == Target(64, load_machine("K20"))
    assert target_of(names, 16) == Target(16)


def test_pocl_does_not_run_work_items_in_lock_step():
    pocl, other = (
        Device(name, "vendor", "a CPU", "1.0") for name in ("Portable Computing Language", "Intel(R) OpenCL")
    )
    assert not CALIBRATION.target().lock_step  # one of PoCL
    assert [target_on(device, []).lock_step for device in (pocl, other, None)] == [False, True, True]


def test_values_follow_the_machine():
    def waves(machine=None):
        return kernel_feature_values(["f_waves"], KERNEL, WAVE, machine=machine)["f_waves"]

    with using_machine("K20"):
        assert waves() == 1
        assert waves("L40") == pytest.approx(16 * 13 / (24 * 142))
    # 255 registers are 256 for each of 32 work-items: 2 sub-groups in each of four files of 16384, not 16 work-groups.
    with using_machine("K20", registers=255):
        assert waves() == 2
        assert waves("K20") == 1
    with pytest.raises(MachineError, match="feature f_waves needs a machine"):
        waves()


@pytest.mark.parametrize(("feature", "words"), [
    ("", "^this needs a machine; "), ("f_occupancy", "^feature f_occupancy needs a machine; pass machine=NAME"),
])  # fmt: skip
def test_the_error_names_the_feature_and_every_machine(feature, words):
    with pytest.raises(MachineError, match=words) as caught:
        Target().need_machine(feature)
    assert caught.value.feature == feature
    assert all(name in caught.value.message for name in machine_names())
    assert Target(machine=load_machine("K20")).need_machine(feature) is load_machine("K20")


def test_threads_do_not_see_one_anothers_machine():
    names = ["K20", "V100", "L40", None]
    together = Barrier(len(names), timeout=120)

    def inside(name):
        before = chosen()
        with using_machine(name):
            together.wait()
            here = chosen()
            together.wait()
        return before, here, chosen()

    with using_machine("H200"), ThreadPoolExecutor(len(names)) as pool:
        assert list(pool.map(inside, names)) == [(None, name, None) for name in names]
        assert chosen() == "H200"
        # A copied context brings the machine along, as asynchronous tasks do.
        assert pool.submit(copy_context().run, chosen).result() == "H200"
