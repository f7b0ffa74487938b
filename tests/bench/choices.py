"""Which variant is the best, with nothing measured: `general_gpu` from the source, and with the best compiled.

    python tests/bench/choices.py --data DIR --most 500 --compile 200 [--only TEXT] [--out FILE.jsonl]

DIR holds published times (``gpu_tuning``, ``new_times``) and sources (``kernel_sources``); all spaces that are there
are judged, on GPUs that have a machine file (``--machines`` is a folder of further ones). Of each, `most` settings are
drawn by chance: they are the space. Of each method:

* loss: time of the predicted first over the best, less 1;
* keep: rank of the first within 5 % of the best, as a share of the space;
* rank, pairs: rank correlation, and the share of pairs (more than 2 % apart) in the right order;
* factor: exp(mean |log predicted / measured|), for those that predict times.

``source`` knows the source; ``code`` the compiled code of the best. What knows less or the same stands beside it: the
largest occupancy, the fewest instructions, a roofline of operations and distinct bytes, the mean of random choices; and
what knows more: the times of the same settings on another GPU, and trees fitted to these.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from choices_parts.feinsum import feinsum_spaces
from choices_parts.spaces import measured_spaces
from judging import record, recorded, table

from perflex import Calibration, PerflexError, PerflexWarning, load_machine, with_code
from perflex.machines.files import machine_names, machine_of_device
from perflex.progress import RunOptions
from perflex.search.counted_variants import Work, extract_space
from perflex.search.variants import EnumeratedSpace, settings_text

SHARED = Path(__file__).resolve().parents[3] / "shared/data"
MORE = ("f_occupancy", "f_inst_total")
NEAR, APART = 1.05, 1.02


def _plain(name):
    return "".join(filter(str.isalnum, name)).lower()


def machine_for(gpu, folder):
    """Return the machine of a GPU, by the folder's files or perflex's; None where there is none."""
    plain = _plain(gpu)
    known = {"a100": "a10040gb", "k20m": "k20", "titanxmaxwell": "gtxtitanx"}
    for path in folder.glob("*.yaml") if folder else ():
        if _plain(path.stem) == plain:
            return load_machine(path)
    # Published tables leave out the family: an A4000 is an RTX A4000.
    wanted = known.get(plain, plain), f"rtx{plain}"
    name = next((name for name in machine_names() if _plain(name) in wanted), None)
    return machine_of_device(gpu.replace("_", " ")) if name is None else load_machine(name)


def judged(scores, seconds, *, times=False):
    """Return how well scores, which are lower for what is expected to be faster, order the variants."""
    from scipy.stats import spearmanr

    order = np.argsort(scores, kind="stable")
    best = seconds.min()
    # Of equal scores the mean of those that may come first.
    first = seconds[scores == scores[order[0]]].mean()
    one, other = np.triu_indices(len(seconds), 1)
    apart = np.abs(np.log(seconds[one] / seconds[other])) > np.log(APART)
    agree = np.sign(scores[one] - scores[other]) == np.sign(seconds[one] - seconds[other])
    found = {
        "loss": float(first / best - 1),
        "keep": float((np.argmax(seconds[order] <= NEAR * best) + 1) / len(seconds)),
        "rank": float(spearmanr(scores, seconds)[0]),
        "pairs": float(agree[apart].mean()) if apart.any() else 1.0,
    }
    if times:
        found["factor"] = float(np.exp(np.mean(np.abs(np.log(scores / seconds)))))
    return found


def at_random(seconds):
    """Return what the mean of all choices loses; how many must be looked at on average."""
    near = int((seconds <= NEAR * seconds.min()).sum())
    keep = (len(seconds) + 1) / (near + 1) / len(seconds)
    return {"loss": float(seconds.mean() / seconds.min() - 1), "keep": keep, "rank": 0.0, "pairs": 0.5}


def judge(space, machine, others, arguments, pool):
    """Return what each method makes of one space, and seconds that it took."""
    calibration = Calibration.load("general_gpu")
    drawn = random.Random(0).sample(  # noqa: S311
        sorted(space.seconds), min(arguments.most, len(space.seconds))
    )
    settings = [space.settings(key) for key in drawn]
    every = EnumeratedSpace(space.program, space.build, len(settings), settings, Counter(), space.sizes)
    features = tuple(dict.fromkeys([*calibration.model.input_features(), *MORE]))
    run = RunOptions(pool)
    begun = time.perf_counter()
    found = extract_space(every, Work(space.build, features, calibration.target(machine)), None, run)
    counted = time.perf_counter()
    key_of = {settings_text(each): key for each, key in zip(settings, drawn, strict=True)}

    def times_of(variants, seconds=space.seconds):
        return np.array([seconds.get(key_of[name], np.nan) for name in variants.names])

    seconds, place = times_of(found), {name: column for column, name in enumerate(found.features)}
    rows = {"source": judged(found.predicted(calibration), seconds, times=True)}
    rows["occupancy"] = judged(-found.values[:, place["f_occupancy"]], seconds)
    rows["instructions"] = judged(found.values[:, place["f_inst_total"]], seconds)
    compute = max(("f_peak_fp32", "f_peak_fp64"), key=lambda name: found.values[:, place[name]].sum())
    roofline = np.maximum(found.values[:, place[compute]], found.values[:, place["f_peak_dram"]])
    rows["roofline"] = judged(roofline, seconds, times=True)
    rows["random"] = at_random(seconds)
    for other in others:
        elsewhere = times_of(found, other.seconds)
        known = np.isfinite(elsewhere)
        if known.sum() > len(known) / 2:
            mine = judged(elsewhere[known], seconds[known], times=False)
            factor = np.median(seconds[known] / elsewhere[known])
            mine["factor"] = judged(factor * elsewhere[known], seconds[known], times=True)["factor"]
            rows[f"another GPU ({other.gpu})"] = mine
            rows[f"trees ({other.gpu})"] = trees(found, elsewhere, seconds)
            break
    took = {"counted_s": counted - begun}
    if arguments.compile and (machine.compute_capability or machine.target):
        compiled = with_code(found, calibration, min(arguments.compile, len(found)), machine=machine, run=run)
        took["compiled_s"] = time.perf_counter() - counted
        mine = times_of(compiled)
        rows["code"] = judged(compiled.predicted(calibration), mine, times=True)
        # Compared with what is the best of all, also where it does not compile here.
        rows["code"]["loss"] = (1 + rows["code"]["loss"]) * mine.min() / seconds.min() - 1
    of = {"space": space.name, "variants": len(found), "excluded": dict(found.excluded), **took}
    return [of | {"method": method, **row} for method, row in rows.items()]


def trees(found, elsewhere, seconds):
    from sklearn.ensemble import ExtraTreesRegressor

    from perflex.search.settings_table import settings_columns

    columns, known = np.column_stack(settings_columns(found.settings)), np.isfinite(elsewhere)
    fitted = ExtraTreesRegressor(200, random_state=0, n_jobs=1).fit(columns[known], np.log(elsewhere[known]))
    return judged(np.exp(fitted.predict(columns)), seconds)


def summary(out):
    """Print a table for each question, a row for each space."""
    by_space = defaultdict(dict)
    for row in recorded(out):
        by_space[row["space"]][row["method"].split(" (")[0]] = row
    methods = ["source", "code", "occupancy", "instructions", "roofline", "random", "another GPU", "trees"]
    for what, scale, form in (("loss", 100, "{:.1f}"), ("keep", 100, "{:.2f}"), ("rank", 1, "{:.2f}"),
                              ("pairs", 1, "{:.2f}"), ("factor", 1, "{:.2f}")):  # fmt: skip
        rows = [
            [space, *(form.format(scale * own[each][what]) if what in own.get(each, {}) else "-" for each in methods)]
            for space, own in sorted(by_space.items())
        ]
        print(table([f"{what}{', %' if scale > 1 else ''}", *methods], rows))
    took = [(space, own["source"]) for space, own in sorted(by_space.items())]
    names = "counted_s", "compiled_s"
    rows = [[space, str(one["variants"]), *(f"{one.get(name, np.nan):.0f}" for name in names)] for space, one in took]
    print(table(["space", "variants", "counted, s", "compiled and counted, s"], rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--machines", type=Path)
    parser.add_argument("--feinsum", type=Path, help="Folder of feinsum's sources; without, its times are left out.")
    parser.add_argument("--most", type=int, default=500)
    parser.add_argument("--compile", type=int, default=200)
    parser.add_argument("--only", default="", help="Only spaces whose names contain this.")
    parser.add_argument("--out", type=Path, default=Path("choices.jsonl"))
    arguments = parser.parse_args()
    known = {row["space"] for row in recorded(arguments.out)}
    every = list(measured_spaces(arguments.data))
    if arguments.feinsum is not None:
        every += feinsum_spaces(arguments.data, arguments.feinsum)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        for space in every:
            machine = machine_for(space.gpu, arguments.machines)
            if space.name in known or arguments.only not in space.name:
                continue
            if machine is None:
                print(f"{space.name}: no machine file", flush=True)
                continue
            others = [one for one in every if one.program == space.program and one.gpu != space.gpu]
            try:
                record(arguments.out, judge(space, machine, others, arguments, pool))
            except PerflexError as error:
                print(f"{space.name}: {error}", flush=True)
    summary(arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
