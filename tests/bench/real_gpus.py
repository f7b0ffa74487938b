"""Times that others measured on real GPUs, predicted: ``python tests/bench/real_gpus.py --data DIR --out FILE.csv``.

DIR holds any of the folders ``nvbench``, ``gpuperf``, ``sgemm_variants``, ``neusight``, ``hub`` and ``simulated_gpu``
(``--sets`` names some). Of each tuning space of ``hub`` ``--configurations`` are drawn; a folder ``gpu_tuning`` in DIR
or beside it has their times on further GPUs. Rows below 20 us are left out. For each GPU (``--gpu``, all of the data if
not given):

* one program is left out after another and predicted by a fit to the GPU's other programs;
* 0, 5, 10 and 20 random rows (seeds 0 to 4) are given and all others predicted, with the other GPUs' times and without;
* data of few programs (``sgemm_variants``, ``hub``) are predicted from the programs of ``nvbench`` and ``gpuperf``, of
  the same GPU or of the others;
* of simulated GPUs, the studies' kernels are predicted from microbenchmarks;
* of ``neusight``, element-wise operators on the GPU from those of the other GPUs, with 0 and 5 samples.

Beside perflex's model (``--model``, `general_gpu`) stand in the same run: one factor per device on the same
configuration's time on the nearest other GPU (nearest by the sum of what the logarithms of DRAM bandwidth and
single-precision peak differ by); a roofline of the machine file's peaks; and extremely randomised trees on the same
features and rows. ``--method`` names some: perflex, transfer, factor, roofline, trees, trees_elsewhere.

A GPU needs a machine file, perflex's own or one in ``--machines DIR``. Features are kept in ``--cache FILE`` and
counted again only where the code, the machine or the row changed; rows that are refused, or take longer than
``--limit`` seconds, are listed with the reason. It writes one CSV (errors and losses are fractions) and prints tables
in Markdown. A run that is ended early goes on where it ended.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from real_gpus_parts.experiments import SEEDS
from real_gpus_parts.reading import CONFIGURATIONS, read_rows
from real_gpus_parts.running import Options, run

from perflex import PerflexError, load_model

_EVERY_S = 5.0


class Progress:
    """Shows how far work is on standard error, a line every few seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, done: int, total: int, what: str) -> None:
        """Show a line, unless the last one was just now."""
        now = time.monotonic()
        if now - self._last > _EVERY_S or done == total:
            self._last = now
            print(f"{done}/{total} {what}", file=sys.stderr, flush=True)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--gpu", nargs="*", default=[], help="as in the data")
    parser.add_argument("--sets", default="", help="folders, separated by commas; all that are there if not given")
    parser.add_argument("--method", nargs="*", default=[])
    parser.add_argument("--model", default="general_gpu", help="a ready model's name, or its file")
    parser.add_argument("--intervals", action="store_true", help="of the model fitted to the GPU alone, too; slow")
    parser.add_argument("--most", type=int, default=0, help="rows of each program and GPU; all if not given")
    parser.add_argument("--host-cost", action="store_true", help="a cost of launches that were timed with host code")
    parser.add_argument("--programs-alike", action="store_true", help="in fits, however many rows each has")
    parser.add_argument("--draws", type=int, default=len(SEEDS), help="of samples; the first seeds")
    parser.add_argument("--configurations", type=int, default=CONFIGURATIONS, help="drawn of each tuning space")
    parser.add_argument("--machines", type=Path, help="folder of machine files NAME.yaml")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for counting a row")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    try:
        options = Options(
            load_model(given.model).model(),
            tuple(given.gpu),
            tuple(given.method),
            given.intervals,
            given.most,
            given.draws,
            given.machines,
            given.cache,
            given.workers,
            given.limit,
            Progress(),
            given.host_cost,
            given.programs_alike,
        )
        rows = read_rows(given.data, [name for name in given.sets.split(",") if name], given.configurations)
        print(run(rows, options, given.out))
    except PerflexError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
