"""How fast a device is."""

import pytest

from perflex import calibrate, using_store
from perflex.calibration.ready import multiply_add_rate, scale_of
from perflex.errors import CalibrationError, MeasurementError, PerflexWarning
from perflex.testing import FakeDevice


def madds(_, sizes):
    return sizes["nelements"] * 32 * sizes["m"] / 2e12


def failing(*parts, kind="prepare"):
    """Return a device that does not run kernels whose label has one of the parts."""

    def or_fail(label, sizes):
        if any(part in label for part in parts):
            msg = f"{label}: needs a work-group of 256 work-items"
            raise MeasurementError(msg, kernel=label, kind=kind)
        return madds(label, sizes)

    return FakeDevice(or_fail)


# Nothing fails; a larger kernel does; all but the shortest do, as on a simulator.
@pytest.mark.parametrize("parts", [(), ("nelements=1048576",), ("nelements=65536", "nelements=1048576")])
def test_multiply_add_rate(parts):
    assert multiply_add_rate(failing(*parts, kind="hang")) == pytest.approx(2e12)


def test_a_device_on_which_the_shortest_kernel_does_not_end_is_an_error_at_once():
    with pytest.raises(MeasurementError, match="one launch took 60 s, the limit is 10 s"):
        multiply_add_rate(FakeDevice(lambda _label, _sizes: 60.0))


def test_a_device_that_does_not_run_the_kernel_for_its_speed_is_calibrated_all_the_same():
    with pytest.warns(PerflexWarning, match=r"m=64\): needs a work-group of 256 .* speed is not known, .* sizes"):
        assert multiply_add_rate(failing("m=64")) is None
    assert scale_of(None) == 1.0
    with pytest.warns(PerflexWarning) as caught:
        found = calibrate("madd_only", device=failing("m=64)", "m=1024)"))
    assert found.params["p_f32madd"] > 0
    pilot, *left_out = [str(one.message) for one in caught]
    assert "speed is not known" in pilot
    assert [label for label, _ in found.dropped] == [text.partition(" is left out: ")[0] for text in left_out]
    assert len(left_out) == len(found.fit.kernels) / 3 > 0


def test_a_run_that_goes_on_has_the_speed_that_it_had(tmp_path):
    timed = []

    def law(label, sizes):
        timed.append(label)
        if len(set(timed)) > 3 and "m=64)" not in label:
            raise KeyboardInterrupt
        return madds(label, sizes)

    with using_store(tmp_path / "store.sqlite"):
        with pytest.raises(KeyboardInterrupt):
            calibrate("madd_only", device=FakeDevice(law))
        pilots = [label for label in dict.fromkeys(timed) if "m=64)" in label]
        timed.clear()
        calibrate("madd_only", device=FakeDevice(lambda label, sizes: timed.append(label) or madds(label, sizes)))
    assert pilots
    assert not set(pilots) & set(timed)


def test_without_kernels_that_determine_the_parameters_there_is_no_calibration():
    with (
        pytest.warns(PerflexWarning),
        pytest.raises(
            CalibrationError, match=r"none of the 16 kernels could be used .*; so nothing determines p_f32madd"
        ),
    ):
        calibrate("madd_only", device=failing("madd"))
