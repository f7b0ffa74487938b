"""Valid inputs of every kind that perflex reads."""

from __future__ import annotations

import csv
import io
import json
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

TOP = Path(__file__).parents[3]

TRANSPOSE = """\
schema: perflex-scop/1
name: transpose
parameters: [n]
assumptions: "[n] -> { : n >= 1 and n mod 16 = 0 }"
launches:
- groups: ["floor(n/16)", "1/16*n"]
  items: [16, 16]
  repeats: 2
arrays:
- {name: a, space: global, dtype: float32, shape: [n, n], strides: [n, 1], alignment: 256}
- {name: b, space: global, dtype: float32, shape: [n, n], strides: [n, 1]}
- {name: tile, space: local, dtype: float32, shape: [16, 17], strides: [17, 1]}
statements:
- name: fetch
  domain: "[n] -> { [gid0, gid1, lid0, lid1] : 0 <= 16gid0 < n and 0 <= 16gid1 < n and 0 <= lid0, lid1 < 16 }"
  accesses:
  - {array: a, direction: load, relation: "{ [g0, g1, l0, l1] -> [16g1 + l1, 16g0 + l0] }", tag: aLD, text: "a[i, j]"}
  - {array: tile, direction: store, relation: "{ [g0, g1, l0, l1] -> [l1, l0] }", strides: [17, 1], distinct: true}
  schedule: [0]
- name: put
  domain: "[n] -> { [gid0, gid1, lid0, lid1, k] : 0 <= 16gid0, 16gid1 < n and 0 <= lid0, lid1 < 16 and 0 <= k < 4 }"
  accesses:
  - {array: tile, direction: load, relation: "{ [g0, g1, l0, l1, k] -> [l0, l1] }"}
  - {array: b, direction: store, relation: "{ [g0, g1, l0, l1, k] -> [16g0 + l1, 16g1 + l0] }", stated: by hand}
  operations:
  - {kind: madd, dtype: float32, count: 2}
  schedule: [2, k, 0]
  averages: {k: 3/4}
  guarded: true
  assigns: ''
  recurrence: {variable: acc, operations: [{kind: add, dtype: float32, count: 1}]}
barriers:
- kind: local
  domain: "[n] -> { [gid0, gid1, lid0, lid1] : 0 <= 16gid0 < n and 0 <= 16gid1 < n and 0 <= lid0, lid1 < 16 }"
  schedule: [1]
"""
MODEL = """\
schema: perflex-model/1
name: mine
description: a model
output: f_cl_wall_time
expression: 'p_a * f_op_float32_madd + overlap(p_b * f_mem_access_tag:aLD, p_c * f_sync_barrier_local, p_edge)'
parameters:
  p_a: {meaning: cost of a multiply-add, unit: s per sub-group operation}
  p_b: {meaning: cost of a load, unit: s per access}
  p_c: {meaning: cost of a barrier, unit: s per barrier}
  p_edge: {meaning: sharpness, unit: "1"}
measurement_kernels:
- {tags: [flops_madd_pattern, "dtype:float32", "nelements:32768,65536", "m:64,128"], match: intersect}
- tags: [gmem_pattern]
  scale: {n: {power: 2, step: 112, only_up: true, most: 16, least: 3}}
"""
DESCRIPTION = """\
schema: perflex-description/1
name: small
description: a kernel
aliases: [tiny]
tunables:
  items: {meaning: work-items, values: [32, 64, 128]}
  depth: {meaning: unrolling, values: [1, 2, 4], dead_when: items == 32}
constants: {size: 1024}
constraints: [items*depth <= 256]
features:
  f_groups: ceil_div(size, items*depth)
  f_work: f_groups*items*depth
  f_lanes: f_groups*ceil_div(items, m_lanes)
switches: [depth]
model: p_time*(f_work + p_group*f_groups)
parameters:
  p_time: {meaning: time of an item, unit: ms, prior: 0.001, spread: 2}
  p_group: {meaning: a work-group, unit: item, prior: 10, spread: 1}
alternatives:
- {meaning: no unrolling, settings: {depth: 1}}
"""
_ROWS = [
    (64, 1, 3.0), (64, 2, 2.0), (128, 1, 1.0), (128, 4, 9.0), (32, 1, 5.0), (32, 2, 7.0), (64, 1, 5.0), (128, 2, 1.5),
    (64, 4, 2.5),
]  # fmt: skip


@lru_cache(maxsize=1)
def scops() -> tuple[str, ...]:
    """Return descriptions of kernels: by hand, and of loopy kernels."""
    from perflex.cli.arguments import load_kernel
    from perflex.features import extract_scop, scop_to_yaml

    examples = ("matmul.py:prefetching", "jacobi.py:seven_point")
    loopy = [scop_to_yaml(extract_scop(load_kernel(f"{TOP}/examples/{name}"))) for name in examples]
    return (TRANSPOSE, *loopy)


@lru_cache(maxsize=1)
def machines() -> tuple[str, ...]:
    """Return machine files: a GPU's and a CPU's."""
    folder = files("perflex.calib_data") / "machines"
    return tuple((folder / f"{name}.yaml").read_text(encoding="utf-8") for name in ("V100", "Gold-6248"))


@lru_cache(maxsize=1)
def calibrations() -> tuple[str, ...]:
    """Return calibration files of simple laws: relative and absolute errors, both losses."""
    import tempfile

    import numpy as np

    from perflex import Calibration, FeatureTable, FitOptions, Model, fit_model

    random = np.random.default_rng(5)
    texts = []
    laws = (
        ("p_a * f_op_float32_madd + p_l * f_sync_kernel_launch", FitOptions()),
        (
            "overlap(p_a * f_op_float32_madd, p_b * f_mem_access_tag:aLD, 3) + p_l * f_sync_kernel_launch",
            FitOptions(loss="soft_l1"),
        ),
        ("p_a * f_op_float32_madd + p_b * f_mem_access_tag:aLD", FitOptions(relative=False)),
    )
    for expression, options in laws:
        model = Model("f_cl_wall_time_fake_device_fake_platform", expression)
        names = model.all_features()
        counts = 10 ** random.uniform(3, 6, (8, len(names) - 1))
        table = FeatureTable(
            names[0], tuple(names), tuple(f"kernel(n={n})" for n in range(8)),
            np.column_stack([(counts @ np.full(counts.shape[1], 1e-9)) * random.normal(1, 0.02, 8), counts]),
            groups=tuple("ab"[n % 2] for n in range(8)), spread=np.full(8, 0.01), repeatability=np.full(8, 0.02),
        )  # fmt: skip
        made = Calibration(
            model, fit_model(model, table, options), table,
            {"name": "fake device", "platform": "fake platform", "driver": "0"}, "2025-06-01T12:00:00Z",
            {"perflex": "1"}, {"trials": 15, "statistic": "median", "samples": 80}, 0.0123, (("kernel 9", "no build"),),
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            made.save(f"{folder}/c.yaml")
            texts.append(Path(folder, "c.yaml").read_text(encoding="utf-8"))
    return tuple(texts)


@lru_cache(maxsize=1)
def caches() -> tuple[tuple[str, str], ...]:
    """Return measured configurations of the kernel of `DESCRIPTION`, each with the form of its file."""
    keys = ("items", "depth", "time")
    entries = [dict(zip(keys, row, strict=True)) for row in _ROWS]
    tuner = {
        "device_name": "A GPU", "kernel_name": "k", "problem_size": [1024], "tune_params_keys": ["items", "depth"],
        "tune_params": {"items": [32, 64, 128], "depth": [1, 2, 4]}, "objective": "time",
        "cache": {f"{n}": {**entry, "times": [entry["time"], entry["time"] * 1.1]} for n, entry in enumerate(entries)},
    }  # fmt: skip
    results = [
        {
            "configuration": {"items": items, "depth": depth},
            "measurements": [{"name": "time", "value": time, "unit": "ms"}],
            "invalidity": "correct",
        }
        for items, depth, time in _ROWS
    ]
    t4 = {"schema_version": "1.0.0", "results": results, "device_name": "A GPU"}
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerows([("items", "depth", "size", "time_ms"), *((*row[:2], 1024, row[2]) for row in _ROWS)])
    return ((json.dumps(tuner), "json"), (json.dumps(t4), "json"), (stream.getvalue(), "csv"))


@lru_cache(maxsize=1)
def times() -> tuple[str, ...]:
    """Return tables of times, as `perflex calibrate --times` takes them: of functions, labels and tags."""
    rows = [f"made,{rows},{64 * n},{0.5 * n},{n},0.0{n},,a,x" for n in (1, 2, 3) for rows in (1, 4)]
    named = [f'"empty(ngroups={n}, lsize_0=16, lsize_1=16)",{n}e-6,a,' for n in (16, 32)]
    tags = [f",{n}e-6,a,empty ngroups:{n} lsize_0:16 lsize_1:16" for n in (64, 128)]
    return (
        "\n".join(["kernel,rows,n,time_us,launches,spread,registers,device,note", *rows]) + "\n",
        "\n".join(["kernel,seconds,device,tags", *named, *tags]) + "\n",
    )


@lru_cache(maxsize=1)
def store() -> bytes:
    """Return a store's file with a few samples and failures."""
    import sqlite3
    import tempfile

    from perflex.store.records import Failure, MeasurementKey, Sample, SystemActivity
    from perflex.store.store import Store

    with tempfile.TemporaryDirectory() as folder:
        kept = Store(Path(folder, "store.sqlite"))
        for name in ("first", "second"):
            key = MeasurementKey(name, (("n", 512),), "A platform: a device", "1.0", "warmups=1")
            activity = SystemActivity(0.5, 0.25, switches=3, throttled=False)
            rows = [Sample(1e-3 * (1 + n), 1, 1.7e9 + n, "session", n, activity, n == 3) for n in range(6)]
            kept.add_many([(key, row) for row in rows], {key: name})
            kept.fail(key, Failure("hang", "no answer", 1.7e9, "session"), name)
        kept.close()
        with sqlite3.connect(kept.path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return kept.path.read_bytes()
