"""Places in a launch, written as numbers and names of loops in turn, such as 1, "k", 0: in loop k, behind 0."""


class Places:
    """The loops of a launch, made as places name them; one that stands elsewhere is another one."""

    def __init__(self):
        self.loops = []  # (name, parent) of each
        self._known = {}

    def at(self, *steps):
        """Return the fields `loops` and `order` of what stands at a place."""
        inside = []
        for depth, step in enumerate(steps):
            if isinstance(step, str):
                number = self._known.setdefault(steps[: depth + 1], len(self.loops))
                if number == len(self.loops):
                    self.loops.append({"name": step, "parent": inside[-1] if inside else None})
                inside.append(number)
        return {"loops": inside, "order": [step for step in steps if not isinstance(step, str)]}
