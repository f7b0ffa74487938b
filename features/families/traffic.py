"""Traffic on all cores of a CPU: ``f_traffic_<what>_<level>``, ``f_traffic_pages`` and ``f_traffic_bytes_tlb``.

Unlike ``f_ecm_vol_<level>``, which is one core's that runs the whole kernel, the work-groups are dealt out to all
cores, and data that fit their caches together stay there. ``bytes`` go both ways; ``pieces`` are what hardware
prefetchers follow: the contiguous bytes that an access touches before it jumps; ``stored`` are the pieces that stores
write back: each waits for its line. Pages are those that the TLB has forgotten when they are touched again, and
``bytes_tlb`` the bytes that cross where the data touched since are more than it maps: they stream from pages that are
looked up anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import MachineError
from perflex.features.families.feature import Amount, FeatureDefaults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target

_PREFIX = "f_traffic_"
_IDENTIFIER = re.compile(_PREFIX + r"(pages|(?:bytes|pieces|stored)_[a-z][a-z0-9]*)")
_EXAMPLES = tuple(f"{_PREFIX}{what}_{level}" for what in ("bytes", "pieces", "stored") for level in ("l2", "l3", "mem"))
_TLB = (f"{_PREFIX}pages", f"{_PREFIX}bytes_tlb")
_UNITS = {"bytes": "B", "pieces": "piece", "stored": "piece", "pages": "page"}
_KEPT = 64


@dataclass(frozen=True)
class TrafficFeature(FeatureDefaults):
    """Bytes or pieces that cross between a level and the one before it, or pages, per run of a kernel on a CPU."""

    identifier: str

    @property
    def unit(self) -> str:
        """What is counted."""
        return _UNITS[self._what.partition("_")[0]]

    @property
    def _what(self) -> str:
        return self.identifier.removeprefix(_PREFIX)

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value at the given sizes on the target's machine.

        Raises
        ------
        MachineError
            The target has no machine, or it has no such level.
        UnsupportedKernelError
            An access or a loop is too irregular.
        """
        target.need_machine(self.identifier)
        scop.check_sizes(sizes)
        if not self.matches(scop, sizes):
            # A kernel that touches no memory moves nothing.
            return sum((np.zeros(np.shape(sizes[name])) for name in scop.parameters), start=np.zeros(()))[()]
        found = _counted(scop, sizes, target)
        if self._what not in found:
            known = ", ".join(_PREFIX + name for name in found)
            msg = f"machine {target.need_machine().name} has no level for {self.identifier}; it has {known}"
            raise MachineError(msg, machine=target.need_machine().name, feature=self.identifier)
        return found[self._what]

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the features of this family, if the kernel touches memory."""
        touches = any(scop.array(access.array).space != "private" for one in scop.statements for access in one.accesses)
        return [*_EXAMPLES, *_TLB] if touches else []

    def matches(self, scop: Scop, _sizes: Sizes, /) -> bool:
        """Return whether the kernel touches memory."""
        return bool(self.inventory(scop))

    def amount(self, _scop: Scop, _sizes: Sizes, _target: Target, /) -> Amount | None:
        """Return one byte for bytes."""
        return Amount(1.0, "B") if self.unit == "B" else None


def _counted(scop: Scop, sizes: Sizes, target: Target) -> Mapping[str, Any]:
    from perflex.features.cpu.cores import traffic_of_cores

    machine = target.need_machine()
    used = {name: np.asarray(sizes[name]) for name in scop.parameters if name in sizes}
    # Arrays are not hashable: shape and bytes stand for them.
    key = (
        tuple((name, one.shape, one.tobytes()) for name, one in sorted(used.items())),
        machine,
        target.sub_group_size,
    )
    return scop.derived(
        "traffic", key, lambda: traffic_of_cores(scop, sizes, machine, target.sub_group_size), most=_KEPT
    )


class TrafficFamily:
    """Reads ``f_traffic_...``."""

    def parse(self, identifier: str) -> TrafficFeature | None:
        """Return the feature, or None when the identifier is another family's."""
        return TrafficFeature(identifier) if _IDENTIFIER.fullmatch(identifier) else None

    def examples(self) -> tuple[str, ...]:
        """Return identifiers to suggest."""
        return (*_EXAMPLES, *_TLB)
