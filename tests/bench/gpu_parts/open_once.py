"""A device that is opened once for many measurements: processes, buffers and programs stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

    from perflex import TimingOptions

__all__ = ["OpenOnce"]


class OpenOnce:
    """Stands for a device in calls of `perflex.timing.measuring.measure`, without recorder, within a ``with`` block.

    Opening a GPU in a process of its own takes seconds, and filling its arrays again takes as long. Beside kernels it
    takes launch requests: code that was generated before.

    Parameters
    ----------
    device
        Any device that can be timed on.
    options
        Whether in a process of their own, and how long kernels may take.
    """

    def __init__(self, device: Any, options: TimingOptions | None = None) -> None:
        self._device = device
        self._options = options
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
        """Return what runs kernels, a real device's in a process of their own; the first limits hold."""
        from perflex import TimingOptions
        from perflex.timing.measuring import open_backend

        if self._inner is None:
            self._inner = open_backend(self._device, self._options or TimingOptions())
        return _Kept(self._inner)


class _Kept:
    """A backend that stays open."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.device = inner.device

    @property
    def timer_resolution_s(self) -> float:
        return float(self._inner.timer_resolution_s)

    def build(self, request: Any) -> Any:
        from perflex.timing.launch.request import request_for

        return self._inner.build(request_for(request, self.device))

    def close(self) -> None:
        """Do nothing: the device's block ends it."""
