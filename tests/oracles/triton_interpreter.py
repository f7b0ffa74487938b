"""What a launch of a Triton kernel loads, stores and multiplies, as seen by Triton's own interpreter.

The interpreter runs each program with numpy. Its builder is asked for each load, store, atomic operation and product;
here it also notes the addresses. Arrays lie far apart, so that an address tells its array even where a mask hides it.
Needs Triton and ``TRITON_INTERPRET=1`` before the kernels are imported.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from support.triton_case import BYTES, Array, Case

SECTOR = 32
# Each array has so many bytes of addresses for itself and begins in the middle of them.
ROOM = 1 << 24
NUMPY = {
    "i1": "bool", "i8": "int8", "u8": "uint8", "fp8e4nv": "uint8", "fp8e5": "uint8", "i16": "int16",
    "fp16": "float16", "bf16": "uint16", "i32": "int32", "u32": "uint32", "fp32": "float32", "i64": "int64",
    "u64": "uint64", "fp64": "float64",
}  # fmt: skip
# Names of types as TTIR writes them.
WRITTEN = {
    "int1": "i1", "int8": "i8", "uint8": "i8", "int16": "i16", "uint16": "i16", "int32": "i32", "uint32": "i32",
    "int64": "i64", "uint64": "i64", "fp8e4nv": "f8E4M3FN", "fp8e5": "f8E5M2", "fp16": "f16", "bf16": "bf16",
    "fp32": "f32", "fp64": "f64",
}  # fmt: skip


class Stored:
    """Stands for a tensor: Triton asks it for its address and its type only."""

    def __init__(self, address: int, kind: str) -> None:
        self.address = address
        self.dtype = kind

    def data_ptr(self) -> int:
        """Return the address."""
        return self.address


@dataclass
class Traffic:
    """Accesses to one array in one direction."""

    executions: int = 0
    # Executions whose mask let nothing through.
    empty: int = 0
    elements: int = 0
    bytes: int = 0
    sectors: int = 0
    touched: set[int] = field(default_factory=set)

    def note(self, offsets: np.ndarray[Any, Any], size: int) -> None:
        """Add one execution at byte offsets of active elements."""
        self.executions += 1
        self.empty += not offsets.size
        self.elements += offsets.size
        self.bytes += offsets.size * size
        whole = np.unique(offsets)[:, None] + np.arange(size)
        self.sectors += len(np.unique(whole // SECTOR))
        self.touched.update(whole.ravel().tolist())

    def as_dict(self) -> dict[str, int]:
        """Return the numbers."""
        numbers = {key: int(value) for key, value in vars(self).items() if key != "touched"}
        return numbers | {"distinct_bytes": len(self.touched)}


class Memory:
    """The arrays of a case at addresses that tell them apart."""

    def __init__(self, case: Case) -> None:
        self.arrays = case.arrays
        self.names = list(self.arrays)
        self._room = np.zeros((len(self.names) + 1) * ROOM, np.uint8)
        self.first = -(-self._room.ctypes.data // ROOM) * ROOM
        rng = np.random.default_rng(0)
        for name, array in self.arrays.items():
            begin = self.address(name) - self._room.ctypes.data
            place = self._room[begin : begin + array.size * BYTES[array.type]].view(NUMPY[array.type])
            place[:] = self._values(array, rng)

    def address(self, name: str) -> int:
        """Return where an array begins."""
        return self.first + self.names.index(name) * ROOM + ROOM // 2

    def _values(self, array: Array, rng: np.random.Generator) -> Any:
        if array.points_to:
            return [self.address(name) + offset for name, offset in array.points_to]
        if array.values:
            return array.values
        if NUMPY[array.type].startswith("float"):
            return rng.uniform(-1, 1, array.size)
        return rng.integers(0, 2 if array.type == "i1" else 100, array.size)

    def place(self, addresses: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> tuple[str, np.ndarray[Any, Any]]:
        """Return the array that addresses lie in, and the byte offsets of the active ones."""
        addresses = np.asarray(addresses, np.uint64).astype(np.int64)
        mask = np.broadcast_to(mask, addresses.shape)
        active = addresses[mask]
        rooms, counts = np.unique((active if active.size else addresses) // ROOM, return_counts=True)
        if active.size and len(rooms) > 1:
            message = "one execution touches more than one array"
            raise ValueError(message)
        name = self.names[int(rooms[np.argmax(counts)]) - self.first // ROOM]
        offsets = active - self.address(name)
        array = self.arrays[name]
        size = BYTES[array.type]
        if offsets.size and (offsets.min() < 0 or offsets.max() + size > array.size * size):
            message = f"an access outside of {name}"
            raise ValueError(message)
        return name, offsets


class Record:
    """What was noted during a launch."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.traffic: defaultdict[tuple[str, str], Traffic] = defaultdict(Traffic)
        self.dots: defaultdict[tuple[str, str, str, int, int, int, int], int] = defaultdict(int)

    def access(self, direction: str, pointers: Any, mask: Any = None) -> None:
        """Note a load, store or atomic operation."""
        visible = np.ones_like(pointers.data, dtype=bool) if mask is None else mask.data
        name, offsets = self.memory.place(pointers.data, visible)
        self.traffic[name, direction].note(offsets, BYTES[self.memory.arrays[name].type])

    def dot(self, a: Any, b: Any, d: Any, depth: int) -> None:
        """Note a product of two tiles, or of stacks of them."""
        *batch, m, n = d.data.shape
        types = (WRITTEN[handle.dtype.scalar.name] for handle in (a, b, d))
        self.dots[*types, int(np.prod(batch, dtype=int)), m, n, depth] += 1

    def as_dict(self) -> dict[str, Any]:
        """Return all that was noted."""
        traffic: dict[str, dict[str, dict[str, int]]] = {}
        for name in self.memory.names:
            for direction in ("load", "store", "atomic"):
                if (name, direction) in self.traffic:
                    traffic.setdefault(name, {})[direction] = self.traffic[name, direction].as_dict()
        dots = []
        for (a, b, result, batch, m, n, k), executions in sorted(self.dots.items()):
            flops = 2 * batch * m * n * k * executions
            key = {"a": a, "b": b, "result": result, "batch": batch, "m": m, "n": n, "k": k}
            dots.append(key | {"executions": executions, "flops": flops})
        return {"arrays": traffic, "dots": dots}


@contextmanager
def recording(record: Record) -> Iterator[None]:
    """Let the interpreter's builder note what it does."""
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    load, store = builder.create_masked_load, builder.create_masked_store
    rmw, cas, dot = builder.create_atomic_rmw, builder.create_atomic_cas, builder.create_dot

    def noted_load(pointers: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        record.access("load", pointers, mask)
        return load(pointers, mask, *rest, **named)

    def noted_store(pointers: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        record.access("store", pointers, mask)
        return store(pointers, value, mask, *rest, **named)

    def noted_rmw(operation: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        record.access("atomic", pointers, mask)
        return rmw(operation, pointers, value, mask, *rest)

    def noted_cas(pointers: Any, *rest: Any) -> Any:
        record.access("atomic", pointers)
        return cas(pointers, *rest)

    def noted_dot(a: Any, b: Any, d: Any, *rest: Any) -> Any:
        record.dot(a, b, d, a.data.shape[-1])
        return dot(a, b, d, *rest)

    new = {"create_masked_load": noted_load, "create_masked_store": noted_store, "create_atomic_rmw": noted_rmw}
    new |= {"create_atomic_cas": noted_cas, "create_dot": noted_dot}
    # The stand-ins live in the memory of this process, so nothing is copied.
    executor = interpreter.GridExecutor
    stays = mock.patch.multiple(
        executor, _init_args_hst=lambda _, arguments, named: (arguments, named), _restore_args_dev=lambda *_: None
    )
    with mock.patch.multiple(builder, **new), stays, np.errstate(all="ignore"):
        yield


def truth(case: Case) -> dict[str, Any]:
    """Return what the interpreter saw of a launch."""
    memory = Memory(case)
    record = Record(memory)
    arguments = {
        name: Stored(memory.address(name), value.type) if isinstance(value, Array) else value
        for name, value in case.arguments.items()
    }
    with recording(record):
        case.kernel[case.grid](**arguments, **case.constexprs)
    return record.as_dict()
