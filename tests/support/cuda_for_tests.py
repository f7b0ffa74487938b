"""A CUDA device that exists for tests only: g++ compiles its kernels, see tests/fake_cuda."""

import importlib
import shutil
import sys
from pathlib import Path

import pytest

from perflex import Device
from perflex.devices.cuda import load_cupy, properties_of

FAKE = Path(__file__).parents[1] / "fake_cuda"
LISTS = ("max_work_item_sizes", "max_groups")


def drop_cupy():
    for name in [name for name in sys.modules if name.partition(".")[0] == "cupy"]:
        del sys.modules[name]


@pytest.fixture
def fake_cupy(monkeypatch):
    """The fake package in the place of CuPy, here and in child processes."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile CUDA C++ for the CPU")
    drop_cupy()
    monkeypatch.syspath_prepend(str(FAKE))
    yield importlib.import_module("cupy")
    drop_cupy()


@pytest.fixture
def fake_gpu(fake_cupy):
    facts = properties_of(load_cupy(), 0)
    return Device(**{name: tuple(value) if name in LISTS else value for name, value in facts.items()})


def state():
    return sys.modules["cupy._driver"].State
