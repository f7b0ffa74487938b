"""Devices that differ as a ready model's usual values say: features of matrix products, and times made of them."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from perflex import Calibration, calibrate, load_times
from perflex.models import load_model

GENERAL = load_model("general_tile")
MODEL = GENERAL.model()
DEVICES = {"A100-80GB": "NVIDIA A100-SXM4-80GB", "H100-SXM": "NVIDIA H100 80GB HBM3"}
_TILES = (
    *((128, 128, 32), (64, 64, 32), (64, 128, 64), (32, 64, 32), (128, 64, 32)),
    *((256, 64, 32), (64, 32, 64), (128, 256, 64), (32, 32, 32), (64, 256, 32)),
)
_SIZES = ((512, 512, 512), (4096, 4096, 1024), (1024, 8192, 2048), (64, 4096, 4096))


def usual(machine):
    """Return what the usual values say of a machine."""
    return replace(Calibration.load("general_tile"), machine=machine, device={"name": machine})


@lru_cache
def counted(machine, tiles=4):
    """Return the features of matrix products on a machine, `tiles` times two rows each, whose times are no matter."""
    lines = []
    for m, n, k in _SIZES:
        lines += [f"AUTOTUNE mm({m}x{k}, {k}x{n})", f"strides: [{k}, 1], [{n}, 1]"]
        lines.append("dtypes: torch.float16, torch.float16")
        for number, (rows, columns, inner) in enumerate(_TILES[:tiles]):
            blocks = f"BLOCK_K={inner}, BLOCK_M={rows}, BLOCK_N={columns}, num_stages=3"
            lines += [f"  triton_mm_{number}{warps} 1.0 ms 50.0% {blocks}, num_warps={warps}" for warps in (4, 8)]
    with TemporaryDirectory() as folder:
        path = Path(folder, "autotune.log")
        path.write_text("\n".join(lines) + "\n")
        return calibrate(GENERAL.name, times=load_times(path, device=DEVICES[machine])).table


def timed(table, random, spread, noise):
    """Return a device's rows: parameters drawn about the usual values, and noise on each row, of these deviations."""
    parameters = {name: value * random.lognormal(0, spread) for name, value in GENERAL.usual.items()}
    seconds = np.asarray(MODEL.evaluate(parameters, table.columns(MODEL.input_features())))
    values = table.values.copy()
    values[:, table.features.index(MODEL.output_feature)] = seconds * random.lognormal(0, noise, len(table))
    return replace(table, values=values)


def in_interval(found, table):
    """Return the share of rows inside of their intervals."""
    seconds = table.column(MODEL.output_feature)
    return float(np.mean((found.low <= seconds) & (seconds <= found.high)))
