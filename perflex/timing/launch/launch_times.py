"""What running a kernel gives: the time of each launch, and what the system reports of the time it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from perflex.store.records import joined_activity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.store.records import SystemActivity


@dataclass(frozen=True)
class LaunchTimes:
    """The device time of each launch, and what else went on meanwhile.

    Attributes
    ----------
    seconds
        Of each launch.
    activity
        What the system reports of the time from before the first launch to the end of the last; None where nothing is
        known of it.
    """

    seconds: tuple[float, ...]
    activity: SystemActivity | None = None

    @classmethod
    def joined(cls, parts: Sequence[LaunchTimes]) -> LaunchTimes:
        """Return the times of parts that ran one after another, of which all told what went on, or none."""
        known = [part.activity for part in parts if part.activity is not None]
        seconds = tuple(one for part in parts for one in part.seconds)
        return cls(seconds, joined_activity(known) if len(known) == len(parts) else None)


class Watch(Protocol):
    """Reads what a system or driver reports, before launches and after."""

    def reading(self) -> Any:
        """Return what is reported now."""
        ...

    def activity_since(self, before: Any) -> SystemActivity | None:
        """Return what went on since a reading; None where nothing is known of it."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...
