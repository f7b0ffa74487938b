"""What counts kernels takes loopy kernels, measurement kernels and Scops alike, and machines by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from perflex import estimate_ecm, estimate_volumes, load_machine
from perflex.errors import MachineError, MissingSizeError, UnsupportedKernelError
from perflex.features import content_hash, count_features, counts_of, extract_scop
from sample_kernels import matmul
from uipick import MeasurementKernel

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = {"n": 512}
KERNEL = matmul(prefetch=False)


@pytest.mark.parametrize(
    "estimate",
    [
        lambda kernel: estimate_volumes(kernel, SIZES, "V100"),
        lambda kernel: estimate_ecm(kernel, SIZES, "Gold-6248"),
        lambda kernel: count_features(kernel, SIZES),
    ],
    ids=["volumes", "ecm", "counts"],
)
def test_kernels_of_all_kinds(estimate: Callable[[Any], object]) -> None:
    measured = MeasurementKernel(KERNEL, SIZES, "mine", "matmul", {})
    expected = str(estimate(extract_scop(KERNEL)))
    assert [str(estimate(kernel)) for kernel in (KERNEL, measured)] == [expected, expected]


def test_a_machine_by_name() -> None:
    assert estimate_volumes(KERNEL, SIZES, "V100") == estimate_volumes(KERNEL, SIZES, load_machine("V100"))


@pytest.mark.parametrize("machine", [None, 3, KERNEL])
def test_what_is_no_machine(machine: Any) -> None:
    for estimate in (estimate_volumes, estimate_ecm):
        with pytest.raises(MachineError, match="given by its name, its file or a Machine, not by"):
            estimate(KERNEL, SIZES, machine)
    with pytest.raises(MachineError, match="given by its name"):
        load_machine(machine)


@pytest.mark.parametrize("sizes", [None, 512])
def test_what_are_no_sizes(sizes: Any) -> None:
    for estimate, machine in ((estimate_volumes, "V100"), (estimate_ecm, "Gold-6248")):
        with pytest.raises(MissingSizeError, match=r"needs a value for size n; pass {'n': 1024}"):
            estimate(KERNEL, sizes, machine)


@pytest.mark.parametrize(
    ("kernel", "remedy"),
    [
        (KERNEL.default_entrypoint, r"t_unit\.with_entrypoints\('matmul'\)"),
        ("my.cl", r"source_kernel\('my.cl', \.\.\.\)"),
        (None, "expected a loopy TranslationUnit or a Scop"),
    ],
)
def test_what_is_no_kernel(kernel: Any, remedy: str) -> None:
    for estimate, machine in ((estimate_volumes, "V100"), (estimate_ecm, "Gold-6248")):
        with pytest.raises(UnsupportedKernelError, match=remedy):
            estimate(kernel, SIZES, machine)


def test_what_needs_a_scop_says_how_to_make_one() -> None:
    of_any: tuple[Callable[[Any], object], ...] = (counts_of, content_hash)
    for function in of_any:
        with pytest.raises(UnsupportedKernelError, match=r"give extract_scop\(kernel\)"):
            function(KERNEL)
