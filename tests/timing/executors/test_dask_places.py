"""Where a Dask cluster's work goes, without a cluster."""

from collections import Counter
from concurrent.futures import Future

import pytest

from perflex.timing.executors import dask
from perflex.timing.executors.dask import DaskExecutor


class _Client:
    """A Dask client as far as work is sent: `told` are the workers at each look, the last ones from then on."""

    status = "running"

    def __init__(self, *told):
        self._told, self.sent = list(told), []

    def scheduler_info(self, n_workers):  # noqa: ARG002 - the client's name of it
        workers = self._told.pop(0) if len(self._told) > 1 else self._told[0]
        return {"workers": {f"tcp://{host}": {"host": host, "resources": {}} for host in workers}}

    def submit(self, _call, *, pure, workers):  # noqa: ARG002
        self.sent += workers
        return Future()


@pytest.mark.filterwarnings("ignore:no worker of there says")
def test_much_work_at_once_is_spread_over_the_hosts():
    client = _Client(["n0", "n1", "n2"])
    executor = DaskExecutor(client, "there")
    for number in range(17):
        executor.submit_measuring(print, number)
    assert sorted(Counter(client.sent).values()) == [5, 6, 6]


@pytest.mark.filterwarnings("ignore:no worker of there says")
@pytest.mark.parametrize("how", ["submit_to_each", "submit_measuring"])
def test_workers_that_are_gone_for_a_moment_are_waited_for(how, monkeypatch):
    monkeypatch.setattr(dask.time, "sleep", lambda _: None)
    client = _Client([], ["n0"], [], ["n0"])
    getattr(DaskExecutor(client, "there"), how)(print, 1)
    assert [worker.removeprefix("tcp://") for worker in client.sent] == ["n0"]
