"""Random expressions of kernels: integers, subscripts, floats and conditions."""

import random


class Expressions:
    """Draws expressions of the variables that there are."""

    def __init__(self, seed):
        self.draw = random.Random(seed)  # noqa: S311
        self.sizes, self.ints, self.floats = {}, [], []

    def pick(self, *ways):
        return self.draw.choice(ways)

    def chance(self, share):
        return self.draw.random() < share

    def size(self):
        return self.draw.choice(list(self.sizes))

    def variable(self):
        return self.draw.choice(self.ints)

    def integer(self, depth=2):
        if depth == 0 or self.chance(0.2):
            return self.pick(self.variable(), self.variable(), self.variable(), str(self.draw.randrange(6)))
        one, two, number = self.integer(depth - 1), self.integer(depth - 1), self.pick(2, 3, 4, 5)
        return self.pick(
            f"({one} + {two})", f"({one} - {two})", f"({one} + {number})", f"({one} - {number})", f"{one} * {number}",
            f"({one}) / {number}", f"({one}) % {number}", f"({one} & {self.pick(1, 3, 6, 7)})",
            f"({one} >> 1)", f"-({one})",
            f"min((int)({one}), (int)({two}))", f"max((int)({one}), {number})", f"({one} | 1)",
            f"({self.condition(0)} ? {one} : {two})",
            f"({one} ^ 1)", f"(unsigned char)({one})", f"(int)(unsigned)({one})", f"abs((int)({one} - {two}))",
            f"({one} == {two})", f"{self.variable()} * {self.size()}", f"(short)({one})", f"({one} << 1)",
            f"!{self.variable()}",
            f"({one} < {two})", f"~({one})", f"(int)((float)({one}) * 0.5f)",
        )  # fmt: skip

    def at(self):
        one = self.variable()
        return self.pick(
            "i", one, one, f"{one} + {self.draw.randrange(4)}", f"{one} * {self.size()} + {self.variable()}",
            f"{self.size()} * {one} + i", f"({self.integer()}) & 15", f"abs((int)({self.integer()}))", "i * 2 + 1",
            f"max((int)({self.integer()}), 0)", f"{one} / 2", f"{one} % 3", f"{self.size()} + {one}", self.integer(),
        )  # fmt: skip

    def number(self, depth=2):
        """Draw a float that the text alone does not say, so that nothing that is computed with it is folded."""
        atom = self.pick(f"x[{self.at()}]", self.draw.choice(self.floats), f"{self.pick('y', 'z', 'x')}[{self.at()}]")
        if depth == 0 or self.chance(0.2):
            return atom
        one = self.number(depth - 1)
        other = self.pick(
            self.number(depth - 1),
            self.pick("2.5f", "0.1f", "3", f"(float)({self.variable()})", self.variable(), "-1.0f"),
        )
        return self.pick(
            f"({one} + {other})", f"({one} - {other})", f"{one} * {other}", f"{one} / {other}",
            f"({one} * {atom} + {other})",
            f"({other} * {one} - {atom} * {atom})", f"({self.condition(0)} ? {one} : {atom})", f"-({one})",
            f"fabs({one})",
            f"fmin({one}, {atom})", f"fmax({atom}, {one})", f"fma({one}, {atom}, {one})",
            f"sqrt(fabs({one}))",
            f"(float)({one})", f"({atom} + -({one} * {atom}))",
        )  # fmt: skip

    def condition(self, depth=1):
        one = self.integer(depth)
        two = self.pick(self.size(), "3", self.integer(0), "i")
        sign = self.pick("<", "<", ">", "<=", ">=", "==", "!=")
        simple = self.pick(
            f"{one} {sign} {two}",
            f"i {self.pick('<', '>=')} {self.size()}",
            f"i % {self.pick(2, 3)} == {self.pick(0, 1)}",
            f"{one} & 1",
            f"!({one} {sign} {two})",
            f"(float)({one}) < 2.5f",
        )
        if depth and self.chance(0.2):
            return f"{simple} {self.pick('&&', '||')} {self.condition(0)}"
        return simple

    def data_condition(self):
        return self.pick(
            f"x[{self.at()}] > {self.pick('0.3f', '1.0f', 'a')}", f"idx[{self.at()}] == 0", f"idx[{self.at()}]",
            f"{self.draw.choice(self.floats)} < {self.number(1)}", f"{self.condition(0)} && x[{self.at()}] < 0.5f",
            f"idx[{self.at()}] < {self.size()} || {self.condition(0)}",
        )  # fmt: skip
