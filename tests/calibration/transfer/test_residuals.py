"""What residuals on other devices say of a device: against closed forms, and with similar devices."""

import math

import numpy as np
import pytest

from perflex import load_machine
from perflex.calibration.transfer.devices import distances, one_factor_log_times
from perflex.calibration.transfer.residuals import Components, Residuals, carry_over, components_of

APART = np.where(np.eye(6, dtype=bool), 0.0, np.inf)


def _residuals(values, kernels, programs):
    """Return residuals of shape (devices, programs * kernels)."""
    devices = np.repeat(np.arange(len(values)), values.shape[1]).astype(np.intp)
    names = [f"p{p}" for p in range(programs) for _ in range(kernels)] * len(values)
    labels = [f"p{p}(n={k})" for p in range(programs) for k in range(kernels)] * len(values)
    return Residuals(devices, tuple(names), tuple(labels), values.ravel())


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_kernel_is_shrunk_by_how_well_devices_agree(count):
    values = np.linspace(0.2, 0.4, count)[:, None]
    parts = Components(program=0.0, kernel=0.3, program_on_device=0.0, kernel_on_device=0.2, noise=0.1)
    found = carry_over(_residuals(values, 1, 1), parts, APART, 5, [("p0", "p0(n=0)"), ("p0", "p0(n=9)")])
    common, own = 0.3**2, 0.2**2 + 0.1**2
    share = count * common / (count * common + own)
    assert found.correction[0] == pytest.approx(share * values.mean())
    assert found.deviation[0] == pytest.approx(math.sqrt(common * (1 - share) + own))
    # Without a part in common a kernel says nothing of another one.
    assert found.correction[1] == pytest.approx(0.0, abs=1e-12)
    assert found.deviation[1] == pytest.approx(math.sqrt(common + own))


def test_other_kernels_of_a_program_take_its_part():
    parts = Components(program=0.3, kernel=0.1, program_on_device=0.0, kernel_on_device=0.0, noise=0.1)
    values = np.full((1, 4), 0.4)
    found = carry_over(_residuals(values, 4, 1), parts, APART, 5, [])
    share = 4 * 0.3**2 / (4 * 0.3**2 + 0.1**2 + 0.1**2)
    assert found.programs["p0"][0] == pytest.approx(share * 0.4)


def test_the_parts_come_back():
    rng = np.random.default_rng(3)
    devices, programs, kernels = 6, 40, 8
    truth = {"program": 0.2, "kernel": 0.1, "program_on_device": 0.08, "kernel_on_device": 0.05}
    values = rng.normal(0, truth["program"], programs).repeat(kernels)
    values = values + rng.normal(0, truth["kernel"], programs * kernels)
    here = rng.normal(0, truth["program_on_device"], (devices, programs)).repeat(kernels, axis=1)
    values = values + here + rng.normal(0, truth["kernel_on_device"], (devices, programs * kernels))
    found = components_of(_residuals(values, kernels, programs), APART)
    assert found.program == pytest.approx(0.2, rel=0.3)
    assert found.kernel == pytest.approx(0.1, rel=0.15)
    assert found.program_on_device == pytest.approx(0.08, rel=0.2)
    # What is of a kernel on a device is told from noise by similar devices only.
    assert math.hypot(found.kernel_on_device, found.noise) == pytest.approx(0.05, rel=0.1)


def test_one_device_does_not_tell_what_is_common():
    random = np.random.default_rng(3)
    programs = 0.3 * random.normal(size=12)
    values = np.repeat(programs, 5)[None, :] + 0.1 * random.normal(size=(1, 60))
    found = components_of(_residuals(values, 5, 12), APART)
    assert found.program == found.program_on_device
    assert found.kernel == found.kernel_on_device
    assert math.hypot(found.program, found.program_on_device) == pytest.approx(np.sqrt(np.mean(programs**2)), rel=0.1)


def test_similar_devices_count_more():
    machines = [load_machine(name) for name in ("A100-40GB", "K20", "A100-80GB")]
    distance = distances(machines)
    assert distance[0, 2] < 0.3 < distance[1, 2]
    parts = Components(
        program=0.1, kernel=0.1, program_on_device=0.0, kernel_on_device=0.3, noise=0.01, length_scale=0.5
    )
    found = carry_over(_residuals(np.array([[0.5], [-0.5]]), 1, 1), parts, distance, 2, [("p0", "p0(n=0)")])
    assert found.correction[0] > 0.2
    assert np.isinf(distances([machines[0], None])[0, 1])


def test_one_factor_follows_the_source_that_the_samples_follow():
    rng = np.random.default_rng(1)
    labels = [f"k{place}" for place in range(30)]
    truth = rng.normal(0, 1, 30)
    near = dict(zip(labels, truth - 0.7 + rng.normal(0, 0.01, 30), strict=True))
    far = dict(zip(labels, truth + 0.4 + rng.normal(0, 0.5, 30), strict=True))
    samples = dict(zip(labels[:10], truth[:10], strict=True))
    found = one_factor_log_times([near, far], samples)
    off = np.array([found[label] for label in labels[10:]]) - truth[10:]
    assert np.abs(off).max() < 0.15
    assert one_factor_log_times([near, far], {"unknown": 0.0}) == {}
