"""What running a kernel gives: the time of each launch, and what the system reports of the time it took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perflex.store.records import SystemActivity


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
