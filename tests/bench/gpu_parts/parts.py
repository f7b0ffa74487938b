"""Parts of a study: what each is given, what it gives back, and running one after the other."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perflex.errors import PerflexError

from .budget import CutShortError, TimeUpError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .budget import Allotted, Budget

__all__ = ["Goal", "Part", "PartRun", "Setting", "run_parts"]


@dataclass(frozen=True)
class Setting:
    """What all parts work with.

    Attributes
    ----------
    device
        Where kernels run.
    folder
        Where results go.
    machine
        Name of the machine that volumes are estimated for, or None.
    own_machine
        Whether that is the device's own one.
    workers
        Processes that generate code beside this one; 0 for none.
    small
        Whether a GPU is to have the sizes of a CPU.
    """

    device: Any
    folder: Path
    machine: str | None = None
    own_machine: bool = True
    workers: int = 0
    small: bool = False

    @property
    def on_gpu(self) -> bool:
        """Whether sizes are to be a GPU's."""
        return getattr(self.device, "kind", "") == "gpu" and not self.small


@dataclass(frozen=True)
class Goal:
    """A number to reach, and what was reached."""

    what: str
    goal: str
    reached: str
    met: bool


@dataclass
class PartRun:
    """What became of a part; it fills in goals and notes as it goes along, so that a cut loses none.

    Attributes
    ----------
    name, title
        Of the part.
    state
        ``"not begun"``, ``"begun"``, ``"done"``, ``"cut"`` or ``"failed"``.
    reason
        Why it was cut, failed, or was not begun.
    seconds, allotted
        Time it took, and had.
    goals, notes
        Goals beside results; and all else that the report says, in Markdown.
    """

    name: str
    title: str
    state: str = "not begun"
    reason: str = ""
    seconds: float = 0.0
    allotted: float = 0.0
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Part:
    """A part.

    Attributes
    ----------
    name, title
        For the command line, and for people.
    weight
        Its share of the budget, beside the others' weights.
    work
        Does it.
    """

    name: str
    title: str
    weight: float
    work: Callable[[Setting, Allotted, PartRun], None]


def run_parts(
    parts: Sequence[Part],
    setting: Setting,
    budget: Budget,
    changed: Callable[[Sequence[PartRun]], None],
) -> list[PartRun]:
    """Run parts one after the other; one that fails or uses up its time does not keep the others from running.

    Parameters
    ----------
    parts
        In this order.
    setting
        What they work with.
    budget
        Time of all together.
    changed
        Is told what became of all parts, before and after each.

    Raises
    ------
    CutShortError
        The run has to end; what is known was told before.
    """
    runs = [PartRun(part.name, part.title, reason="the run ended before it") for part in parts]
    for number, (part, run) in enumerate(zip(parts, runs, strict=True)):
        time = budget.allot([other.weight for other in parts[number:]])
        begun = budget.used
        run.state, run.reason, run.allotted = "begun", "", time.seconds
        changed(runs)
        try:
            time.check()
            part.work(setting, time, run)
            run.state = "done"
        except TimeUpError as error:
            run.state, run.reason = "cut", str(error)
        except CutShortError as error:
            run.state, run.reason = "cut", str(error)
            raise
        except PerflexError as error:
            run.state, run.reason = "failed", error.message
        except Exception as error:  # noqa: BLE001 - one part's defect must not cost the others their time on the device
            run.state, run.reason = "failed", f"{type(error).__name__}: {error}".replace("\n", " ")
            setting.folder.joinpath(f"{part.name}_error.txt").write_text(traceback.format_exc(), encoding="utf-8")
        finally:
            run.seconds = budget.used - begun
            changed(runs)
    return runs
