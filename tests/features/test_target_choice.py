"""Which machine features are computed for: that of the call, of the block around it, or the one otherwise."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Barrier

import pytest

from perflex import load_machine, machine_names, using_machine
from perflex.errors import MachineError
from perflex.features import Target, kernel_feature_values
from perflex.features.target import resolve_target
from perflex.features.values import target_of
from sample_kernels import pointwise

KERNEL = pointwise("x[i] * 2")
# Work-groups of 32 work-items: a K20 holds 16 on each of 13 units, an L40 24 on each of 142.
WAVE = {"n": 32 * 16 * 13}


def chosen() -> str | None:
    machine = resolve_target().machine
    return machine and machine.name


@pytest.mark.parametrize("names", [["f_waves"], ["f_op_float32_mul", "f_waves"]])
def test_the_call_comes_before_the_block_and_the_block_before_the_name_otherwise(names: list[str]) -> None:
    assert target_of(names, otherwise="V100").machine is load_machine("V100")
    with using_machine("L40"):
        assert target_of(names, otherwise="V100").machine is load_machine("L40")
        assert target_of(names, 64, "K20", otherwise="V100") == Target(64, load_machine("K20"))
    assert target_of(names, 16) == Target(16)


def test_values_follow_the_machine() -> None:
    def waves(machine: str | None = None) -> float:
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


def test_the_error_names_the_feature_and_every_machine() -> None:
    with pytest.raises(MachineError, match=r"^this needs a machine; ") as caught:
        Target().need_machine()
    assert all(name in caught.value.message for name in machine_names())
    with pytest.raises(MachineError, match=r"^feature f_occupancy needs a machine; pass machine=NAME") as caught:
        Target().need_machine("f_occupancy")
    assert caught.value.feature == "f_occupancy"
    assert Target(machine=load_machine("K20")).need_machine("f_waves") is load_machine("K20")


def test_threads_do_not_see_one_anothers_machine() -> None:
    names = ["K20", "V100", "L40", None]
    together = Barrier(len(names), timeout=120)

    def inside(name: str | None) -> tuple[str | None, str | None, str | None]:
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
