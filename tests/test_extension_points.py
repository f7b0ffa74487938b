"""What users may bring, with public names only: features, generators, devices."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from perflex import Model, calibrate
from perflex.errors import FeatureError, MachineError, MeasurementError, PerflexWarning, TagError, UnknownFeatureError
from perflex.features import (
    Amount,
    Family,
    SizedKernel,
    Target,
    count_features,
    extract_scop,
    kernel_feature_values,
    parse_feature,
    register_family,
    register_feature,
    unregister_feature,
)
from perflex.testing import FakeDevice
from sample_kernels import matmul, pointwise
from uipick import Argument, Constraint, Generator, KernelCollection

NAME = "f_test_array_count"


def arrays(scop, sizes, target, space):
    number = sum(array.space == space for array in scop.arrays)
    return number * target.sub_group_size * np.ones_like(next(iter(sizes.values())))


@pytest.fixture(scope="module", autouse=True)
def family():
    register_family(
        Family(
            "Arrays of one address space",
            f"{NAME}_(global|local|private)",
            "array",
            arrays,
            inventory=lambda scop: sorted({f"{NAME}_{array.space}" for array in scop.arrays}),
            amount=lambda *_: Amount(1.0, "array"),
        )
    )


def test_a_family_counts_for_the_target_it_is_given():
    scop = extract_scop(matmul(prefetch=True))
    for space, arrays in (("global", 3), ("local", 2)):
        feature = parse_feature(f"{NAME}_{space}")
        assert feature.value(scop, {"n": 64}, Target(1)) == arrays
        assert feature.value(scop, {"n": np.array([64, 128])}, Target(32)).tolist() == [32 * arrays, 32 * arrays]
        assert feature.matches(scop, {"n": 64})
    assert not parse_feature(f"{NAME}_local").matches(extract_scop(matmul(prefetch=False)), {"n": 64})


def test_features_of_a_family_are_those_of_a_model():
    model = Model("f_cl_wall_time", f"p_array * {NAME}_global + p_madd * f_op_float32_madd")
    true = {"p_array": 1e-7, "p_madd": 2e-11}
    kernels = [(matmul(prefetch=False), {"n": n}) for n in (64, 128, 256, 512)]
    seconds = {f"matmul(n={sizes['n']})": model.eval_with_kernel(true, kernel, sizes) for kernel, sizes in kernels}
    found = calibrate(model, kernels, device=FakeDevice(lambda label, _: float(seconds[label])))
    assert found.params == pytest.approx(true, rel=1e-6)
    assert {each.name: each.unit for each in found.fit.parameters}["p_array"] == "s per array"


def test_a_function_is_a_feature_until_it_is_removed():
    @register_feature("f_test_statements", unit="statement")
    def statements(scop, _sizes):
        return len(scop.statements)

    kernel = matmul(prefetch=False)
    assert kernel_feature_values(["f_test_statements"], kernel, {"n": 64}) == {"f_test_statements": 3}
    unregister_feature("f_test_statements")
    with pytest.raises(UnknownFeatureError, match="f_test_statements"):
        parse_feature("f_test_statements")


def test_features_of_the_page_are_short(monkeypatch):
    page = (Path(__file__).parents[1] / "docs" / "reference" / "features.md").read_text(encoding="utf-8")
    counted, on_machine = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "Family(" in block)
    assert len([line for line in counted.splitlines() if line]) <= 10
    assert len([line for line in on_machine.splitlines() if line]) <= 20
    monkeypatch.setattr("builtins.print", lambda *_: None)
    for block in (counted, on_machine):
        exec(block, {"matmul": SimpleNamespace(naive=lambda: matmul(prefetch=False))})  # noqa: S102 - the page's own code
    kernel, n = matmul(prefetch=False), 64
    # Loads of a differ between work-items along axis 1 only, and count once for each sub-group.
    (entry,) = count_features(kernel, {"n": n}, identifiers=["f_my_loads_float32"])
    assert entry.value == n**3 + n**3 / 32
    assert "n" in entry.expression
    assert kernel_feature_values(["f_my_loads_float64"], kernel, {"n": n}) == {"f_my_loads_float64": 0}
    sizes = {"n": np.array([64, 128])}
    found = kernel_feature_values(["f_my_dram_seconds"], kernel, sizes, machine="V100")["f_my_dram_seconds"]
    assert found == pytest.approx(3 * 4 * sizes["n"] ** 2 / 800e9)
    with pytest.raises(MachineError, match="f_my_dram_seconds needs a machine"):
        kernel_feature_values(["f_my_dram_seconds"], kernel, sizes)


def test_a_family_without_count_or_value_is_refused():
    with pytest.raises(FeatureError, match="'Nothing' has neither a count nor a value"):
        register_family(Family("Nothing", "f_nothing", "1"))


@dataclass
class Simulator:
    """A device of a user's own: what it is given to build are kernels with sizes."""

    name: str = "simulator"
    platform: str = "mine"
    sub_group_size: int = 16
    built: list[SizedKernel] = field(default_factory=list)

    def backend(self):
        return SimulatorBackend(self)


@dataclass
class SimulatorBackend:
    device: Simulator
    timer_resolution_s: float = 1e-9

    def build(self, job):
        self.device.built.append(job)
        if job.sizes["n"] > 4096:
            msg = f"{job.label}: larger than the simulator's memory; give a smaller n"
            raise MeasurementError(msg, kernel=job.label)
        return SimulatedKernel(1e-6 + 1e-12 * job.sizes["n"] ** 3)

    def close(self):
        pass


@dataclass
class SimulatedKernel:
    seconds: float

    def run(self, launches):
        return (self.seconds,) * launches


@pytest.mark.filterwarnings("ignore:this prediction is doubtful")
def test_a_device_of_ones_own_is_calibrated():
    device = Simulator()
    model = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_madd * f_op_float32_madd")
    kernel = matmul(prefetch=False)
    with pytest.warns(PerflexWarning, match="larger than the simulator's memory"):
        found = calibrate(model, [(kernel, {"n": n}) for n in (256, 512, 1024, 8192)], device=device)
    # A multiply-add is counted once for the 16 work-items of a sub-group.
    assert found.params == pytest.approx({"p_launch": 1e-6, "p_madd": 16e-12}, rel=1e-6)
    assert found.device["name"] == "simulator"
    assert [label for label, _ in found.dropped] == ["matmul(n=8192)"]
    assert {job.kernel.default_entrypoint.name for job in device.built} == {"matmul"}
    assert found.predict(kernel, {"n": 2048}) == pytest.approx(1e-6 + 1e-12 * 2048**3, rel=1e-6)


def sums(*, terms):
    """Sums of some terms.

    Source: this test.
    """
    return pointwise(" + ".join(["x[i]"] * terms))


SUMS = Generator(
    name="sums",
    tags=frozenset({"sums"}),
    arguments=(
        Argument("terms", "int", "terms of each sum", (1, 2, 3, 4), (2, 3)),
        Argument("n", "int", "elements", (64, 96), (64,)),
    ),
    build=sums,
    size_arguments=("n",),
    constraints=(Constraint("at most 3 terms for 96 elements", lambda a: a["n"] == 64 or a["terms"] < 4),),
)


def test_a_generator_of_ones_own_makes_measurement_kernels():
    collection = KernelCollection([SUMS])
    kernels = collection.generate_kernels(["sums"])
    assert [kernel.name for kernel in kernels] == ["sums(terms=2, n=64)", "sums(terms=3, n=64)"]
    assert [kernel.sizes for kernel in kernels] == [{"n": 64}, {"n": 64}]
    values = [kernel_feature_values(["f_op_float32_add"], each, each.sizes, 32) for each in kernels]
    assert values == [{"f_op_float32_add": 2}, {"f_op_float32_add": 4}]
    with pytest.raises(TagError, match="at most 3 terms for 96 elements"):
        collection.generate_kernels(["sums", "terms:4", "n:96"])
