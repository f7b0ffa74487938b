"""The program for a GPU machine ends in time, goes on where it was, and says what became of each step."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "bench"))

import gpu_study


@pytest.mark.machine
def test_a_step_that_outlasts_its_share_is_ended_with_all_it_started(tmp_path):
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)  # left over'])"
    begun = time.monotonic()
    ended = gpu_study.run(gpu_study.Step("long", 1, (sys.executable, "-c", child)), tmp_path, 7.0)
    assert ended == "its 7 s were over"
    assert time.monotonic() - begun < 20
    listed = subprocess.run(["ps", "-ef"], capture_output=True, text=True, check=True).stdout
    assert "left over" not in listed


def test_steps_that_ended_well_are_not_repeated(tmp_path, monkeypatch):
    run = []
    monkeypatch.setattr(gpu_study, "run", lambda step, *_: run.append(step.name) or "done")
    (tmp_path / "state.json").write_text(json.dumps({"devices": "done"}), encoding="utf-8")
    words = ["gpu_study", "--out", str(tmp_path), "--device", "x", "--only", "devices,doctor,judge"]
    monkeypatch.setattr(sys, "argv", words)
    assert gpu_study.main() == 1
    assert run == ["doctor"]
    assert "| judge | needs calibrate, families |" in (tmp_path / "report.md").read_text(encoding="utf-8")
