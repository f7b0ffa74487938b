"""Where a Dask cluster's work goes, without a cluster."""

from concurrent.futures import Future

import pytest

from perflex.errors import ExecutorError
from perflex.timing.executors import dask
from perflex.timing.executors.dask import DaskExecutor


class _Client:
    """A Dask client as far as work is sent: `told` are the workers at each look, the last ones from then on."""

    status = "running"

    def __init__(self, *told):
        self._told, self.sent = list(told), []

    def scheduler_info(self, n_workers):  # noqa: ARG002 - the client's name of it
        workers = self._told.pop(0) if len(self._told) > 1 else self._told[0]
        return {"workers": {f"tcp://{host}": {"host": host.partition(":")[0], "resources": {}} for host in workers}}

    def submit(self, _call, *, pure, retries, workers):  # noqa: ARG002
        self.sent += workers
        return Future()


@pytest.mark.filterwarnings("ignore:no worker of there says")
def test_one_worker_of_each_host_measures():
    client = _Client(["n0:1", "n0:2", "n1:1", "n2:1", "n2:2"])
    executor = DaskExecutor(client, "there")
    executor.submit_measuring(print, 1)
    assert [worker[:8] for worker in client.sent] == ["tcp://n0", "tcp://n1", "tcp://n2"]
    executor.leave_out("tcp://n0:1")
    assert executor.measuring_slots() == 2


def test_workers_that_were_not_asked_for_long_may_be_gone_for_a_moment(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(dask.time, "monotonic", lambda: now[0])
    executor = DaskExecutor(_Client([]), "there")
    now[0] += 10 * dask._PATIENCE_S
    assert executor.measuring_slots() == 0
    now[0] += 1.1 * dask._PATIENCE_S
    with pytest.raises(ExecutorError, match="has had no worker at all"):
        executor.measuring_slots()


@pytest.mark.filterwarnings("ignore:no worker of there says")
@pytest.mark.parametrize("how", ["submit_to_each", "submit_measuring"])
def test_workers_that_are_gone_for_a_moment_are_waited_for(how, monkeypatch):
    monkeypatch.setattr(dask.time, "sleep", lambda _: None)
    client = _Client([], ["n0"], [], ["n0"])
    getattr(DaskExecutor(client, "there"), how)(print, 1)
    assert [worker.removeprefix("tcp://") for worker in client.sent] == ["n0"]
