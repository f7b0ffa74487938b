"""What several commands predict kernels with: a calibration, for given machines, launches and caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.options import CachesOption, LaunchesOption, MachineOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.analysis.comparison import Version
    from perflex.calibration.calibration import Calibration


@dataclass(frozen=True)
class Asked:
    """What commands are told that predict kernels with intervals."""

    machine: MachineOption = None
    confidence: Annotated[float, typer.Option(min=0.01, max=0.999, help="Of the intervals.")] = 0.95
    launches: LaunchesOption = None
    caches: CachesOption = None

    def read(self, words: Sequence[str]) -> tuple[list[str], list[dict[str, int]], Predictor]:
        """Return the kernels that words name, each combination of sizes, and what predicts them."""
        from perflex.cli.arguments import read_calibration, read_series, split_words
        from perflex.cli.options import KERNEL_FILES

        loaded, rest = read_calibration(words, self.machine, KERNEL_FILES)
        kernels, sizes = split_words(rest)
        return kernels, read_series(sizes), Predictor(self, loaded, given=len(rest) < len(words))


@dataclass(frozen=True)
class AskedToCompare(Asked):
    """What commands are told that compare versions of kernels."""

    against: Annotated[
        str, typer.Option(metavar="REV", help="Compare with the kernel as it is at this revision of git.")
    ] = ""


@dataclass(frozen=True)
class Predictor:
    """What predicts kernels."""

    asked: Asked
    calibration: Calibration
    given: bool

    def of(self, kernel: Any) -> Calibration:
        """Return the calibration that predicts a kernel."""
        from perflex.cli.launches import predictor_of

        asked, assumed = self.asked, bool(self.asked.launches or self.asked.caches)
        found = predictor_of(kernel, self.calibration, asked.machine, given=self.given, time=False, assumed=assumed)
        return found.assuming(launches=asked.launches, caches=asked.caches)

    def version(self, kernel: Any, sizes: Mapping[str, int]) -> Version:
        """Return a version of a kernel at sizes, which can be described."""
        from perflex.analysis.comparison import Version
        from perflex.cli.arguments import described

        described(kernel, sizes)
        return Version(kernel, sizes, self.of(kernel), self.asked.machine, self.asked.confidence)
