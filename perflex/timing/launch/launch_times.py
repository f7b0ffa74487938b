"""What running a kernel gives: the time of each launch, and what the system reports of the time it took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perflex.store.records import SystemActivity

from perflex.store.records import joined_activity


class LaunchTimes(tuple[float, ...]):  # noqa: SLOT001 - tuples have no slots beside their entries
    """The device time of each launch in seconds, and what else went on meanwhile.

    Attributes
    ----------
    activity
        What the system reports of the time from before the first launch to the end of the last.
    """

    activity: SystemActivity | None

    def __new__(cls, seconds: Iterable[float], activity: SystemActivity | None = None) -> Self:
        """Return the times with what is known of them."""
        times = super().__new__(cls, seconds)
        times.activity = activity
        return times

    @classmethod
    def joined(cls, parts: Sequence[LaunchTimes]) -> Self:
        """Return the times of parts that ran one after another, of which all told what went on, or none."""
        known = [part.activity for part in parts if part.activity is not None]
        seconds = (one for part in parts for one in part)
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
