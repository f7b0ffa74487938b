"""``perflex calibrate --times``, ``diagnose --out`` and ``transfer``: from logs to predictions, no device is opened."""

from pathlib import Path

import pytest

from perflex import Calibration, save_times
from support.own_model import EXAMPLE, MODEL

NAIVE, PREFETCHING = f"{EXAMPLE}:naive", f"{EXAMPLE}:prefetching"
EVERYTHING = [(name, n) for name in ("naive", "prefetching") for n in (128, 256, 512)]


def seconds(name, n, launch_us=5.0, madd_us=16e-6, more=1.0):
    """Return the time of a kernel in microseconds: 32 work-items share a multiply-add, n**3 / 32 of them."""
    return (launch_us + n**3 / 32 * madd_us) * (more if name == "prefetching" else 1.0)


def write_log(path, rows, **law):
    # Each size is of a node of its own; times are right to half a percent.
    off = {"naive": 0.002, "prefetching": -0.002}
    lines = [f"{name},{n},{seconds(name, n, **law) * (1 + off[name] * (-1) ** (n // 128))!r},n{n}" for name, n in rows]
    Path(path).write_text("\n".join(["kernel,n,time_us,node", *lines]) + "\n")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("perflex.devices.listing._listed", lambda: pytest.fail("devices were looked for"))
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(MODEL)
    write_log("log.csv", EVERYTHING)


CALIBRATE = ("calibrate", "mine.yaml", "--times", "log.csv", "--kernels", EXAMPLE, "-o", "c.yaml")


def test_from_a_log_to_predictions(run, content, shown, refused):
    code, out, err = run(*CALIBRATE, "--device", "node GPU", "--machine", "V100")
    assert code == 0
    assert "6 measurement kernels" in out
    assert out.endswith("c.yaml\n")
    assert "times: log.csv, node GPU, 6 rows; no device is opened" in err
    assert "warning: log.csv: no kernel has a size or argument called node" in err
    calibration = Calibration.load("c.yaml")
    assert dict(calibration.params) == pytest.approx({"p_launch": 5e-6, "p_madd": 16e-12}, rel=0.01)
    assert calibration.device == {"name": "node GPU", "kind": "gpu", "times_of": "log.csv"}
    (entry,) = content("predict", "c.yaml", NAIVE, "n=384", "--confidence", "0.9")
    assert entry["predicted_s"] == pytest.approx(5e-6 + 384**3 / 32 * 16e-12, rel=0.01)
    shown("rank", "c.yaml", NAIVE, PREFETCHING, "n=384")
    shown("diagnose", "c.yaml")
    error = refused("predict", "c.yaml", NAIVE, "n=384", "--time")
    assert "is based on times of node GPU in log.csv, measured elsewhere" in error


def test_a_calibrations_times_go_elsewhere(shown):
    shown(*CALIBRATE, "--only", "node=n128,n512")
    calibration = Calibration.load("c.yaml")
    assert len(calibration.fit.kernels) == 4
    assert "out/times.csv" in shown("diagnose", "c.yaml", "--out", "out").splitlines()
    save_times(calibration, "same.csv")
    assert Path("out/times.csv").read_bytes() == Path("same.csv").read_bytes()
    # Labels of a user's kernels hold the functions' names.
    shown("calibrate", "mine.yaml", "--times", "out/times.csv", "--kernels", EXAMPLE, "-o", "d.yaml")
    assert Calibration.load("d.yaml").fit.kernels == calibration.fit.kernels


# Transfer: the second kernel takes 20 % longer than its multiply-adds say, on every device.
TRANSFER = ("transfer", "0.yaml", "1.yaml", "2.yaml", "--machine", "A40", "--kernels", EXAMPLE, "-o", "new.yaml")


@pytest.fixture
def sources(folder, shown):
    for place, (launch, madd) in enumerate(((5.0, 16e-6), (6.0, 20e-6), (4.0, 13e-6))):
        write_log(f"log{place}.csv", EVERYTHING, launch_us=launch, madd_us=madd, more=1.2)
        words = ("calibrate", "mine.yaml", "--times", f"log{place}.csv", "--kernels", EXAMPLE)
        shown(*words, "--device", f"GPU {place}", "--machine", "V100", "-o", f"{place}.yaml")
    write_log("few.csv", [("naive", 128), ("naive", 512)], launch_us=5.5, madd_us=18e-6)


def test_from_few_times_to_predictions(sources, shown, content):
    out = shown(*TRANSFER, "--samples", "few.csv")
    assert "transferred from 3 devices: GPU 0, GPU 1, GPU 2" in out
    assert "2 samples of this device; 6 kernels of 2 programs have been timed" in out
    assert out.splitlines()[-1] == "new.yaml"
    (entry,) = content("predict", "new.yaml", PREFETCHING, "n=512", "--confidence", "0.9")
    true = (5.5 + 512**3 / 32 * 18e-6) * 1.2e-6
    # That this kernel takes longer than its multiply-adds say, the samples do not know: other devices do.
    assert entry["predicted_s"] == pytest.approx(true, rel=0.05)
    assert entry["low_s"] < true < entry["high_s"]
    assert entry["knowledge"] == "timing on other devices"
    assert Calibration.load("new.yaml").machine == "A40"
    # Ranked as predicted.
    ranked = {place["name"]: place for place in content("rank", "new.yaml", NAIVE, PREFETCHING, "n=512")}
    assert ranked[PREFETCHING]["predicted_s"] == pytest.approx(entry["predicted_s"], rel=1e-9)
    assert ranked[PREFETCHING]["knowledge"] == "timing on other devices"
    unknown = content("rank", "new.yaml", NAIVE, PREFETCHING, "n=64")
    assert {place["knowledge"] for place in unknown} == {"nothing"}


@pytest.mark.parametrize("words", [("--only", "node=n128"), ("--device", "some GPU")])
def test_what_is_said_of_a_table_that_is_not_there_is_refused(words, refused):
    assert f"{words[0]}: only for a table of times; name one with --samples" in refused(*TRANSFER, *words)


def test_a_value_that_no_row_has_is_refused(refused):
    """Else its rows would be missing without a word."""
    told = refused(*CALIBRATE, "--only", "node=n128,n265")
    assert "log.csv has no row with node n265; there is n128, n256, n512" in told
    told = refused(*CALIBRATE, "--only", "node=n128", "--only", "node=n256")
    assert "--only node is given twice, as n128 and as n256; give it once" in told


def test_without_samples_and_what_to_time_next(sources, run, shown):
    code, out, err = run(*TRANSFER)
    assert code == 0
    assert "no sample of this device" in err
    assert "0 samples of this device" in out
    out = shown(*TRANSFER, "--samples", "few.csv", "--suggest", "2", "--candidates", "log0.csv")
    taken = [line.removeprefix("next sample: ") for line in out.splitlines() if line.startswith("next sample: ")]
    assert len(taken) == 2
    # Of the other program nothing is known here yet.
    assert taken[0].startswith("prefetching")
