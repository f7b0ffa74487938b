"""On a simulator of a device, kernels that it cannot run are left out of a calibration, each with its reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ICD = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")
# The last but one has work-groups of more than 1024 work-items; the last takes a minute and more.
CODE = """
import json
import warnings
import loopy as lp
from perflex import Model, TimingOptions, calibrate
from uipick import ALL_GENERATORS, KernelCollection

collection = KernelCollection(ALL_GENERATORS)
tags = ["flops_madd_pattern", "dtype:float32", "groups_fit:True", "m:64"]
wide = lp.make_kernel("{[i]: 0 <= i < n}", "a[i] = 1", ["n", lp.GlobalArg("a", "float32", "n")], assumptions="n >= 1")
wide = lp.split_iname(wide, "i", 4096, outer_tag="g.0", inner_tag="l.0")
kernels = [
    *collection.generate_kernels(["empty", "lsize_0:1", "lsize_1:1", "ngroups:16,64,256"]),
    (wide, {"n": 8192}),
    *collection.generate_kernels([*tags, "nelements:32768"]),
]
model = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_group * f_thread_groups")
warnings.simplefilter("ignore")
timing = TimingOptions(trials=3, min_trials=3, limit_s=1.0, precision=0.5)
found = calibrate(model, kernels, device="oclgrind", timing=timing)
print(json.dumps([len(found.fit.kernels), [reason for _, reason in found.dropped]]))
"""


@pytest.mark.skipif(not ICD.exists(), reason="Oclgrind is not installed")
def test_what_a_simulator_cannot_run_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "oclgrind.icd").write_text(f"{ICD}\n", encoding="utf-8")
    places = {"XDG_CACHE_HOME": str(tmp_path), "PERFLEX_STORE": str(tmp_path / "store.sqlite")}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | places | {"OCL_ICD_VENDORS": str(tmp_path), "PERFLEX_ORIGINAL_ICD_VENDORS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    kept, reasons = json.loads(done.stdout)
    assert kept == 3
    assert "needs a work-group of 4096 work-items" in reasons[0]
    assert reasons[1].startswith("does not end")
