"""The general model for GPUs: its measurement kernels determine its costs."""

import pytest

from perflex import TimingOptions, calibrate, using_machine
from perflex.features import kernel_feature_values
from perflex.models import load_model, measurement_kernels
from perflex.testing import FakeDevice

TRUE = {
    "p_launch": 4e-6, "p_core": 0.7, "p_l1": 1.3, "p_local": 1.9, "p_fp64": 1.1, "p_l2": 1.6, "p_dram": 1.15,
    "p_latency": 1.4, "p_sharp": 1.5,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::perflex.errors.PerflexWarning")
def test_known_costs_come_back():
    ready = load_model("general_gpu")
    kernels = measurement_kernels(ready)
    model = ready.model()
    times = {}
    for kernel in kernels:
        values = kernel_feature_values(model.input_features(), kernel, kernel.sizes, 32, machine="V100")
        times[kernel.name] = model.evaluate(TRUE, values)
    device = FakeDevice(lambda label, _: times[label])
    with using_machine("V100"):
        found = calibrate("general", kernels, device=device, timing=TimingOptions(trials=1, min_trials=1))
    assert dict(found.params) == pytest.approx(TRUE, rel=1e-4)
    assert not found.dropped
    assert found.machine == "V100"
