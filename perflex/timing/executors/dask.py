"""A running Dask cluster as an executor: measurements one per device, other work on all workers."""

from __future__ import annotations

import socket
import time
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from perflex.errors import ExecutorError, MissingExtraError, warn
from perflex.timing.executors.worker_device import device_of_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from perflex.devices.device import Device
    from perflex.timing.executors.worker_device import WorkerDevice

_Result = TypeVar("_Result")

# What workers declare: ``dask worker ADDRESS --resources perflex_device=1``.
DEVICE_RESOURCE = "perflex_device"
# So long there may be no worker: nannies need some seconds to start new ones.
_PATIENCE_S = 30.0
_LOOK_S = 0.1


def dask_executor(where: Any, *, timeout_s: float = 10.0) -> DaskExecutor:
    """Return an executor that works on a running Dask cluster.

    Measurements go to workers that declare the resource ``perflex_device``, one for each unit of it: start a worker per
    device with ``dask worker ADDRESS --nthreads 1 --resources perflex_device=1``. Where no worker declares it, one
    worker of each host measures at a time. Other work goes to all workers. Work of workers that die is done again.

    Parameters
    ----------
    where
        The scheduler's address, e.g. ``"tcp://10.0.0.1:8786"``; or a cluster, or a client of one, as
        ``distributed.LocalCluster``, dask-jobqueue and dask-kubernetes make them.
    timeout_s
        So long is waited for the scheduler, and then for a first worker, in seconds.

    Raises
    ------
    MissingExtraError
        `distributed` is not installed.
    ExecutorError
        No scheduler answers there, or it has no workers.
    """
    try:
        from distributed import Client
        from distributed.comm import get_address_host_port
    except ModuleNotFoundError as error:
        msg = f"a Dask cluster needs the extra 'dask' ({error}): pip install 'perflex[dask]'"
        raise MissingExtraError(msg, extra="dask") from error
    own = not isinstance(where, Client)
    address = str(getattr(where, "scheduler_address", where) if own else where.scheduler.address)
    try:
        # A client that finds nobody leaves a trace of its own behind; so somebody is looked for first.
        if isinstance(where, str):
            socket.create_connection(get_address_host_port(address), timeout_s).close()
        client = Client(where, timeout=timeout_s, set_as_default=False) if own else where
    except (OSError, ValueError, ImportError, TypeError) as error:
        msg = (
            f"no Dask scheduler answers at {address} ({_first_line(error)}); "
            "start one with `dask scheduler`, and give the address it prints"
        )
        raise ExecutorError(msg, address=address) from error
    executor = DaskExecutor(client, address, closes=own)
    try:
        executor.wait_for_workers(timeout_s)
    except ExecutorError:
        executor.shutdown()
        raise
    return executor


class DaskExecutor(Executor):
    """An executor on a Dask cluster; made by `dask_executor`, ended by `shutdown` or its with block.

    Parameters
    ----------
    client
        A ``distributed.Client``.
    address
        The scheduler's, for messages.
    closes
        Whether the client is closed with the executor.
    """

    # Counts are not remembered in workers' files: the client's need not exist where they run.
    workers_share_files = False

    def __init__(self, client: Any, address: str, *, closes: bool = True) -> None:
        self._client = client
        self._address = address
        self._closes = closes
        self._pending: dict[Future[Any], Any] = {}
        # Addresses of workers that may do what was submitted, where that is not all of them; those that may not.
        self._allowed: dict[Future[Any], frozenset[str]] = {}
        self._left_out: set[str] = set()
        self._gone_since: float | None = None
        self._declared: bool | None = None

    def device(self, device: str | Device | None = None) -> WorkerDevice:
        """Return the device that the workers measure on, which may be given wherever kernels are timed.

        Parameters
        ----------
        device
            A device, or parts of its name; by default the one that the workers prefer.

        Raises
        ------
        DeviceError
            No worker has such a device, or all that have one differ in what cannot be mixed.
        ExecutorError
            The scheduler is lost, or there has been no worker for half a minute.
        """
        return device_of_workers(self, device)

    def submit(self, function: Callable[..., _Result], /, *arguments: Any, **options: Any) -> Future[_Result]:
        """Have a function called by any worker.

        Raises
        ------
        ExecutorError
            The scheduler is lost.
        """
        return self._submit(_Call(function, arguments, options))

    def submit_measuring(self, function: Callable[[Any], _Result], work: Any) -> Future[_Result]:
        """Have work, such as a batch, done by a worker with a free device, or by one for each host.

        Raises
        ------
        ExecutorError
            The scheduler is lost, or there has been no worker for half a minute.
        """
        workers = self._waited_for()
        # Those that declare devices may change while there are any; of hosts, each has its one worker.
        free = self._declared and not self._left_out
        return self._submit_to(frozenset() if free else frozenset(workers), function, work)

    def submit_to_each(self, function: Callable[[Any], _Result], work: Any) -> list[Future[_Result]]:
        """Have the same work done by each worker that may measure.

        Raises
        ------
        ExecutorError
            The scheduler is lost, or there has been no worker for half a minute.
        """
        return [self._submit_to(frozenset({address}), function, work) for address in self._waited_for()]

    def leave_out(self, worker: str) -> None:
        """Send no more measurements to a worker; to none of its host where they declare no devices."""
        workers = self._workers()
        host = workers[worker]["host"] if worker in workers else ""
        same = {address for address, facts in workers.items() if facts["host"] == host and not self._declared}
        self._left_out |= {worker, *same}

    def measuring_slots(self) -> int:
        """Return how many devices the workers declare; if none does, the number of their hosts.

        Raises
        ------
        ExecutorError
            The scheduler is lost, or there has been no worker for half a minute.
        """
        workers = self._workers()
        for future, allowed in list(self._allowed.items()):
            if not allowed & set(workers):
                future.cancel()  # it would wait for these workers for ever
        found = self._measuring(workers)
        now = time.monotonic()
        # Since the first look that found none: nobody looks between two pieces of work.
        self._gone_since = None if found else self._gone_since or now
        if self._gone_since is not None and now - self._gone_since > _PATIENCE_S:
            what = f"that declares {DEVICE_RESOURCE}" if self._declared else "at all"
            msg = f"{self._address} has had no worker {what} for {_PATIENCE_S:.0f} s; what was measured is kept"
            raise ExecutorError(msg, address=self._address)
        return int(sum(worker["resources"].get(DEVICE_RESOURCE, 1) for worker in found.values()))

    def _measuring(self, workers: Mapping[str, Any]) -> dict[str, Any]:
        """Return the workers that may measure, by address: those that declare a device, or one of each host."""
        if self._declared is None and workers:
            self._declared = any(DEVICE_RESOURCE in worker["resources"] for worker in workers.values())
            if not self._declared:
                msg = (
                    f"no worker of {self._address} says how many devices it has, so one worker of each host measures "
                    f"at a time; start one per device with --resources {DEVICE_RESOURCE}=1"
                )
                warn(msg)
        found = {address: facts for address, facts in sorted(workers.items()) if address not in self._left_out}
        if self._declared:
            return {address: facts for address, facts in found.items() if DEVICE_RESOURCE in facts["resources"]}
        of_hosts = {facts["host"]: address for address, facts in found.items()}
        return {address: found[address] for address in of_hosts.values()}

    def _waited_for(self) -> dict[str, Any]:
        """Return the workers that may measure, by address, as soon as there is one."""
        while not (self.measuring_slots() and (workers := self._measuring(self._workers()))):
            time.sleep(_LOOK_S)
        return workers

    def _submit_to(self, allowed: frozenset[str], function: Callable[[Any], _Result], work: Any) -> Future[_Result]:
        """Have work done by a worker of some, any without an address; by one with a free device where they declare."""
        places: dict[str, Any] = {"retries": 1} | ({"resources": {DEVICE_RESOURCE: 1}} if self._declared else {})
        if allowed:
            places["workers"] = sorted(allowed)
        future = self._submit(_MeasuringCall(function, (work,), {}), **places)
        if allowed:
            self._allowed[future] = allowed
            future.add_done_callback(lambda done: self._allowed.pop(done, None))
        return future

    def wait_for_workers(self, timeout_s: float) -> None:
        """Wait for a first worker.

        Raises
        ------
        ExecutorError
            None comes, or the scheduler is lost.
        """
        end = time.monotonic() + timeout_s
        while not self._workers():
            if time.monotonic() > end:
                msg = f"the Dask cluster at {self._address} has no workers; start some: dask worker {self._address}"
                raise ExecutorError(msg, address=self._address)
            time.sleep(_LOOK_S)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Close the connection; the cluster goes on."""
        pending = list(self._pending)
        if wait and not cancel_futures and self._client.status == "running":
            wait_for(pending)
        for future in pending:
            if future.cancel():
                future.set_running_or_notify_cancel()
        if self._closes:
            self._client.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Shut down, at once after an error."""
        self.shutdown(wait=kind is None)

    def __enter__(self) -> Self:
        return self

    def _workers(self) -> Mapping[str, Any]:
        while self._client.status == "connecting":  # the client gives up by itself
            time.sleep(_LOOK_S)
        if self._client.status != "running":
            raise self._lost(RuntimeError(f"the client is {self._client.status}"))
        try:
            # -1: all of them; by default the client tells of the first few.
            workers: Mapping[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, RuntimeError, ValueError, CancelledError) as error:
            raise self._lost(error) from error
        return workers

    def _submit(self, call: _Call, **places: Any) -> Future[Any]:
        if self._client.status not in {"running", "connecting"}:
            raise self._lost(RuntimeError(f"the client is {self._client.status}"))
        try:
            # Not pure: Dask would take equal calls for one, and give both the first one's result.
            inner = self._client.submit(call, pure=False, **places)
        except OSError as error:
            raise self._lost(error) from error
        outer: Future[Any] = Future()
        self._pending[outer] = inner
        outer.add_done_callback(self._ended)
        # The client's own executor would wait for ever for an answer that cannot be read here.
        inner.add_done_callback(partial(_pass_on, outer))
        return outer

    def _ended(self, outer: Future[Any]) -> None:
        inner = self._pending.pop(outer, None)
        if outer.cancelled() and inner is not None and self._client.status == "running":
            inner.cancel()

    def _lost(self, error: BaseException) -> ExecutorError:
        msg = (
            f"the Dask scheduler at {self._address} does not answer any more ({_first_line(error)}); "
            "start the cluster, then run this again; completed measurements are kept"
        )
        return ExecutorError(msg, address=self._address)


@dataclass(frozen=True)
class _Call:
    """A call, whose arguments Dask would read its own meaning into."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def __call__(self) -> Any:
        return self.function(*self.arguments, **self.options)


@dataclass(frozen=True)
class _MeasuringCall(_Call):
    """A call whose result says which worker made it."""

    def __call__(self) -> Any:
        from distributed import get_worker

        return replace(super().__call__(), worker=get_worker().address)


def _pass_on(outer: Future[Any], inner: Any) -> None:
    """Give a future the outcome of a Dask future that is done; a loss of workers is a broken executor's."""
    from distributed.scheduler import KilledWorker, NoValidWorkerError

    if inner.status == "cancelled":
        outer.cancel()
    if not outer.set_running_or_notify_cancel():
        return
    try:
        result = inner.result()
    # Dask has tried it again by itself, with several workers.
    except (KilledWorker, NoValidWorkerError, CancelledError) as error:
        outer.set_exception(BrokenExecutor(_first_line(error)))
    except BaseException as error:  # noqa: BLE001  what went wrong there is for whoever waits, an answer that cannot be read, too
        outer.set_exception(error)
    else:
        outer.set_result(result)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0].strip(": ")
