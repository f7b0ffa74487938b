"""Files for reports with numbers that are known: a pruning, an evaluation, a roofline."""

import csv

STAMP = {"perflex": "0.1.0", "date": "2026-01-02T03:04:05+00:00"}


def pruning_content(name="wide"):
    """What ``perflex prune --json`` prints: six variants, two kept, four timed."""
    rows = []
    for rank, (predicted, measured) in enumerate(
        [(1e-3, 1.05e-3), (1.2e-3, None), (1.4e-3, 1e-3), (4e-3, 4.5e-3), (5e-3, None), (6e-3, 6.5e-3)], 1
    ):
        rows.append(
            {
                "rank": rank, "variant": f"{name}={rank}", "kept": rank <= 2, "predicted_s": predicted,
                "low_s": 0.9 * predicted, "high_s": 1.02 * predicted, "ratio": float(rank), "dominating": "memory",
                "share": 0.75, "memory_s": predicted, "on-chip_s": 0.0, "overhead_s": 0.0, "other_s": 0.0,
                "measured_s": measured, "reason": "some", "doubts": ["some"] if rank == 6 else [name][: rank - 1],
            }
        )  # fmt: skip
    return {
        "schema": "perflex-pruning/1", **STAMP,
        "device": {"name": "a GPU", "driver": "driver 7"}, "calibrated": "2026-01-01T00:00:00+00:00",
        "variants": 6, "kept": [row["variant"] for row in rows if row["kept"]],
        "explanation": "two" if name == "wide" else name.partition("=")[0], "met": False, "excluded": {"repeated": 2},
        "batch": [rows[2]["variant"], rows[3]["variant"]], "table": rows,
        "check": {
            "measured": 4, "kept_measured": 1, "geomean_error": 0.2, "median_error": 0.1, "rms_error": 0.5,
            "max_error": 2.0, "spearman": 0.8, "loss": 0.05, "coverage": 0.25,
        },
    }  # fmt: skip


def prediction_content(name="x.cl:f"):
    """What ``perflex predict --lines --json`` prints at two sizes; costs and lines have a half and a quarter."""
    of = {
        "schema": "perflex-prediction/1", **STAMP, "kernel": name, "device": {"name": "a GPU", "driver": "driver 7"},
        "calibrated": "2026-01-01T00:00:00+00:00", "machine": None, "knowledge": "nothing",
    }  # fmt: skip
    counts = {"operations": 64.0, "accesses": 32.0, "bytes": 128.0, "local_accesses": 0.0}
    return [
        {
            **of, "sizes": {"n": n}, "predicted_s": 4e-3 * n, "measured_s": 5e-3 * n, "doubts": [name][: n - 1],
            "terms": {"p_a * f_a": 1e-3 * n, "p_b * f_b": 2e-3 * n, "p_c * f_c": 0.0},
            "lines": [
                {"line": 0, "text": "(headers)", **counts, "certainty": "exact", "share": 0.5},
                {"line": 7, "text": name, **counts, "certainty": "upper bound" if n == 2 else "exact", "share": 0.25},
            ],
        }
        for n in (1, 2)
    ]  # fmt: skip


def roofline_content(name="tiled"):
    """What ``perflex roofline --json`` prints of two kernels; times are twice the least."""
    kernels = []
    for kernel, transactions, local in (
        (name, (4096.0, 512.0, 256.0), 2048.0),
        ("plain", (1024.0, 1024.0, 128.0), 0.0),
    ):
        l1, l2, dram = transactions
        limits = {"instructions": 1e4 / 1e12, "l1": l1 / 4e11, "l2": l2 / 9e10, "dram": dram / 2e10}
        bound = max(limits.values())
        kernels.append(
            {
                "kernel": kernel, "sizes": {"n": 64}, "sub_group_size": 32, "itemsize": 4,
                "f_inst_fp32": 5e3, "f_inst_fp64": 0.0, "f_inst_int": 3e3, "f_inst_ldst_global": 1e3,
                "f_inst_ldst_local": 1e3, "f_inst_ldst_constant": 0.0, "f_inst_control": 0.0, "f_inst_total": 1e4,
                "f_inst_thread": 3.2e5, "f_inst_predication": 1.0, "f_txn_global": 1e3, "f_txn_local": local,
                "f_txn_l1": l1, "f_txn_l2": l2, "f_txn_dram": dram,
                "intensities": {"l1": 1e4 / l1, "l2": 1e4 / l2, "dram": 1e4 / dram},
                "global_walls": {"stride-0": 1.0, "stride-1": 0.25, "stride-8": 1 / 32}, "nearest_limit": "l1",
                "limits_s": limits, "bound_s": bound, "time_s": 2 * bound, "time": "measured",
                "gips": 1e4 / (2 * bound) / 1e9, "warp_gips": 1e4 / (2 * bound) / 1e9,
                "absent": {"f_txn_x": name} if name != "tiled" and kernel == name else {},
            }
        )  # fmt: skip
    # The first is limited by L1, at 4e10 transactions a second; the second by L2.
    rates = {"instructions": (1e12, None), "l1": (4e11, 32), "local": (1e13, 128), "l2": (9e10, 32), "dram": (2e10, 32)}
    kernels[0]["f_txn_l1"], kernels[0]["intensities"]["l1"] = 40960.0, 1e4 / 40960
    kernels[0]["bound_s"] = kernels[0]["limits_s"]["l1"] = 40960 / 4e11
    kernels[0]["time_s"] = 2 * kernels[0]["bound_s"]
    kernels[0]["gips"] = kernels[0]["warp_gips"] = 1e4 / kernels[0]["time_s"] / 1e9
    return {
        "schema": "perflex-roofline/1", **STAMP, "device": "a GPU", "machine": "V100",
        "ceilings": {level: {"rate": rate, "transaction_bytes": size, "source": "stated"}
                     for level, (rate, size) in rates.items()},
        "absent_ceilings": {}, "local_walls": {"no conflict": 1.0, "32-way": 1 / 32}, "kernels": kernels,
    }  # fmt: skip


def evaluation_folder(folder, name="a device"):
    """Write what ``perflex evaluate`` does: one study, two models, one baseline, two variants at two sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    methods = {"linear": ("timing", True, False, 0.2, 0.1), "overlap": ("reduced kernels", False, True, 0.1, 0.0),
               "roofline": ("nothing", False, None, 0.3, 0.05)}  # fmt: skip
    measured = {("16x16", 32): 2e-3, ("16x16", 64): 4e-3, ("18x18", 32): 3e-3, ("18x18", 64): 6e-3}
    summary = [
        {
            "device": name, "study": "fdiff", "variant": variant, "model": method, "knowledge": knows, "used": used,
            "beats_baselines": "" if beats is None or variant != "all" else beats, "geomean_error": 0.9 * rms,
            "median_error": 0.95 * rms, "rms_error": rms, "max_error": 2 * rms, "typical_factor": 1 + rms,
            "spearman": 1.0, "pairs": 2, "pairs_ranked_right": 2.0, "loss_median": loss, "loss_mean": loss,
            "loss_p90": loss, "loss_worst": 2 * loss, "best_found": 1.0, "first_tenth": 1.0, "noise_floor": 0.02,
        }
        for variant in ("16x16", "18x18", "all") for method, (knows, used, beats, rms, loss) in methods.items()
    ]  # fmt: skip
    points = [
        {
            "device": name, "study": "fdiff", "variant": variant, "size": size, "model": method, "knowledge": knows,
            "used": used, "predicted_s": (1 + rms) * seconds, "measured_s": seconds, "relative_error": rms,
            "spread": 0.01, "repeatability": 0.02, "disturbed": (variant, size) == ("18x18", 64),
        }
        for (variant, size), seconds in measured.items() for method, (knows, used, _, rms, _) in methods.items()
    ]  # fmt: skip
    choice = {
        "device": name, "study": "fdiff", "chosen": "linear", "best_in_hindsight": "overlap", "used": "linear",
        "best_baseline": "roofline", "beats_baselines": False, "reason": "lowest",
        "judgement": "Not recommended: a baseline is better: roofline has mean loss 5.0 %; linear has 10.0 %.",
    }  # fmt: skip
    parameter = {
        "device": name, "study": "fdiff", "model": "linear", "used": True, "parameter": "p_launch", "value": 1e-6,
        "unit": "s per launch", "standard_error": 1e-7, "rate": "", "rate_unit": "", "remarks": "",
    }  # fmt: skip
    device = {
        "device": name, "platform": "a platform", "driver": "driver 7", "drift": 0.3, "seconds": 100.0,
        "date": "2026-01-02T03:04:05+00:00", "versions": "perflex 0.1.0; loopy 2025.2",
    }  # fmt: skip
    tables = {
        "summary": summary, "points": points, "choices": [choice], "parameters": [parameter], "devices": [device],
        "skipped": [{"device": name, "kernel": "some kernel", "reason": name}],
    }  # fmt: skip
    for table, rows in tables.items():
        with (folder / f"{table}.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return folder
