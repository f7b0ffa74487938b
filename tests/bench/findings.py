"""Findings in kernels with planted flaws: how many are found, falsely found, and how well their savings are told.

A saving is judged against the prediction of the mended kernel, which is written out; beside it the trivial one: the
ratio of the number after the cure and the number found, as if the kernel's time went with it.

    python tests/bench/findings.py
"""

import statistics
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import perflex
from oracles import held_back_kernels, planted_kernels
from oracles.planted_kernels import function_of


def explained(one, source, groups, local, registers):
    kernel = perflex.source_kernel(source, function_of(source), groups=list(groups), local=list(local))
    calibration = perflex.Calibration.load("general_gpu")
    return perflex.explain(kernel, one.sizes, calibration, machine=one.machine, registers=registers)


def judged(one):
    """Return the finding that was planted, if it was found, others, and the mended kernel's time over this one's."""
    found = explained(one, one.source, one.groups, one.local, one.registers)
    mine = [x for x in found.findings if x.kind == one.flaw and x.line in {"", str(one.line)}]
    others = [x for x in found.findings if x.kind != one.flaw]
    if not mine or one.mended_source is None:
        return mine[:1], others, None
    mended = explained(one, one.mended_source, one.mended_groups, one.mended_local, one.mended_registers)
    return mine[:1], others, mended.prediction.seconds / found.prediction.seconds


def error(values):
    return f"{100 * statistics.median(values):.1f}, {100 * max(values):.0f} %" if values else ""


def main():
    for name, kernels in (("seen while it was written", planted_kernels), ("held back", held_back_kernels)):
        rows = defaultdict(lambda: defaultdict(list))
        for one in kernels.PLANTED:
            mine, others, ratio = judged(one)
            row = rows[one.flaw]
            row["found"].append(bool(mine))
            row["others"] += others
            print(f"# {one.name}: {'found' if mine else 'MISSED'}, others {[x.kind for x in others]}", file=sys.stderr)
            if mine and ratio is not None and mine[0].change is not None:
                (finding,) = mine
                row["number"].append(abs(finding.mended / one.mended - 1) if one.mended else abs(finding.mended))
                row["saving"].append(abs(finding.change.ratio / ratio - 1))
                parts = finding.mended / finding.found, finding.found / finding.mended if finding.mended else 1.0
                row["trivial"].append(abs(min(parts) / ratio - 1))
                row["inside"].append(finding.change.low <= ratio <= finding.change.high)
        print(f"\n{name}: {len(kernels.PLANTED)} flaws planted\n")
        print("| flaw | found | number with the cure within 15 % | saving: median, max | trivial | inside 95 % |")
        print("| --- | --- | --- | --- | --- | --- |")
        for flaw, row in rows.items():
            told = [x <= 0.15 for x in row["number"]]
            counts = [f"{sum(row['found'])} of {len(row['found'])}", f"{sum(told)} of {len(told)}" if told else ""]
            inside = f"{sum(row['inside'])} of {len(row['inside'])}" if told else ""
            print("| " + " | ".join([flaw, *counts, error(row["saving"]), error(row["trivial"]), inside]) + " |")
        every = [x for row in rows.values() for x in row["found"]]
        savings, trivial = ([x for row in rows.values() for x in row[name]] for name in ("saving", "trivial"))
        print(f"| all | {sum(every)} of {len(every)} | | {error(savings)} | {error(trivial)} | |")
        false = []
        for one in kernels.CLEAN:
            found = explained(one, one.source, one.groups, one.local, one.registers).findings
            false.append(bool(found))
            if found:
                print(f"# FALSE {one.name}: {[(x.kind, x.line) for x in found]}", file=sys.stderr)
        print(f"\nkernels without a flaw that have a finding: {sum(false)} of {len(false)}")


if __name__ == "__main__":
    main()
