"""How many kernels of HeCBench are read from their source, whether operations are counted right, and how long it takes.

    python tests/bench/hecbench.py --data DIR --sources DIR [--only TEXT] [--jobs 2] [--limit 20] [--out FILE.csv]
    python tests/bench/hecbench.py --data DIR --show FILE.csv

``--data`` is a folder with what an RTX 3080 executed (``rtx3080.csv.gz``: operations by kernel, launch and arguments of
the program) and the launches that the host code does (``launches.json.gz``); ``--sources`` the programs, a folder or an
archive of it, whose ``defines.json`` has macros and folders of headers by file. Perflex sees the code, the grid, and
the values of integer arguments, nothing else. Those that are not known are 96.

Each kernel is read in a process of its own, which may compute for ``--limit`` seconds, the import of perflex apart:

* exact: every loop, guard and subscript is known;
* bound: data decide guards alone, counts are upper bounds;
* trips, extents: data decide trip counts, or where arrays are accessed, which has to be stated;
* refused: an error, with file and line; `no answer`: it took longer; `escaped`: another error than perflex's own.

Operations of exact kernels are compared where the launch is known: of those that neither divide nor call functions,
where a multiply-add is two operations, and of the others, where a division or function is one or as many as
``f_flop_...`` says. Bounds must not be below what was measured. Equal kernels at equal sizes are read once.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import multiprocessing
import re
import resource
import sys
import tarfile
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from judging import table

from perflex import PerflexError, source_kernel
from perflex.features.counting.scop_counts import counts_of
from perflex.features.from_source.parsing import clang
from perflex.features.instructions.operation_slots import flops_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.features.from_source.source import SourceKernel

CLASSES = ("exact", "bound", "trips", "extents", "refused", "no answer", "escaped")
TYPES = ("float32", "float64")
MEASURED = {"float32": "fp32_operations", "float64": "fp64_operations"}
# Additions and products that an operation is; of others compilers make several, or none.
WORTH = {"add": 1, "mul": 1, "madd": 2, "fma": 2}
NOTHING = {"cmp", "min", "max", "abs", "convert", "shuffle", "vote", "sign", "bit"}
UNKNOWN = 96
# Wall time until a process that does not compute is given up, in limits: other programs may run beside it.
PATIENCE = 30
EQUAL, NEAR, ROUGHLY = 0.01, 0.05, 0.1
# What is measured is a rate times a duration of another run, which counts in steps of so many seconds.
STEP_S = 32e-9


@dataclass(frozen=True)
class Case:
    """A measured launch, and what is known of it: `launch` says whether the host code was seen to do it."""

    program: str
    kernel: str
    launch: str
    paths: tuple[str, ...]
    name: str  # With template arguments
    local: tuple[int, ...]
    groups: tuple[int, ...]
    arguments: tuple[Any, ...] = ()
    measured: dict[str, float] = field(default_factory=dict, compare=False)
    time_s: float = field(default=1.0, compare=False)

    @property
    def key(self) -> str:
        """Equal for kernels that are the same."""
        return json.dumps([self.paths, self.name, self.local, self.groups, self.arguments])


def cases_of(data: Path, sources: Path) -> Iterator[Case]:
    with gzip.open(data / "launches.json.gz", "rt") as stream:
        programs = json.load(stream)
    files = json.loads((sources / "defines.json").read_text(encoding="utf-8"))
    with gzip.open(data / "rtx3080.csv.gz", "rt", newline="") as stream:
        for row in csv.DictReader(stream):
            shapes = {word: tuple(int(row[f"{word}_{axis}"]) for axis in "xyz") for word in ("block", "grid")}
            found = programs.get(f"{row['program']}|{row['arguments']}", {"launches": [], "files": {}})
            arguments = _template_arguments(row["signature"])
            own = [each for each in found["launches"] if each["kernel"] == row["kernel"]]
            # Of launches with other template arguments, those of this one first.
            own.sort(key=lambda each: -sum(str(bound) in arguments for bound in each["bound"].values()))
            same = [each for each in own if (tuple(each["grid"]), tuple(each["block"])) == (*shapes.values(),)[::-1]]
            chosen = (same or own or [{"args": []}])[0]
            folder = f"{row['program']}-cuda"
            at = [each[each.index(folder) :] for each in found["files"].get(row["kernel"], ())]
            yield Case(
                row["program"], row["kernel"], "same" if same else "other" if own else "none",
                tuple(at) or tuple(each for each in files if each.startswith(f"{folder}/")),
                row["kernel"] + (f"<{', '.join(arguments)}>" if arguments else ""),
                shapes["block"], shapes["grid"], tuple(chosen["args"]),
                {dtype: float(row[column]) for dtype, column in MEASURED.items()}, float(row["time_s"]),
            )  # fmt: skip


def _template_arguments(signature: str) -> list[str]:
    """Return a kernel's template arguments, which stand before its parameters."""
    found = re.match(r"void [\w:]+<(.*?)>\(", signature)
    return [each.strip() for each in re.split(r",(?![^<]*>)", found[1])] if found else []


# Reading, in a process of its own


def opened(case: Case, sources: Path) -> SourceKernel:
    """Return a kernel of the first file of its program that has it."""
    files = json.loads((sources / "defines.json").read_text(encoding="utf-8"))
    error: PerflexError | None = None
    for path in case.paths:
        given = files.get(path, {"defines": [], "folders": []})
        defines = {name: value or "1" for name, _, value in (word.partition("=") for word in given["defines"])}
        folders = [sources / folder for folder in given["folders"]]
        try:
            kernel = source_kernel(
                sources / path, case.name, local=case.local, groups=case.groups, defines=defines, folders=folders,
                language="cuda",
            )  # fmt: skip
            kernel.parsed()
        except PerflexError as refused:
            error = error if error is not None and "has no kernel" in str(refused) else refused
        else:
            return kernel
    raise error or PerflexError("no file of the program has the kernel")


def sizes_of(case: Case, kernel: SourceKernel) -> tuple[dict[str, int], bool]:
    """Return values of sizes, and whether all of them are known."""
    known: dict[str, int] = {}
    for (name, *_), value in zip(kernel.parameters(), case.arguments, strict=False):
        fields = {f"{name}_{word}": part for word, part in value.items()} if isinstance(value, dict) else {name: value}
        known |= {word: int(part) for word, part in fields.items() if isinstance(part, int)}
    return dict.fromkeys(kernel.sizes, UNKNOWN) | known, known.keys() >= set(kernel.sizes)


def read(case: Case, sources: Path, limit: int, answers: Any) -> None:
    """Read one kernel; answer its class and the seconds, then what is counted."""
    resource.setrlimit(resource.RLIMIT_CPU, (limit + int(time.process_time()) + 1,) * 2)
    start, row = time.process_time(), {"class": "refused", "why": ""}
    matters: set[str] = set()
    try:
        kernel = opened(case, sources)
        row["file"] = kernel.path.name
        sizes, known = sizes_of(case, kernel)
        row |= {"sizes": json.dumps(sizes), "known": known}
        unstated = kernel.unstated(sizes)
        matters = {each.matter for each in unstated if each.remedy}
        row["why"] = "; ".join(map(str, unstated[:1]))
        scop = kernel.scop(sizes)
        bound = bool(unstated) or any(statement.guarded for statement in scop.statements)
        row["class"] = "bound" if bound else "exact"
    except PerflexError as error:
        word = "refused" if "--state" not in str(error) else "trips" if "trip count" in matters else "extents"
        row |= {"class": word, "why": str(error)}
    except Exception as error:  # noqa: BLE001 - what must not happen is counted, too
        row |= {"class": "escaped", "why": f"{type(error).__name__}: {error}"}
    answers.send(row | {"seconds": f"{time.process_time() - start:.3f}"})
    if row["class"] not in {"exact", "bound"}:
        return
    try:
        answers.send(row | operations_of(scop, sizes))
    except Exception as error:  # noqa: BLE001
        answers.send({"uncounted": f"{type(error).__name__}: {error}"})


def operations_of(scop: Any, sizes: dict[str, int]) -> dict[str, Any]:
    """Return floating-point operations by type, without divisions and functions and with them."""
    counts = counts_of(scop)
    found: Counter[tuple[str, str]] = Counter()
    for statement in scop.statements:
        if any(each.dtype in TYPES for each in statement.operations):
            times = float(counts.instances(statement).evaluate(sizes))
            for each in statement.operations:
                found[each.dtype, each.kind] += times * each.count
    row: dict[str, Any] = {}
    for dtype in TYPES:
        own = {kind: count for (of, kind), count in found.items() if of == dtype and count and kind not in NOTHING}
        others = sorted(kind for kind in own if kind not in WORTH)
        row[dtype] = sum(WORTH.get(kind, 0) * count for kind, count in own.items())
        row[f"{dtype}_others"] = " ".join(others)
        row[f"{dtype}_as_one"] = row[dtype] + sum(own[kind] for kind in others)
    try:
        flops: Counter[str] = Counter()
        for (dtype, kind), count in found.items():
            for of, each in flops_of(kind, dtype).items():
                flops[of] += each * count
    except PerflexError:
        return row  # It calls functions that nothing is known of.
    return row | {f"{dtype}_flops": flops[dtype] for dtype in TYPES}


def answered(case: Case, sources: Path, limit: int) -> dict[str, Any]:
    """Return what a process of its own says of a kernel."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=read, args=(case, sources, limit, there))
    process.start()
    there.close()
    row: dict[str, Any] = {"class": "no answer", "why": "", "seconds": limit}
    try:
        while here.poll(PATIENCE * limit):
            row |= here.recv()
    except EOFError:
        pass
    process.kill()
    process.join()
    return row


# Tables


def compared(rows: list[dict[str, Any]], word: str, dtype: str) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield rows of a class whose operations say something, and how many counted ones there are per measured one."""
    for row in rows:
        if row["class"] != word or row["launch"] != "same" or str(row["known"]) != "True" or row.get(dtype, "") == "":
            continue
        counted, measured = float(row[dtype]), float(row[f"{dtype}_measured"])
        # A division of float64 has operations of float32, too.
        if not any(row[f"{each}_others"] for each in TYPES) and (counted or measured):
            yield row, counted / measured if measured else np.inf


def of_functions(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return how far counts of kernels that divide or call functions are off, by type and what such a call counts."""
    lines = []
    for dtype in TYPES:
        for word in ("as_one", "flops"):
            errors = np.array([
                abs(float(row[f"{dtype}_{word}"]) / float(row[f"{dtype}_measured"]) - 1)
                for row in rows
                if row["class"] == "exact" and row["launch"] == "same" and str(row["known"]) == "True"
                and row.get(f"{dtype}_others", "") and row.get(f"{dtype}_flops", "") not in {"", None}
                and float(row[f"{dtype}_measured"])
            ])  # fmt: skip
            shares = [f"{100 * np.mean(errors <= limit):.0f} %" if errors.size else "" for limit in (NEAR, ROUGHLY)]
            median = f"{100 * np.median(errors):.1f} %" if errors.size else ""
            lines.append([dtype, word.replace("_", " "), str(errors.size), median, *shares])
    return lines


def reason(row: dict[str, Any]) -> str:
    """Return why a kernel is not exact, without names, places and numbers."""
    text = re.sub(r"^[\w.+-]+(:\d+: |, line \S+: |: )", "", row["why"].split("; state ")[0])
    return re.sub(r"'[^']*'|\"[^\"]*\"|<[^<>]*>|\b\d+\b", "..", text)[:110]


def show(rows: list[dict[str, Any]], most: int) -> None:
    found = Counter(row["class"] for row in rows)
    lines = [[word, str(found[word]), f"{100 * found[word] / len(rows):.1f} %"] for word in CLASSES if found[word]]
    without = found["exact"] + found["bound"]
    lines.append(["without a statement", str(without), f"{100 * without / len(rows):.1f} %"])
    print(table(["class", f"kernels of {len(rows)}", "share"], lines))
    lines = []
    for dtype in TYPES:
        pairs = list(compared(rows, "exact", dtype))
        ratios = np.array([ratio for _, ratio in pairs])
        steps = np.array([STEP_S / float(row["time_s"]) for row, _ in pairs])
        within = [abs(ratios - 1) <= limit for limit in (EQUAL, np.maximum(EQUAL, steps), NEAR)]
        shares = [f"{100 * np.mean(each):.0f} %" if pairs else "" for each in within]
        lines.append([dtype, str(len(pairs)), *shares])
    heads = ["exact, no divisions or functions", "kernels", "within 1 %", "or a step of the clock", "within 5 %"]
    print("\n" + table(heads, lines))
    heads = ["exact, with divisions or functions", "each", "kernels", "median error", "within 5 %", "within 10 %"]
    print("\n" + table(heads, of_functions(rows)))
    seconds = [float(row["seconds"]) for row in rows]
    median, high, longest = np.quantile(seconds, [0.5, 0.95, 1.0])
    print(f"\nprocessor seconds per kernel: median {median:.2f}, 95 % {high:.2f}, longest {longest:.1f}")
    for word in ("exact", "bound"):
        for dtype in TYPES:
            for row, ratio in compared(rows, word, dtype):
                if (abs(ratio - 1) > NEAR) if word == "exact" else (ratio < 1 - NEAR):
                    numbers = f"{float(row[dtype]):.5g} counted, {float(row[f'{dtype}_measured']):.5g} measured"
                    print(f"- {word}, {dtype}: {row['program']} {row['name']}: {numbers}, {ratio:.3f}")
    for word in CLASSES[2:]:
        reasons = Counter(reason(row) for row in rows if row["class"] == word)
        for why, count in reasons.most_common(most):
            print(f"- {word}: {count} kernels: {why}")
    for row in rows:
        if row.get("uncounted"):
            print(f"- not counted: {row['program']} {row['name']}: {row['uncounted'][:150]}")


def _row(case: Case, answer: dict[str, Any]) -> dict[str, Any]:
    measured = {f"{dtype}_measured": case.measured[dtype] for dtype in TYPES}
    own = {"program": case.program, "name": case.name, "launch": case.launch, "time_s": case.time_s}
    return {**own, **answer, **measured}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of what was measured")
    parser.add_argument("--sources", type=Path, help="the programs: a folder, or a .tar.gz of it")
    parser.add_argument("--only", default="", help="text that program or kernel must have")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--limit", type=int, default=20, help="processor seconds of each kernel")
    parser.add_argument("--most", type=int, default=25, help="reasons that are shown of each class")
    parser.add_argument("--out", type=Path, help="CSV file of all rows")
    parser.add_argument("--show", type=Path, help="a CSV file that was written before")
    given = parser.parse_args()
    csv.field_size_limit(sys.maxsize)
    if given.show:
        with given.show.open(newline="", encoding="utf-8") as stream:
            show([row for row in csv.DictReader(stream) if given.only in f"{row['program']} {row['name']}"], given.most)
        return
    with tempfile.TemporaryDirectory() as folder:
        sources = given.sources
        if sources.is_file():
            with tarfile.open(sources) as archive:
                archive.extractall(folder, filter="data")
            sources = Path(folder)
        sources = sources.resolve()
        clang()  # Its library is loaded once.
        cases = [case for case in cases_of(given.data, sources) if given.only in f"{case.program} {case.name}"]
        alike = {case.key: case for case in cases}
        with ThreadPoolExecutor(given.jobs) as pool:
            answers = pool.map(lambda case: answered(case, sources, given.limit), alike.values())
            found = dict(zip(alike, answers, strict=True))
    rows = [_row(case, found[case.key]) for case in cases]
    if given.out:
        with given.out.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, list(dict.fromkeys(key for row in rows for key in row)))
            writer.writeheader()
            writer.writerows(rows)
    show(rows, given.most)


if __name__ == "__main__":
    main()
