"""What a tile program costs on a machine: seconds at the peaks of resources, for full rounds of programs and the last.

A compute unit holds some programs at once: a round. All of what follows is of the loop in which most is done; what
stands outside of it is added once a program. Sources: NVIDIA's programming guides and white papers for rates, layouts
of products and asynchronous copies; Triton's compiler for which loads are copied ahead, and through which buffers.
"""

from __future__ import annotations

from functools import cached_property
from math import ceil, prod

from perflex.errors import MachineError
from perflex.features.tiles.main_loop import LANES, MainLoop, Product
from perflex.features.tiles.tile_program import TileProgram
from perflex.machines.machine import Machine

_SECTOR = 32
# Hopper's tensor cores reach that much of their peak with the instructions of Ampere, which Triton uses for small tiles
# (Luo et al., Benchmarking and Dissecting the NVIDIA Hopper GPU, 2024, Table 7: 62.9 %).
_OLD_INSTRUCTIONS = 0.625
# Registers beside those for tiles: counters, sizes, addresses of what is stored.
_OTHER_REGISTERS = 32
_POINTER_REGISTERS = 64
# Instructions of a sub-group in each step beside those for tiles: the loop, addresses, waits. No source: what times of
# matrix products on an A100 and an H100 say, as the next three.
_LOOP = 100
# Cycles of a step that nothing hides where a program is alone on its compute unit: barriers, first operands, and
# operands that registers cannot hold, of which there are so many.
_ALONE = 15
_ALONE_SLICES, _SHORT_SLICES = 3, 32
# Cycles from a product through row maxima, exponentials and their conversion to the next product, however small they
# are. No source: an estimate of latencies of tensor cores, two shuffles, a special function and two barriers. Where
# sub-groups share rows, local memory takes the place of shuffles.
_CHAIN = 240
# Cycles for a row of a tile that lies in another page of memory.
_ROW = 3.2
# Cycles that starting a program takes.
_START = 1000


class TileCosts(MainLoop):
    """Costs of one tile program on one machine; attributes as of `MainLoop`."""

    @cached_property
    def most_registers(self) -> float:
        """Registers that a work-item can have."""
        # All work-items of a program must have some.
        most = min(self.machine.need("registers_per_item_max"), self.machine.need("registers_per_unit") // self.items)
        return min(most, self.program.registers or most)

    @cached_property
    def registers(self) -> tuple[float, float]:
        """Registers of a work-item, and those of them that it lacks."""
        if (known := self.program.resources) is not None:
            return float(known.registers), known.spilt_bytes / 4
        items = self.items
        # What tensor cores do not add up stands beside the sum.
        sums = sum(prod(one.dot.shape[:2]) / items for one in self.products) * (2 if self.scaled else 1)
        pointers = stay = fragments = all_fragments = 0.0
        for number, access in enumerate(self.program.accesses):
            if access.loop != self.loop or not access.shape:
                continue
            size = prod(access.shape) * access.itemsize
            pointers += 2 * size / access.vector / items if access.direction == "load" else 0
            if not self.ahead.get(number) and access.direction == "load":
                stay += size / items / min(access.vector, 4)
        scalar = False
        for one in self.products:
            m, n, k = one.dot.shape
            if not one.kind:
                scalar = True
                fragments += sum(self._held(one)) - 8
            elif one.groups:
                fragments += 0 if one.dot.operands[0].direct else m * k * one.itemsize / 4 / items
            else:
                # Products that follow one another use the same registers.
                slices = m / one.rows + n / one.columns
                fragments = max(fragments, slices / 2)
                all_fragments = max(all_fragments, slices * k * one.itemsize / 4 / LANES)
        pointers = min(pointers, _POINTER_REGISTERS)
        if self.steps <= 1 and not scalar:
            pointers, fragments = pointers / 2, fragments / 2
        found = sums + pointers + stay + fragments + _OTHER_REGISTERS
        spilt = max(found - self.most_registers, 0.0) + (0.0 if scalar else max(sums + all_fragments - 300, 0.0))
        return found, spilt

    def _held(self, one: Product) -> tuple[float, float]:
        """Return the rows and columns of a product without tensor cores that a work-item holds."""
        m, n, _ = one.dot.shape
        each = m * n / self.items
        side = 4 if each >= 16 else 2 if each >= 4 else 1
        lanes = min(LANES, max(1, n // side))
        columns = min(self.program.warps, max(1, n // (side * lanes)))
        rows = self.program.warps // columns
        return max(side, m / (LANES // lanes * rows)), max(side, n / (lanes * columns))

    @cached_property
    def resident(self) -> int:
        """Programs that a compute unit holds at once."""
        machine, warps = self.machine, self.program.warps
        each = min(256, ceil(min(self.registers[0], self.most_registers) / 8) * 8)
        limits = [
            machine.need("local_bytes") // (self.local_bytes + (machine.local_reserved_bytes or 0) or 1),
            machine.need("registers_per_unit") // (each * self.items),
            machine.need("max_items_per_unit") // self.items,
            machine.need("max_groups_per_unit"),
        ]
        return max(1, int(min(limits))) if warps else 1

    @cached_property
    def refusal(self) -> str:
        """Why the machine cannot run a program; empty where it can."""
        most, items = int(self.machine.need("local_bytes_per_group")), int(self.machine.need("max_items_per_group"))
        if self.local_bytes > most:
            return f"it needs {self.local_bytes} B of shared memory, {self.machine.name} has {most} B for a program"
        return f"it has {self.items} work-items, {self.machine.name} runs {items} at most" if self.items > items else ""

    # -- one iteration of one program, in cycles of a compute unit

    @cached_property
    def tensor(self) -> float:
        """Cycles of tensor cores, or of multiply-add units where they do not know the type."""
        total = 0.0
        for one in self.products:
            rate = self.machine.need(f"tensor_{one.kind}_per_cycle" if one.kind else "fp32_per_cycle")
            if one.kind and self.capability == 9 and not one.groups:
                rate *= _OLD_INSTRUCTIONS
            # Three products of TF32 make one that is nearly of float32.
            cycles = 2 * prod(one.dot.shape) / rate * (3 if one.dot.types[0] == "tf32x3" else 1)
            # wgmma waits for its operands from local memory, which is slower where there are few columns.
            total += one.count * max(cycles, self._read_cycles(one) if one.groups else 0.0)
        return total

    @cached_property
    def instructions(self) -> float:
        """Instructions of one sub-group, those that each iteration of a loop has apart."""
        total, items = 0.0, self.items
        for one in self.products:
            m, n, k = one.dot.shape
            deep = {8: 4, 4: 8, 2: 16}.get(one.itemsize, 32)
            if not one.kind:
                rows, columns = self._held(one)
                along = one.dot.operands[0].along_k
                found = m * n * k / items + k * (rows * (1 if along else 0.25) + columns / 4)
            elif one.groups:
                found = m / 64 * max(1, n / 256) * k / deep
            else:
                found = m / one.rows / 16 * n / one.columns / 8 * k / deep
                turned = [4 if one.kind == "tf32" and not side.along_k else 1 for side in one.dot.operands]
                found += (m / one.rows / 16 * turned[0] + n / one.columns / 16 * turned[1]) * k * one.itemsize / 32
            total += found * one.count
        for number, access in enumerate(self.program.accesses):
            if self.in_step(access) and access.shape:
                size = self.raw(access)
                total += max(access.executions / self.times, size / access.vector / items) * (
                    3 if self.ahead.get(number) else 5
                )
                if number in self.fed and self.transposed(*self.fed[number]):
                    total += size / 4 / items
        for work in self.program.operations:
            if work.loop == self.loop:
                total += work.count / self.times / items * (0.5 if work.dtype in {"f16", "bf16"} else 1)
        return total

    @cached_property
    def special(self) -> float:
        """Cycles of special functions."""
        count = sum(one.count for one in self.program.operations if one.loop == self.loop and one.kind == "special")
        return count / self.times / self.machine.need("special_per_cycle") if count else 0.0

    @cached_property
    def chain(self) -> float:
        """Cycles of what follows one another in a step of one program; 0 where sums take what was loaded."""
        if not (self.chained or self.converted or self.scaled):
            return 0.0
        work = [one for one in self.program.operations if one.loop == self.loop and one.kind != "special"]
        between = sum(one.count for one in work) / self.times / self.items
        shared = any(one.columns > 1 and not one.groups for one in self.products)
        latency = _CHAIN * (2 if shared else 1) if self.chained else 0
        # Sub-groups go on by themselves while others compute; those of wgmma begin together and wait together
        # (Shah et al., FlashAttention-3, 2024: they must be told to take turns).
        waves = max(1.0, self.program.warps / 4)
        turns = waves if any(one.groups for one in self.products) else 1.0
        alone = (self.tensor_own + self.special * 4 / min(4, self.program.warps)) / waves
        return latency + (alone + between) * turns

    @cached_property
    def tensor_own(self) -> float:
        """Cycles of products of one program alone: each sub-group has the tensor cores of its part of the unit."""
        scalar = sum(prod(one.dot.shape) * one.count / self.items for one in self.products if not one.kind)
        return max(self.tensor * 4 / min(4, self.program.warps), 2 * scalar)

    @cached_property
    def wavefronts(self) -> float:
        """Cycles of local memory."""
        total = 0.0
        for one in self.products:
            if not one.kind:
                rows, columns = self._held(one)
                along = [side.along_k for side in one.dot.operands]
                found = rows * (1 if along[0] else 0.5) + columns * (8 if along[1] else 1)
                total += found * self.program.warps * one.dot.shape[2] * one.count
            else:
                total += self._read_cycles(one) * one.count
        for number in self.ahead:
            access = self.program.accesses[number]
            if number not in self.fed:
                continue
            product, side = self.fed[number]
            if self.transposed(product, side):
                # Neighbours along m or n fall on the same banks.
                total += self.raw(access) / 128 * min(32, product.dot.shape[side] / 7)
            # A copy of a sub-group takes four cycles, whatever its width.
            total += self.raw(access) / access.vector / 32 * 4 * (1 if self.ahead[number] else 2)
        return total

    def _read_cycles(self, one: Product) -> float:
        """Return cycles in which local memory gives the operands of a product on tensor cores."""
        m, n, k = one.dot.shape
        first, second = m * k * one.itemsize, n * k * one.itemsize
        if one.groups:
            return (self._read(one, 0) * first + second * max(1, m / 64)) / 128
        return (self._read(one, 0) * first * one.columns + self._read(one, 1) * second * one.rows) / 128

    def _read(self, one: Product, side: int) -> int:
        """Return whether an operand is read from local memory; what is computed, or stays, is in registers."""
        operand = one.dot.operands[side]
        if operand.access < 0:
            return 0
        return 1 if self.program.accesses[operand.access].loop == self.loop or one.groups else 0

    @cached_property
    def sector_bytes(self) -> float:
        """Bytes of sectors that an iteration loads, stores or updates."""
        return sum(one.sectors for one in self.program.accesses if self.in_step(one)) * _SECTOR / self.times

    @cached_property
    def rows_apart(self) -> float:
        """Rows of tiles that lie in other pages of memory than their neighbours."""
        total = 0.0
        for one in self.loads:
            if one.stride >= 16384 and one.shape:
                length = one.shape[one.axis] if one.axis >= 0 else 1
                total += prod(one.shape) / length * min(1.0, one.stride / 65536) * one.executions / self.times
        return total

    # -- rounds

    @cached_property
    def rounds(self) -> tuple[int, int]:
        """Full rounds, and programs of the busiest compute unit in the last one; 0 where all are full."""
        at_once = int(self.machine.need("compute_units")) * self.resident
        full, rest = divmod(self.program.programs, at_once)
        return full, ceil(rest / self.machine.need("compute_units"))

    @cached_property
    def concurrent(self) -> float:
        """Programs that run at once."""
        return min(self.program.programs, self.machine.need("compute_units") * self.resident)

    @cached_property
    def traffic(self) -> tuple[float, float]:
        """Bytes that DRAM gives and takes, and which share of what rounds ask for anew it gives."""
        programs, at_once = self.program.programs, self.concurrent
        taken = sum(
            one.bytes * (2 if one.direction == "atomic" else 1)
            for one in self.program.accesses
            if one.direction != "load"
        )
        # Of each load the bytes that a program asks for once; what it asks for again is there where L2 holds all.
        each = [(one, one.bytes / max(one.executions, 1.0)) for one in self.program.accesses if one.direction == "load"]
        loads = [(one, size * (one.tiles - one.again)) for one, size in each]

        def touched(count: float) -> float:
            return sum(one.different(count) * size for one, size in loads)

        # Programs share what so many consecutive ones touch: those of a round, or as many as L2 holds.
        window, effective = at_once, self.machine.need("l2_effective_bytes")
        if touched(at_once) > effective:
            loads = [(one, size * one.tiles) for one, size in each]
        while window < programs and touched(wider := min(1.5 * window, programs)) < effective:
            window = wider
        given = sum(
            max(one.different(programs), programs / window * one.different(window)) * size for one, size in loads
        )
        asked = max(1.0, programs / at_once) * touched(at_once)
        return given + taken, min(1.0, given / asked) if asked else 0.0

    def features(self) -> dict[str, float]:
        """Return all costs by what features call them; times in s."""
        machine, cycle, warps = self.machine, self.cycle, self.program.warps
        units, (full, last), resident = machine.need("compute_units"), self.rounds, self.resident
        given, missing = self.traffic
        near = machine.need("l2_latency") * cycle
        latency = near + missing * max(0.0, machine.need("dram_latency") - near)
        tiles = [ahead for number, ahead in self.ahead.items() if len(self.program.accesses[number].shape) > 1]
        piped = bool(tiles) and all(tiles) and self.stages > 2
        # Factors of rows and columns come from L2 when they are needed, beside the product.
        factors = near if self.scaled and not all(self.ahead.values()) else 0.0
        # Rounds begin while others still run.
        begun = 1 + (full + (last > 0) - 1) / resident
        own = (self.instructions * self._fetch() + _LOOP / max(1.0, warps / 4)) * max(1.0, warps / 4)
        outside = [one for one in self.program.accesses if not self.in_step(one) and one.direction != "load"]
        ends = sum(prod(one.shape) * one.itemsize * one.executions * (4 if one.vector < 4 else 1) for one in outside)
        found = {
            "launch": 1.0,
            "starting": self.program.programs / machine.need("group_start_rate"),
            "dram": given / machine.need("dram_bandwidth"),
            # Other loops, such as that of the blocks that a causal mask cuts, go on as this one.
            "steps": self.steps * self.all_loops,
            "full_rounds": float(full),
            "last_rounds": float(last > 0),
            "starts": begun * _START * cycle,
            "start_latency": begun * latency,
            "chain": self.chain * cycle,
            "wait": max(latency / (self.stages - 2), factors) if piped else latency,
            "wait_tensor": 0.0 if piped else self.tensor_own * cycle,
            "wait_shared": 0.0 if piped else self.wavefronts * cycle,
            "local_bytes": float(self.local_bytes),
            "registers": self.registers[0],
            "resident": float(resident),
        }
        for name, count, active in (
            ("full", resident, units * resident),
            ("last", max(last, 1), self.program.programs - full * units * resident),
        ):
            port = count * self.sector_bytes / machine.need("l2_bytes_per_cycle") * cycle
            slots = count * (self.instructions * self._fetch() + _LOOP) * warps / 4
            spilt = count * self.registers[1] * warps * LANES * 4 / 128
            found |= {
                f"{name}_tensor": max(count * self.tensor, self.tensor_own) * cycle,
                f"{name}_shared": count * self.wavefronts * cycle,
                f"{name}_l2": max(port, active * self.sector_bytes / machine.need("l2_bandwidth")),
                f"{name}_issue": max(slots, own) * cycle,
                f"{name}_special": count * self.special * cycle,
                f"{name}_rows": count * self.rows_apart * _ROW * cycle,
                f"{name}_added": (_ALONE * self._slices() / count**2 + spilt) * cycle,
                f"{name}_ends": count * ends / self.program.programs / 32 * cycle,
            }
        return found

    def _fetch(self) -> float:
        """Return by how much slower instructions come that the cache of instructions cannot hold."""
        code = sum(prod(one.dot.shape) * one.count / self.items for one in self.products if not one.kind)
        return 6.0 if code * 16 > 100 * 1024 else 1.0

    def _slices(self) -> float:
        """Return parts of a step that one program alone does not hide."""
        if not self.products or any(one.groups for one in self.products):
            return 0.0
        short = self.registers[0] - (self.most_registers - 15)
        return _ALONE_SLICES + min(max(short, 0.0), _SHORT_SLICES)


def tile_costs(program: TileProgram, machine: Machine) -> dict[str, float]:
    """Return what features of tile programs need a machine for, by name.

    Raises
    ------
    MachineError
        The machine cannot run the program, or lacks a fact.
    """
    costs = TileCosts(program, machine)
    if costs.refusal:
        shape = f"{program.warps} warps and {program.stages} stages"
        msg = f"kernel {program.name!r} with {shape}: {costs.refusal}; take smaller tiles or fewer stages"
        raise MachineError(msg, machine=machine.name)
    return costs.features()
