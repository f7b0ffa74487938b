"""What a tile program costs on a machine: seconds at the peaks of resources, for full rounds of programs and the last.

A compute unit holds some programs at once: a round. All of what follows is of the main loop, in which most is done;
what stands outside of it is added once a program. Sources: NVIDIA's programming guides and white papers for rates,
layouts of products and asynchronous copies; Triton's compiler for which loads are copied ahead, through which buffers.
"""

from __future__ import annotations

from functools import cached_property
from math import ceil, prod

from perflex.errors import MachineError, WorkGroupTooLargeError
from perflex.features.tiles.tile_program import OPERAND_BYTES, TileAccess, TileDot, TileLoop, TileProgram
from perflex.machines.machine import Machine

_LANES, _SECTOR = 32, 32
# Compute capability: Triton supports no older ones of NVIDIA.
_OLDEST = 8.0
# Rates of tensor cores by types of operands; all floating-point types of 8 bits are fp8.
_RATES = {"tf32": "tf32", "tf32x3": "tf32", "f16": "fp16", "bf16": "fp16", "f64": "fp64", "i8": "int8"}
# Hopper's tensor cores reach that much of their peak with the instructions of Ampere, which Triton uses for small tiles
# (Luo et al., Benchmarking and Dissecting the NVIDIA Hopper GPU, 2024, Table 7: 62.9 %).
_OLD_INSTRUCTIONS = 0.625
# Registers beside those for tiles: counters, sizes, addresses of what is stored; and those for addresses of loads.
_OTHER_REGISTERS, _POINTER_REGISTERS = 32, 64
# Multiply-adds of scalar units along k that code gathers before it goes on to the next sum (Triton 3.9, ptxas).
_SCALAR_PASS = 8
# Sums of tensor memory that registers hold at once (Triton 3.9, code for a B200).
_AT_ONCE = 192
# Instructions of a sub-group in each step beside those for tiles: the loop, addresses, waits. No source: what times of
# matrix products on an A100 and an H100 say, as the next three.
_LOOP = 100
# Cycles of a step that nothing hides where a program is alone on its compute unit: barriers, first operands, and
# operands that registers cannot hold, of which there are so many.
_ALONE, _ALONE_SLICES, _SHORT_SLICES = 15, 3, 32
# Cycles from a product through row maxima, exponentials and their conversion to the next product, however small they
# are. No source: an estimate of latencies of tensor cores, two shuffles, a special function and two barriers. Where
# sub-groups share rows, local memory takes the place of shuffles.
_CHAIN = 240
_ROW = 3.2  # Cycles for a row of a tile that lies in another page of memory
_START = 1000  # Cycles that starting a program takes


def _together(machine: Machine) -> tuple[int, bool]:
    """Return the rows of products that four sub-groups compute together, 0 of none; whether sums are in tensor memory.

    Hopper's wgmma, and tcgen05 of Blackwell for data centers.
    """
    capability = machine.compute_capability or 0.0
    return (64, False) if 9 <= capability < 10 else (128, True) if 10 <= capability < 12 else (0, False)


def _size(access: TileAccess) -> int:
    return prod(access.shape) * access.itemsize


class _Product:
    """A product of tiles in the main loop: its instructions, how sub-groups share it, and what it needs each time."""

    def __init__(self, dot: TileDot, last: tuple[int, int, int] | None, costs: TileCosts) -> None:
        self.dot, self.count, itemsize = dot, dot.executions / costs.times, OPERAND_BYTES.get(dot.types[0], 1)
        machine, warps, (m, n, k) = costs.machine, costs.program.warps, dot.shape
        kind = "fp8" if dot.types[0].startswith("f8") else _RATES.get(dot.types[0], "")
        if not kind or getattr(machine, f"tensor_{kind}_per_cycle") is None:
            kind = "fp16" if kind in {"fp8", "int8"} else ""
        together, in_memory = _together(machine)
        # Whether four sub-groups compute it together (wgmma, tcgen05); otherwise those take the instructions of Ampere.
        self.groups = bool(kind) and bool(together) and warps % 4 == 0 and m >= 64
        self.old = bool(kind) and bool(together) and not self.groups
        # Whether sums stand in tensor memory.
        self.in_memory = self.groups and in_memory
        # Of the rate of tensor cores, empty where they have none; Ampere's instructions know no fp8: it is converted.
        self.kind = "fp16" if self.old and kind == "fp8" else kind
        # Sub-groups along m and n.
        rows, columns = (1, 1) if last is None else (warps, 1) if last[0] >= last[1] else (1, warps)
        while rows * columns < warps:
            # The side that has more of the instruction's tiles is split.
            if m / 16 / rows >= n / 16 / columns and rows < m // 16:
                rows *= 2
            else:
                columns *= 2
        self.split = columns > 1 and not self.groups  # Whether sub-groups share rows
        first, second = m * k * itemsize, n * k * itemsize
        self.bytes = first, second
        along = [one.along_k for one in dot.operands]
        # wgmma takes operands not of 2 bytes along k only; others must be turned in registers.
        self.turned = [self.groups and not in_memory and itemsize != 2 and not one for one in along]
        # What is computed, or stays, is in registers and not read.
        read = [one.access >= 0 if self.groups else one.access in costs.inner for one in dot.operands]
        # Instructions of a sub-group, cycles of local memory, registers for operands, and those for all of k; how often
        # a step goes through all sums, and how many a work-item has of one instruction.
        self.all_registers, self.passes, self.block = 0.0, 1.0, 1.0
        if not self.kind:
            # Each work-item holds a block of rows and columns.
            each = m * n / costs.items
            side = 4 if each >= 16 else 2 if each >= 4 else 1
            lanes = min(_LANES, max(1, n // side))
            along_n = min(warps, max(1, n // (side * lanes)))
            high, wide = max(side, m / (_LANES // lanes * (warps // along_n))), max(side, n / (lanes * along_n))
            self.instructions = k * (each + high * (1 if along[0] else 0.25) + wide / 4)
            self.local = k * warps * (high * (1 if along[0] else 0.5) + wide * (8 if along[1] else 1))
            self.registers, self.passes = high + wide - 8, max(1.0, k / _SCALAR_PASS)
        elif self.groups:
            self.instructions = m / 64 * max(1, n / 256) * k * itemsize / 32
            self.local = (read[0] * first + second * max(1, m / together)) / 128
            self.registers, self.block = 0 if dot.operands[0].direct else first / 4 / costs.items, min(n, 256) / 2
        else:
            high, wide = m / rows / 16, n / columns / 16
            parts = [4 if self.kind == "tf32" and not one else 1 for one in along]
            self.instructions = (2 * high * wide + high * parts[0] + wide * parts[1]) * k * itemsize / 32
            self.local = (read[0] * first * columns + read[1] * second * rows) / 128
            self.registers = 8 * (high + wide)
            self.all_registers, self.passes = (high + wide) * k * itemsize / 8, k * itemsize / 32


class TileCosts:
    """Costs of one tile program, `program`, on one machine, `machine`, with so many work-items, `items`.

    The main loop, `loop`, is the one in which most is done, unless it is given.
    """

    def __init__(self, program: TileProgram, machine: Machine, loop: int | None = None) -> None:
        self.program, self.machine = program, machine
        self.cycle, self.items = 1 / machine.need("clock_hz"), _LANES * program.warps
        # What is computed and loaded in each loop, and what else is done; -1 is outside of all.
        fed = dict.fromkeys(range(-1, len(program.loops)), 0.0)
        for dot in program.dots:
            fed[dot.loop] += dot.flops / 16
        others = dict.fromkeys(fed, 0.0)
        for access in program.accesses:
            (fed if access.direction == "load" else others)[access.loop] += access.bytes
        # The main loop; one that runs less than once a program is an exception, not the rule.
        self.loop = loop = max(fed, key=lambda one: (fed[one] + others[one], one)) if loop is None else loop
        self.inside = inside = loop >= 0
        main = program.loops[loop] if inside else TileLoop(entries=1, iterations=program.programs)
        self.times, self.steps = max(main.iterations, 1.0), main.iterations / program.programs
        # Other loops, such as that of the blocks that a causal mask cuts, go on as this one.
        self.all_loops = (sum(fed.values()) - fed[-1]) / fed[loop] if inside and fed[loop] else 1.0
        # Code loads ahead whatever the steps, but in innermost loops only.
        innermost = inside and all(one.parent != loop for one in program.loops)
        self.stages = (main.stages or program.stages) if innermost else 1
        # Accesses of a step by number; without a loop, what is stored comes behind the only one.
        within = {number: one for number, one in enumerate(program.accesses) if one.loop == loop}
        self.inner = {number: one for number, one in within.items() if inside or one.direction == "load"}
        self.tiles = {number: one for number, one in within.items() if one.direction == "load" and one.shape}
        self.ends = [one for one in program.accesses if one.direction != "load" and (one.loop != loop or not inside)]
        self.work = [one for one in program.operations if one.loop == loop]
        self._set_products([dot for dot in program.dots if dot.loop == loop])

    def _set_products(self, dots: list[TileDot]) -> None:
        computed = [side.access for dot in dots for side in dot.operands if not side.direct]
        # Whether an operand is computed of what is loaded, or of no such tile: of another product.
        self.converted, self.chained = max(computed, default=-1) >= 0, min(computed, default=0) < 0
        # Where one product follows another, as in attention, all lie as the last: along its longer side.
        last = dots[-1].shape if self.chained and len(dots) > 1 else None
        self.products = [_Product(dot, last, self) for dot in dots]
        self.groups = any(one.groups for one in self.products)
        # The first product, and which of its operands, that a load feeds.
        self.fed: dict[int, tuple[_Product, int]] = {}
        for product in self.products:
            for side, operand in enumerate(product.dot.operands):
                self.fed.setdefault(operand.access, (product, side))
        self.fed.pop(-1, None)
        self.turned = {number for number, (one, side) in self.fed.items() if one.turned[side]}
        # Whether each load is copied ahead to local memory.
        self.ahead: dict[int, bool] = {}
        for number, one in self.tiles.items():
            # What operands are computed of is copied ahead as they are; what products are scaled by is not.
            needed = number in self.fed or self.converted
            # Of a row of factors, a work-item copies 4 bytes at least.
            narrow = one.vector < 4 or (len(one.shape) == 1 and 1 <= one.shape[0] / self.items < 4 / one.itemsize)
            self.ahead[number] = needed and self.stages > 1 and not narrow and number not in self.turned
        # Whether products are added up outside of tensor cores, such as those of scaled blocks.
        work = sum(one.count for one in self.work if one.dtype == "f32") / self.times
        self.scaled = work >= sum(prod(one.dot.shape[:2]) * one.count for one in self.products) > 0 and not computed

    @cached_property
    def _parts(self) -> list[TileCosts]:
        """Itself, and each other loop with products as the main one: code is made for all, whether they run or not."""
        loops = {dot.loop for dot in self.program.dots} - {self.loop}
        return [self, *(TileCosts(self.program, self.machine, loop) for loop in loops)]

    @cached_property
    def local_bytes(self) -> int:
        """Bytes of local memory that a program needs."""
        known = self.program.resources
        return max(one.loop_bytes for one in self._parts) if known is None else known.local_bytes

    @cached_property
    def loop_bytes(self) -> int:
        """Bytes of local memory that the main loop needs, by formulas."""
        beside = self.tiles.keys() - self.fed.keys()
        # What is computed goes through local memory where other sub-groups, or wgmma, need it; what comes of one tile
        # alone is computed in place.
        total = sum(
            one.bytes[side]
            for one in self.products
            for side, operand in enumerate(one.dot.operands)
            if not operand.direct and (one.split if operand.access < 0 else beside or (one.groups and side))
        )
        passing, scratch = dict.fromkeys(self.products, 0), 0
        for number in beside | self.fed.keys():
            access, size = self.program.accesses[number], _size(self.program.accesses[number])
            product, side = self.fed.get(number, (None, 0))
            direct = product is not None and product.dot.operands[side].direct
            if self.ahead.get(number):
                # wgmma reads a buffer while the next is filled; else registers hold what is being multiplied.
                total += size * (self.stages if product and product.groups and direct else max(self.stages - 1, 1))
            elif product is None:
                # Factors of a product's rows and columns go to the sub-groups that need them, unless these load all.
                flat = len(access.shape) == 1 and access.shape[0] >= self.items
                scratch = max(scratch, size if flat and self.products and not self.converted else 0)
            elif number not in self.inner:
                total += size
            elif direct:
                passing[product] += size
        # Buffers of one step pass from a product to the next; two barriers say when tensor memory is ready.
        barriers = 16 if any(one.in_memory for one in self.products) else 0
        return total + max(passing.values(), default=0) + scratch + barriers

    @cached_property
    def most_registers(self) -> float:
        """Registers that a work-item can have; all of a program must have some."""
        most = min(self.machine.need("registers_per_item_max"), self.machine.need("registers_per_unit") // self.items)
        return min(most, self.program.registers or most)

    @cached_property
    def registers(self) -> tuple[float, float]:
        """Registers that a work-item needs, and those of them that it lacks.

        Compiled code does not say it: where it lacks some, it computes values again, and has as many as there may be.
        """
        # What tensor cores do not add up stands beside the sum.
        sums = sum(prod(one.dot.shape[:2]) for one in self.products) / self.items * (2 if self.scaled else 1)
        pointers = min(sum(2 * _size(one) / one.vector for one in self.tiles.values()) / self.items, _POINTER_REGISTERS)
        stay = sum(_size(one) / min(one.vector, 4) for number, one in self.tiles.items() if not self.ahead[number])
        operands = most = 0.0
        for one in self.products:
            # Products of tensor cores that follow one another use the same registers.
            operands = max(operands, one.registers) if one.all_registers else operands + one.registers
            most = max(most, one.all_registers)
        scalar = any(not one.kind for one in self.products)
        if not self.inside and not scalar:
            pointers, operands = pointers / 2, operands / 2
        if self.products and all(one.in_memory for one in self.products):
            # Behind the loop sums come to registers, a part at a time where there are many.
            return max(min(sums, _AT_ONCE), pointers + stay / self.items + operands) + _OTHER_REGISTERS, 0.0
        found = sums + pointers + stay / self.items + operands + _OTHER_REGISTERS
        return found, max(found - self.most_registers, 0.0) + (0.0 if scalar else max(sums + most - 300, 0.0))

    @cached_property
    def moved_registers(self) -> float:
        """Registers that a work-item loads and stores in a step since it has none for them; compiled code says it.

        Each that compiled code spills is loaded and stored once. By formulas, sums that registers do not hold are
        whenever a step goes through all of them; those of wgmma move by whole instructions, one of which makes room.
        """
        if self.program.resources is not None:
            return self.program.resources.spilt_bytes / 2
        parts = [(one, prod(one.dot.shape[:2]) / self.items) for one in self.products if not one.in_memory]
        beside = max((one.registers for one in self.products), default=0.0) + _OTHER_REGISTERS
        sums, moved = sum(each for _, each in parts), 0.0
        lacking = max(sums + beside - self.most_registers, 0.0)
        for one, each in parts if lacking else ():
            spilt = (ceil(lacking / one.block) + 1) * one.block if one.groups else lacking
            moved += one.count * one.passes * 2 * spilt * each / sums
        return moved

    @cached_property
    def allocated(self) -> float:
        """Registers that a work-item gets: of its compiled code, where that is known."""
        known = self.program.resources
        wanted = max(one.registers[0] for one in self._parts)
        return min(wanted, self.most_registers) if known is None else known.registers

    @cached_property
    def resident(self) -> int:
        """Programs that a compute unit holds at once."""
        need, each = self.machine.need, min(256, ceil(self.allocated / 8) * 8)
        limits = (
            need("local_bytes") // (self.local_bytes + (self.machine.local_reserved_bytes or 0) or 1),
            need("registers_per_unit") // (each * self.items),
            need("max_items_per_unit") // self.items,
            need("max_groups_per_unit"),
        )
        return max(1, int(min(limits)))

    @cached_property
    def refusal(self) -> str:
        """Why the machine cannot run a program; empty where it can."""
        most, items = int(self.machine.need("local_bytes_per_group")), int(self.machine.need("max_items_per_group"))
        if self.local_bytes > most:
            return f"it needs {self.local_bytes} B of shared memory, {self.machine.name} has {most} B for a program"
        return f"it has {self.items} work-items, {self.machine.name} runs {items} at most" if self.items > items else ""

    @cached_property
    def step(self) -> dict[str, float]:
        """What an iteration of one program takes: cycles, instructions of a sub-group, rows of tiles, bytes of L2."""
        need, warps = self.machine.need, self.program.warps
        tensor = scalar = instructions = local = rows = 0.0
        for product in self.products:
            rate = need(f"tensor_{product.kind}_per_cycle" if product.kind else "fp32_per_cycle")
            # Three products of TF32 make one that is nearly of float32.
            operations = 2 * prod(product.dot.shape) * (3 if product.dot.types[0] == "tf32x3" else 1)
            cycles = operations / (rate * _OLD_INSTRUCTIONS if product.old else rate)
            # wgmma waits for its operands from local memory, which is slower where there are few columns.
            scalar += 0.0 if product.kind else product.count * prod(product.dot.shape) / self.items
            tensor += product.count * max(cycles, product.local if product.groups else 0.0)
            instructions += product.count * product.instructions
            local += product.count * product.local
        for number, one in self.inner.items():
            if not one.shape:
                continue
            runs = one.executions / self.times
            size = _size(one) * runs
            instructions += max(runs, size / one.vector / self.items) * (3 if self.ahead.get(number) else 5)
            if number in self.turned:
                instructions += size / 4 / self.items
            if number in self.fed and number in self.tiles:
                # Neighbours along m or n fall on the same banks.
                product, side = self.fed[number]
                local += size / 128 * min(32, product.dot.shape[side] / 7) if number in self.turned else 0
                # A copy of a sub-group takes four cycles, whatever its width.
                local += size / one.vector / 32 * 4 * (1 if self.ahead[number] else 2)
            if number in self.tiles and one.stride >= 16384:
                # Neighbours lie in other pages of memory.
                length = one.shape[one.axis] if one.axis >= 0 else 1
                rows += prod(one.shape) / length * min(1.0, one.stride / 65536) * runs
        special = sum(one.count for one in self.work if one.kind == "special") / self.times
        between = sum(one.count for one in self.work if one.kind != "special") / self.times / self.items
        halves = sum(one.count * (0.5 if one.dtype in {"f16", "bf16"} else 1) for one in self.work)
        instructions += halves / self.times / self.items
        special = special / need("special_per_cycle") if special else 0.0
        # Each sub-group of a program that is alone has the tensor cores of its part of the unit.
        alone = max(tensor * 4 / min(4, warps), 2 * scalar)
        waves, chain = max(1.0, warps / 4), 0.0
        # What follows one another, unless sums take what was loaded.
        if self.chained or self.converted or self.scaled:
            # Sub-groups go on by themselves while others compute; those of wgmma begin together and wait together
            # (Shah et al., FlashAttention-3, 2024: they must be told to take turns).
            latency = _CHAIN * (2 if any(one.split for one in self.products) else 1) if self.chained else 0
            chain = latency + ((alone + special * 4 / min(4, warps)) / waves + between) * (waves if self.groups else 1)
        # Instructions that their cache cannot hold come slower.
        instructions *= 6 if scalar * 16 > 100 * 1024 else 1
        moved = sum(one.sectors for one in self.inner.values()) * _SECTOR / self.times
        return {
            "tensor": tensor, "alone": alone, "special": special, "chain": chain, "local": local, "rows": rows,
            "instructions": instructions, "moved": moved,
        }  # fmt: skip

    @cached_property
    def rounds(self) -> tuple[int, int]:
        """Full rounds, and programs of the busiest compute unit in the last one; 0 where all are full."""
        units = int(self.machine.need("compute_units"))
        full, rest = divmod(self.program.programs, units * self.resident)
        return full, ceil(rest / units)

    @cached_property
    def traffic(self) -> tuple[float, float]:
        """Bytes that DRAM gives and takes, and which share of what rounds ask for anew it gives."""
        programs, accesses = self.program.programs, self.program.accesses
        taken = sum(one.bytes * (2 if one.direction == "atomic" else 1) for one in accesses if one.direction != "load")
        # Of each load the bytes that a program asks for once; what it asks for again is there where L2 holds all.
        each = [(one, one.bytes / max(one.executions, 1.0)) for one in accesses if one.direction == "load"]
        loads = [(one, size * (one.tiles - one.again)) for one, size in each]

        def touched(count: float) -> float:
            return sum(one.different(count) * size for one, size in loads)

        # Programs share what so many consecutive ones touch: those of a round, or as many as L2 holds.
        window = at_once = min(programs, self.machine.need("compute_units") * self.resident)
        effective = self.machine.need("l2_effective_bytes")
        if touched(at_once) > effective:
            loads = [(one, size * one.tiles) for one, size in each]
        while window < programs and touched(wider := min(1.5 * window, programs)) < effective:
            window = wider
        anew = programs / window
        given = sum(max(one.different(programs), anew * one.different(window)) * size for one, size in loads)
        asked = max(1.0, programs / at_once) * touched(at_once)
        return given + taken, min(1.0, given / asked) if asked else 0.0

    def features(self) -> dict[str, float]:
        """Return all costs by what features call them; times in s."""
        program, need, cycle, step = self.program, self.machine.need, self.cycle, self.step
        units, (full, last), resident, warps = need("compute_units"), self.rounds, self.resident, program.warps
        given, missing = self.traffic
        near = need("l2_latency") * cycle
        latency = near + missing * max(0.0, need("dram_latency") - near)
        tiles = [self.ahead[number] for number, one in self.tiles.items() if len(one.shape) > 1]
        # Of a single step nothing is loaded ahead.
        piped = bool(tiles) and all(tiles) and self.stages > 2 and self.steps > 1
        # Factors of rows and columns come from L2 when they are needed, beside the product.
        factors = near if self.scaled and not all(self.ahead.values()) else 0.0
        # Rounds begin while others still run.
        begun = 1 + (full + (last > 0) - 1) / resident
        # Stores across rows take whole sectors of L2; of rows that no tile ends within, these are all bytes.
        sectors = sum(one.sectors for one in self.ends) * _SECTOR / program.programs
        narrow = sum(_size(one) * one.executions * (4 if one.vector < 4 else 1) for one in self.ends) / program.programs
        # Parts of a step that one program alone does not hide, but wgmma does.
        short = min(max(self.registers[0] - (self.most_registers - 15), 0.0), _SHORT_SLICES)
        slices = _ALONE_SLICES + short if self.products and not self.groups else 0.0
        found = {
            "launch": 1.0, "starting": program.programs / need("group_start_rate"),
            "dram": given / need("dram_bandwidth"), "steps": self.steps * self.all_loops,
            "full_rounds": float(full), "last_rounds": float(last > 0), "starts": begun * _START * cycle,
            "start_latency": begun * latency, "chain": step["chain"] * cycle,
            "wait": max(latency / (self.stages - 2), factors) if piped else latency,
            "wait_tensor": 0.0 if piped else step["alone"] * cycle,
            "wait_shared": 0.0 if piped else step["local"] * cycle,
            "local_bytes": float(self.local_bytes), "registers": self.registers[0], "resident": float(resident),
        }  # fmt: skip
        rest = program.programs - full * units * resident
        for name, count, active in (("full", resident, units * resident), ("last", max(last, 1), rest)):
            slots = count * (step["instructions"] + _LOOP) * warps / 4
            port = count * step["moved"] / need("l2_bytes_per_cycle")
            # L1 has little room beside shared memory: what is spilt comes from L2.
            spilt = self.registers[1] / 128 + self.moved_registers / need("l2_bytes_per_cycle")
            cycles = {
                "tensor": max(count * step["tensor"], step["alone"]),
                "shared": count * step["local"],
                "l2": max(port, active * step["moved"] / need("l2_bandwidth") / cycle),
                "issue": max(slots, step["instructions"] * max(1.0, warps / 4) + _LOOP),
                "special": count * step["special"],
                "rows": count * step["rows"] * _ROW,
                "added": _ALONE * slices / count**2 + count * spilt * warps * _LANES * 4,
                "ends": max(count * max(narrow, sectors) / 32, active * sectors / need("l2_bandwidth") / cycle),
            }
            found |= {f"{name}_{what}": number * cycle for what, number in cycles.items()}
        return found


def require_triton(machine: Machine) -> None:
    """Stop if a machine is no GPU that Triton supports and whose costs are known."""
    if (machine.compute_capability or 0) < _OLDEST:
        lacking = machine.compute_capability is None
        what = "GPU of NVIDIA" if lacking else f"GPU of compute capability {_OLDEST} or later"
        msg = f"machine {machine.name} is no {what}; Triton kernels are predicted for these only"
        raise MachineError(msg, machine=machine.name)


def tile_costs(program: TileProgram, machine: Machine) -> dict[str, float]:
    """Return what features of tile programs need a machine for; a WorkGroupTooLargeError where it cannot run one."""
    require_triton(machine)
    costs = TileCosts(program, machine)
    if costs.refusal:
        shape = f"{program.warps} warps and {program.stages} stages"
        msg = f"kernel {program.name!r} with {shape}: {costs.refusal}; take smaller tiles or fewer stages"
        raise WorkGroupTooLargeError(msg, machine=machine.name)
    return costs.features()
