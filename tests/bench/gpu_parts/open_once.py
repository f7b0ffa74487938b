"""A device that is opened once for many measurements: processes, buffers and programs stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from perflex.timing.launch.backend import RunLimits

__all__ = ["OpenOnce"]


class OpenOnce:
    """Stands for a device in calls of `perflex.timing.measuring.measure`, without recorder, within a ``with`` block.

    Opening a GPU in a process of its own takes seconds, and filling its arrays again takes as long. Beside kernels it
    takes launch requests: code that was generated before.

    Parameters
    ----------
    device
        Any device that can be timed on.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._inner: Any = None

    def __str__(self) -> str:
        return str(self._device)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._inner is not None:
            self._inner.close()
            self._inner = None

    def backend(self) -> _Kept:
        """Return what runs kernels in this process."""
        if self._inner is None:
            self._inner = self._device.backend()
        return _Kept(self._inner)

    def isolated_backend(self, limits: RunLimits) -> _Kept:
        """Return what runs kernels in a process of its own, where the device can do that; the first limits hold."""
        isolated = getattr(self._device, "isolated_backend", None)
        if isolated is None:
            return self.backend()
        if self._inner is None:
            self._inner = isolated(limits)
        return _Kept(self._inner)


class _Kept:
    """A backend that stays open."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def timer_resolution_s(self) -> float:
        return float(self._inner.timer_resolution_s)

    def prepare(self, job: Any, sizes: Mapping[str, int], label: str) -> Any:
        from perflex.timing.launch.request import LaunchRequest

        if not isinstance(job, LaunchRequest):
            return self._inner.prepare(job, sizes, label)
        prepare = getattr(self._inner, "prepare_request", None) or self._inner.build
        return prepare(job)

    def close(self) -> None:
        """Do nothing: the device's block ends it."""
