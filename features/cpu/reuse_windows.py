"""Windows of reuse: the bytes that nests touch in a window of time, at given sizes, which a cache must hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, prod
from typing import Any

import numpy as np

from perflex.features.cpu.dealing import Dealing
from perflex.features.cpu.nests import Nest, Samples
from perflex.features.cpu.traced import (
    NestValues,
    Traced,
    at_least,
    common_divisor,
    is_multiple,
    larger,
    select,
    smaller,
)

# A window of time: iterations of each loop of a nest, outermost first; the first that is not zero is positive.
Window = tuple[int, ...]


def outermost(window: Window) -> int:
    """Return the loop that a window reaches over; the number of loops for an empty window."""
    return next((place for place, distance in enumerate(window) if distance), len(window))


# Of longer rows, in lines, the rest of the last line is left out: it is as small as the halo at their ends.
_SHORT_ROW = 8


class Footprints:
    """What the groups of a nest touch on one of several cores, of which `together` share the cache.

    Numbers are floats, arrays or traced polynomials.
    """

    def __init__(
        self,
        nest: Nest,
        numbers: NestValues,
        line: int,
        whole: Mapping[str, Any],
        samples: Samples | None = None,
        together: Any = 1,
    ) -> None:
        self.nest = nest
        self.dealing = Dealing(nest, numbers, together)
        self._samples = samples
        self.extents = numbers.extents(nest)  # iterations of each loop
        self.line = line  # bytes of a cache line
        self._whole = whole
        scales: dict[str | None, Any] = {None: 1}
        scales.update(numbers.scales(nest))
        self._steps = [
            [[(step.loop, abs(step.factor) * scales[step.scale]) for step in axis.steps] for axis in group.axes]
            for group in nest.groups
        ]
        self._strides = [
            [numbers.size(axis.stride) * group.itemsize / axis.fold for axis in group.axes] for group in nest.groups
        ]
        self._begins = [numbers.begins(group) for group in nest.groups]
        # Only parts of arrays that loops cut into uneven pieces need it: other loops stay inside of arrays anyway.
        self._most = [[numbers.size(axis.extent) for axis in group.axes] for group in nest.groups if nest.drivers]
        self._touched: dict[tuple[int, Window], Any] = {}
        self._mean_extents: dict[tuple[int, int, int, int], Any] = {}

    @property
    def has_samples(self) -> bool:
        """Whether values are for some iterations of drivers each."""
        return self._samples is not None

    def copies(self, place: int) -> Any:
        """Return how many of the cores that share the cache touch different data with a group at a time."""
        return self.dealing.copies(lambda loop: self._moves_with(place, loop))

    def share(self, place: int) -> Any:
        """Return what part of a group's lines a shared cache fetches: none that another core has just fetched."""
        return self.dealing.share(lambda loop: self._moves_with(place, loop))

    def _moves_with(self, place: int, loop: int) -> bool:
        group = self.nest.groups[place]
        # Each work-group has local memory of its own.
        return group.scattered or group.space == "local" or self._step(place, loop) is not None

    def mean_inside(self, first: int, value: Any) -> Any:
        """Return the mean of a value over the iterations of those drivers that are the loops from `first` on."""
        if self._samples is None:
            return value
        return self._samples.mean_over([loop.driver for loop in self.nest.loops[first:]], value)

    def mean_in_window(self, window: Window, value: Any) -> Any:
        """Return the mean of what is touched in a window over the iterations of drivers that it passes.

        Cores that share the cache are at different iterations of what is dealt to them.
        """
        if self._samples is None:
            return value
        over = outermost(window)
        dealt = self.nest.dealt_loops if self.dealing.shares else ()
        passed = [loop.driver for place, loop in enumerate(self.nest.loops) if place > over or place in dealt]
        return self._samples.mean_over(passed, value)

    def movement(self, place: int, axis: int) -> tuple[Any, list[tuple[int, Any]]]:
        """Return the bytes between neighbours along an axis, and by how many indices each loop moves it."""
        return self._strides[place][axis], self._steps[place][axis]

    def whole(self, loop: int, index: tuple[int, ...]) -> int:
        """Return all iterations of a loop, the last one of which may be a part; of arrays, at an index."""
        extent = self.extents[loop]
        return ceil(float(extent[index]) if isinstance(extent, np.ndarray) else extent)

    def within(self, over: int, index: tuple[int, ...], *, all_loops: bool) -> Iterator[int]:
        """Return all that decides what loops inside of one touch: extents, steps and strides at an index."""
        for loop in range(0 if all_loops else over + 1, len(self.extents)):
            yield self.whole(loop, index)
        for strides, steps in zip(self._strides, self._steps, strict=True):
            numbers = [*strides, *(step for moved in steps for _, step in moved)]
            yield from (round(float(one[index] if isinstance(one, np.ndarray) else one)) for one in numbers)

    def numbers(self) -> Iterator[Any]:
        """Return extents and strides, all that sizes decide."""
        yield from self.extents
        for strides in self._strides:
            yield from strides

    def span(self, place: int, axis: int, first: int) -> tuple[Any, Any]:
        """Return how many indices of an axis the loops from `first` on visit, and over which range of indices."""
        count: Any = 1
        span: Any = 1
        uneven = False
        for loop, step in self._steps[place][axis]:
            if loop >= first:
                extent = self._extent(place, axis, loop, first)
                further = span + step * (extent - 1)
                # Pieces that are apart on average only, since some are shorter, follow one another.
                further = select(step > span, span * extent, further) if uneven else further
                uneven = uneven or self.nest.loops[loop].varying is not None
                # Steps no longer than what inner loops span overlap or join: indices are counted once.
                count = select(step <= span, smaller(further, count * extent), count * extent)
                span = further
        if self._most:
            count, span = (smaller(number, self._most[place][axis]) for number in (count, span))
        return count, span

    def _extent(self, place: int, axis: int, loop: int, first: int) -> Any:
        """Return the iterations of a loop, the mean over drivers from `first` on that move along the same axis."""
        if self._samples is None or loop < first:
            return self.extents[loop]
        key = place, axis, loop, first
        if key not in self._mean_extents:
            along = [self.nest.loops[moved].driver for moved, _ in self._steps[place][axis] if moved >= first]
            self._mean_extents[key] = self._samples.mean_over(along, self.extents[loop])
        return self._mean_extents[key]

    def new_bytes(self, place: int, first: int) -> Any:
        """Return the bytes that all iterations of the loops from `first` on bring in, in the steady state.

        Long rows count without the rest of their last line, except in blocks: there the next block needs it again.
        """
        group, line = self.nest.groups[place], self.line
        segment, blocks, gaps = self._row(place, first)
        along = self._steps[place][0] if self._steps[place] else []
        if group.axes and not along:
            segment = segment + group.halo[0] * self._strides[place][0]
        for axis, stride in enumerate(self._strides[place][1:], start=1):
            count, span = self._own_span(place, axis, first)
            # One segment still: it reaches the next index along this axis, or shares a line with that.
            dense = ((segment >= stride) | (stride < line)) & (blocks <= 1)
            segment, blocks = (
                select(dense, segment + (span - 1) * stride, segment),
                select(dense, blocks, blocks * count),
            )
        rest = self._rest_of_row(place, segment, first, gaps) if along else 0
        # Rows that outer loops go through have their own last lines, too.
        apart = (blocks > 1) | any(loop < first for steps in self._steps[place][1:] for loop, _ in steps)
        part: Any = 0.0
        inner = [loop for loop, _ in along if loop >= first]
        if inner and any(loop < first or np.any(self.dealing.parts(loop) > 1) for loop, _ in along):
            # The lines of a row in a block, with its halo.
            part = self._edges(place, first)
        elif self._is_cut(place, first):
            part = select(apart & (segment < _SHORT_ROW * line), 1.0, 0.0)
        beside = self._beside_one_another(place, segment) if along else 1.0
        if along:
            segment = segment * beside + rest * select(gaps > 0, 1.0, part)
        return smaller(blocks * at_least(segment, line) / beside, self.most(group.array))

    def _own_span(self, place: int, axis: int, first: int) -> tuple[Any, Any]:
        """Return `span` without what other cores that share the cache bring in at the time.

        So it is where windows reach as far as a core's part.
        """
        count, span = self.span(place, axis, first)
        if not self.dealing.shares:
            return count, span
        for loop, step in self._steps[place][axis]:
            reach = self.span(place, axis, loop + 1)[1] / step
            cores = self.dealing.at_a_time(loop, 1 + reach)
            own = (span + (cores - 1) * self.extents[loop] * step) / cores
            count, span = smaller(count, own), smaller(span, own)
        return count, span

    def _beside_one_another(self, place: int, segment: Any) -> Any:
        """Return how many cores that share the cache have pieces of a row at a time that follow one another."""
        number: Any = 1.0
        for loop, step in self._steps[place][0]:
            joined = step * self._strides[place][0] <= segment
            number = number * select(joined, self.dealing.at_a_time(loop), 1.0)
        return number

    def box(self, place: int, first: int, below: int = 0) -> tuple[Any, Any]:
        """Return the bytes that the loops from `first` on touch, and how far they span without a gap, 0 if not.

        What other iterations touch beside them counts for the span, along the axes before `below`.
        """
        group, line = self.nest.groups[place], self.line
        segment, blocks, _ = self._row(place, first)
        slack: Any = line - group.itemsize
        for axis, (steps, stride) in enumerate(zip(self._steps[place], self._strides[place], strict=True)):
            if axis:
                count, span = self.span(place, axis, first)
                dense = (segment + slack >= stride) & (blocks <= 1)
                segment, blocks = (
                    select(dense, segment + (span - 1) * stride, segment),
                    select(dense, blocks, blocks * count),
                )
            if steps and axis < below:
                slack = slack + self.nest.halos[steps[0][0]] * steps[0][1] * stride
        alone = blocks <= 1
        # Of uneven rows, only the mean is known here.
        even = all(
            self._extent(place, 0, loop, first) is self.extents[loop]
            for steps in self._steps[place][:1]
            for loop, _ in steps
        )
        whole = (self._grain(place, first) == line) & even
        whole = whole & (self._start(place, first) % line == 0) & is_multiple(segment, line)
        # A segment of L bytes that begins anywhere lies in lines of L + line - itemsize bytes on average.
        touched = select(alone, segment, blocks * select(whole, segment, segment + line - group.itemsize))
        return touched, select(alone, segment + slack, 0)

    def _row(self, place: int, first: int) -> tuple[Any, Any, Any]:
        """Return the bytes of a piece of a row that the loops from `first` on leave no line out of, and the pieces.

        The third number is what the beginnings of pieces are multiples of, in bytes; 0 if a piece is one element.
        """
        group, line = self.nest.groups[place], self.line
        segment: Any = group.itemsize
        if not group.axes:
            return segment, 1, 0
        stride = self._strides[place][0]
        count, span = self.span(place, 0, first)
        executed = [(loop, step * stride) for loop, step in self._steps[place][0] if loop >= first]
        # Steps shorter than a line leave out elements, but no line.
        if not executed:
            return segment, 1, 0
        single = executed[0][1] >= line
        whole = segment + (span - 1) * stride
        pieces: Any = 1
        gaps: Any = 0
        for loop, jump in executed:
            extent = self._extent(place, 0, loop, first)
            # Uneven pieces are apart on average only, since some are shorter.
            uneven = any(self.nest.loops[inner].varying is not None for inner, _ in executed)
            gap = (jump >= segment + line - group.itemsize) & (extent > 1) & (not uneven)
            gap = gap | (gaps > 0)
            gaps = select(gap, common_divisor(gaps, jump), gaps)
            pieces = select(gap, pieces * extent, pieces)
            segment = select(gap, segment, segment + (extent - 1) * jump)
        several = (gaps > 0) & np.logical_not(single)
        return (
            select(single, group.itemsize, select(several, segment, whole)),
            select(single, count, pieces),
            select(several, gaps, 0),
        )

    def _is_cut(self, place: int, first: int) -> bool:
        """Return whether rows are parts of those of the array: bands, windows, triangles."""
        loops = [self.nest.loops[loop] for steps in self._steps[place][:1] for loop, _ in steps if loop >= first]
        return any(loop.varying is not None or not loop.extent.parameters for loop in loops)

    def _rest_of_row(self, place: int, segment: Any, first: int, gaps: Any) -> Any:
        """Return by how many bytes the lines of a row are more than the row, with its halo.

        Pieces of it begin at multiples of `gaps` bytes; 0 if it is one.
        """
        group, line = self.nest.groups[place], self.line
        span = segment + group.halo[0] * self._strides[place][0]
        grain = common_divisor(self._grain(place, first), gaps)
        # The mean over all places of a line where rows may begin, `grain` apart (Hermite's identity).
        steps = (self._start(place, first) % grain + span - group.itemsize) // grain
        rest = line + steps * grain - segment
        if not group.ends_fixed:
            return rest
        # Rows that end with a line have a part of one at their beginning only.
        ended = is_multiple(self._most[place][0] * self._strides[place][0], line)
        return select(ended, (line - group.itemsize) / 2, rest)

    def inside(self, outer: Iterable[int]) -> Any:
        """Return the part of the edges of blocks that are not edges of the whole range, from the loops over blocks."""
        return 1.0 - 1.0 / prod(self.extents[loop] * self.dealing.parts(loop) for loop in outer)

    def _edges(self, place: int, first: int) -> Any:
        """Return the part of the edges of blocks in a row that bring in lines of their own."""
        outer = [loop for loop, _ in self._steps[place][0] if loop < first]
        inner = [loop for loop, _ in self._steps[place][0] if loop >= first]
        _, span = self.span(place, 0, 0)
        # The ends of the whole range count as those of blocks where a row is short.
        short = span * self._strides[place][0] < _SHORT_ROW * self.line
        blocks = prod(self.extents[loop] for loop in outer)
        pieces = blocks * prod(self.dealing.parts(loop) for loop in (*outer, *inner))
        return select(short & (pieces > 1), 1.0, 1.0 - 1.0 / pieces)

    def _start(self, place: int, first: int) -> Any:
        """Return where the first access of a row begins, in bytes from the row's beginning."""
        group = self.nest.groups[place]
        # A scalar is an array without axes.
        start: Any = min((stream.offset[0] for stream in group.streams if stream.offset), default=0)
        begins = self._begins[place]
        start = start + (0 if begins is None else begins)
        for loop, step in self._steps[place][0] if self._steps[place] else ():
            known = self._known_iteration(loop) if loop < first else None
            start = start if known is None else start + step * known
        return start * float(group.itemsize)

    def _known_iteration(self, loop: int) -> Any:
        """Return the number of the iteration of a loop that values are for, None if there are not values for each."""
        one = self.nest.loops[loop]
        return None if self._samples is None or one.part != "whole" else self._samples.exact.get(one.driver)

    def _grain(self, place: int, first: int) -> Any:
        """Return the bytes that the beginnings of rows in a block are apart, modulo a cache line; at most a line."""
        group = self.nest.groups[place]
        if self._begins[place] is None:
            return group.itemsize
        grain: Any = self.line
        for loop, step in self._steps[place][0] if self._steps[place] else ():
            if loop < first and self._known_iteration(loop) is None:
                grain = common_divisor(grain, step * self._strides[place][0])
        for stride in self._strides[place][1:]:
            grain = common_divisor(grain, stride)
        return grain

    def touched(self, place: int, window: Window) -> Any:
        """Return the bytes that one access touches in a window."""
        key = place, window
        if key not in self._touched:
            self._touched[key] = self._touched_in(place, window)
        return self._touched[key]

    def _touched_in(self, place: int, window: Window) -> Any:
        over = outermost(window)
        if over == len(window):
            return 0
        step = self._step(place, over)
        # A group that the loop does not move touches the same in each iteration.
        if step is None:
            return at_least(self.box(place, over + 1)[0], self.line)
        axis, distance, width = step
        touched, span = self.box(place, over + 1, axis)
        # Rows that follow one another in memory: what an iteration touches is the step from row to row.
        joined = (span >= width) & (touched <= width)
        linear = self._linear(place, window, over, width)
        # One iteration covers `inner` indices of the axis, of which the next one brings `distance` new ones.
        _, inner = self.span(place, axis, over + 1)
        # A polynomial cannot be divided by one: the formula takes a whole row for new.
        again = touched if isinstance(inner, Traced) else touched / inner * smaller(distance, inner)
        return select(joined, linear, at_least(touched, self.line) + (window[over] - 1) * again)

    def _linear(self, place: int, window: Window, over: int, width: Any) -> Any:
        total = window[over] * width
        for loop in range(over + 1, len(window)):
            step = self._step(place, loop) if window[loop] else None
            if step is not None:
                # In one iteration of what is around it, a loop is at most its own length apart.
                length = self.extents[loop]
                apart = abs(window[loop]) if isinstance(length, Traced) else smaller(abs(window[loop]), length - 1)
                total = total + (apart if window[loop] > 0 else -apart) * step[2]
        return total

    def _step(self, place: int, loop: int) -> tuple[int, Any, Any] | None:
        """Return the axis that a loop moves, by how many indices and bytes; None if the group does not move with it."""
        strides = self._strides[place]
        steps = ((axis, *step) for axis, each in enumerate(self._steps[place]) for step in each)
        return next(((axis, step, step * strides[axis]) for axis, moved, step in steps if moved == loop), None)

    def footprint(self, place: int, window: Window) -> Any:
        """Return the bytes that a group touches in a window: the union of what its accesses touch."""
        group = self.nest.groups[place]
        if group.scattered:
            # No more lines than accesses, and no more than there are.
            return smaller(self._executions(window) * self.line, self.most(group.array))
        each = self.touched(place, window)
        # A stream of its own has a line of its own, however little of it the window touches.
        apart = at_least(each, self.line)
        total = each
        for gap in group.gaps:
            same, beside = self.beside(place, gap)
            more = self.touched(place, gap) if gap <= window else apart
            total = total + (more * (1 - same) if same and beside <= window else more)
        return smaller(total, self.most(group.array))

    def _executions(self, window: Window) -> Any:
        """Return how often the body runs in a window."""
        over = outermost(window)
        inside: Any = 1
        for loop in range(over + 1, len(window)):
            inside = inside * self.extents[loop]
        return inside * window[over] if over < len(window) else inside

    def most(self, array: str) -> Any:
        """Return the bytes of an array, which itself takes a line at least: no window touches more of it."""
        return larger(self._whole[array], self.line)

    def reached(self, place: int) -> Any:
        """Return the bytes between the first and last that a group touches, halo included, axis by axis."""
        if self.nest.groups[place].scattered:
            return self._whole[self.nest.groups[place].array]
        total: Any = self.nest.groups[place].itemsize
        for axis, steps in enumerate(self._steps[place]):
            _, span = self.span(place, axis, 0)
            halo = self.nest.groups[place].halo[axis]
            if steps:
                halo = larger(halo, self.nest.halos[steps[0][0]] * steps[0][1])
            total = total * (span + halo)
            total = self._lines_of_row(place, halo, total) if axis == 0 and steps else total
            # Rows of which one element is used take a line each, or all of a shorter row.
            if axis == 0 and not steps and len(self._steps[place]) > 1:
                total = at_least(total, smaller(self._strides[place][1], self.line))
        if self.nest.groups[place].diagonal:
            # Along the axes that the loop also moves, it reaches over the array: a line for each iteration at most.
            moving = {loop for steps in self._steps[place] for loop, _ in steps}
            visited = prod(self.extents[loop] for loop in moving)
            return smaller(self._whole[self.nest.groups[place].array], visited * self.line)
        return total

    def _lines_of_row(self, place: int, halo: Any, whole: Any) -> Any:
        """Return the bytes of a whole row with its halo, or of the lines that a group touches if it leaves some out."""
        segment, pieces, _ = self._row(place, 0)
        edges = halo * self._strides[place][0] + self.line - self.nest.groups[place].itemsize
        return select(pieces > 1, smaller(pieces * (segment + edges), whole), whole)

    def touched_of_arrays(self, window: Window, over: int) -> Iterator[tuple[str, Any]]:
        """Return the bytes that each group touches, with its array; what an earlier nest touched is left out."""
        for place, group in enumerate(self.nest.groups):
            if group.touched_before is None or over > group.touched_before:
                own = self.footprint(place, window)
                copies = self.copies(place)
                # A product of traced numbers takes time.
                several = np.any(copies != 1)
                yield group.array, smaller(own * copies, self.most(group.array)) if several else own

    def tightened(self, place: int, window: Window) -> Window:
        """Return the window from the last touch before reuse over one iteration of a loop to the first after it.

        A group that does not move with the loops right inside touches the same until their last iteration.
        """
        over = outermost(window)
        if over == len(window) or window != tuple(int(loop == over) for loop in range(len(window))):
            return window
        while over + 1 < len(window) and self._step(place, over + 1) is None:
            over += 1
        return tuple(int(loop == over) for loop in range(len(window)))

    def beside(self, place: int, gap: Window) -> tuple[float, Window]:
        """Return the part of two accesses' elements that lie in the same line, and the window between them there.

        Accesses along a row whose loop is not the innermost meet in a line before the one has the other's element.
        """
        over = outermost(gap)
        step = self._step(place, over) if over < len(gap) else None
        group = self.nest.groups[place]
        if step is None or step[0] != 0 or group.near is None or over == len(gap) - 1:
            return 0.0, gap
        distance = abs(gap[over]) * group.near
        if distance >= self.line:
            return 0.0, gap
        rest = tuple(0 if loop == over else value for loop, value in enumerate(gap))
        return 1 - distance / self.line, forward(rest)


def forward(window: Sequence[int]) -> Window:
    """Return a window with its first distance positive."""
    first = next((distance for distance in window if distance), 0)
    return tuple(-distance for distance in window) if first < 0 else tuple(window)


def unit_window(nest_loops: int, loop: int) -> Window:
    """Return the window of one iteration of a loop."""
    return tuple(int(position == loop) for position in range(nest_loops))
