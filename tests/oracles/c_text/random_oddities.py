"""Random statements of what is legal and seldom: hidden names, places that are chosen, counters that bodies change."""


class Oddities:
    """Draws them; a part of a draft."""

    def draw_shadow(self):
        name, at, value = self.draw.choice(self.ints), self.at(), self.pick("2", "3", "4")
        if self.chance(0.5):
            return [f"for (int {name} = 0; {name} < 3; {name}++) y[{name} + 1] = a;", f"z[{at}] = {self.number()};"]
        return [f"{{ int {name} = {value}; y[({name}) & 15] = {self.number()}; }}", f"z[{at}] = {self.number()};"]

    def draw_rows(self):
        name, h = self.name("r"), self.name("h")
        space = self.pick("", "__shared__ " if self.cuda else "__local ") if not (self.depth or self.left) else ""
        fill = f"for (int {h} = 0; {h} < 6; {h}++) {name}[{h} / 3][{h} % 3] = {self.number()};"
        column = self.pick("0", "2", self.variable() + " & 1")
        use = f"y[{self.at()}] = {name}[{self.integer(1)} & 1][{column}] * {self.number()};"
        return [f"{space}float {name}[2][3];", fill, use]

    def draw_reference(self):
        name, at, number = self.name("e"), self.at(), self.number()
        if not self.cuda:
            return [f"__global float *{name} = &z[{at}];", f"*{name} *= {number};"]
        return self.pick(
            [f"float &{name} = z[{at}];", f"{name} += {number};", f"y[{self.at()}] = {name};"],
            [f"const float &{name} = x[{at}];", f"y[{self.at()}] = {name} + {name};"],
            [f"float *{name}[2] = {{y, z}};", f"{name}[{self.pick('0', '1')}][{at}] = {number};"],
        )

    def draw_chosen(self):
        return [f"({self.condition()} ? y : z)[{self.at()}] = {self.number()};"]

    def draw_moved_counter(self):
        """Draw loops whose body or test changes what they count with."""
        j, e, number = self.name("j"), self.name("e"), self.number()
        loop = f"for (int {j} = 0; {j} < {self.size()}; {j}++)"
        condition = self.pick(f"{j} == 2", f"{j} % 2 == i % 2", f"x[{j}] > 0.3f", "i > 4")
        return self.pick(
            [f"{loop} {{ if ({condition}) {j}++; y[{j}] = {number}; }}"],
            [
                f"int {e} = {self.size()};",
                f"for (int {j} = 0; {j} < {e}; {j}++) {{ if ({condition}) {e}--; z[{j}] = a; }}",
            ],
            [f"for (float {j} = 0; {j} < 3; {j} += 1.0f) z[(int){j} + {self.variable()} % 2] = {number};"],
            [f"int {e} = 0;", f"{loop} {{ if ({condition}) {e} += 2; }}", f"y[{e}] = a;"],
            [f"int {e} = 0;", f"{loop[:-1]}, {e} += 2)" + f" z[{e} + {j}] = a;", f"y[{e}] = a;"],
            [f"int {e} = i;", f"while ({e} > 3) {e} -= 3;", f"y[{e}] = {number};"],
            [f"int {e} = i;", f"for (int {j} = 0; {j} < 3; {j}++) {e} = {e} / 2;", f"y[{e}] = {number};"],
        )

    def draw_stride(self):
        j, last = self.name("j"), f"{self.size()} * {self.pick('3', '7', self.size())}"
        step = "(int)(blockDim.x * gridDim.x)" if self.cuda else "get_global_size(0)"
        word = self.pick("int", "unsigned") if self.cuda else self.pick("int", "size_t", "uint")
        use = f"y[{j}] {self.pick('=', '+=')} {self.number()};"
        return [f"for ({word} {j} = i; {j} < {last}; {j} += {step}) {use}"]

    def draw_wrap(self):
        q = self.name("q")
        word, factor = self.pick(("unsigned char", 100), ("unsigned short", 9000), ("signed char", 50), ("short", 9000))
        test = f"if ({q} > {self.pick(10, 60, 0)}) y[i] = {self.number()};"
        return [f"{word} {q} = ({word})({self.variable()} * {factor});", test, f"z[{q} & 7] = a;"]

    def draw_unsigned_test(self):
        return [f"if ((unsigned)({self.integer(1)} - 3) < (unsigned){self.size()}) y[{self.at()}] = {self.number()};"]

    def draw_nested_struct(self):
        self.need("struct R { float m; char e; };\nstruct Q { int g; float2 h; struct R r[2]; };")
        r, at, number, place = self.name("r"), self.at(), self.number(), self.pick("0", "1")
        copied = f"struct Q {r}c = {r};"
        return self.pick(
            [f"b[{at}].r[{self.pick('0', '1', 'i & 1')}].m {self.pick('=', '+=')} {number};"],
            [f"struct Q {r} = b[{at}];", f"{r}.r[1].m = {number}; {r}.h.y = a;", f"b[{self.at()}] = {r};"],
            [f"struct Q {r} = b[{at}];", f"y[{self.at()}] = {r}.r[{place}].m + {r}.h.x;"],
            [f"b[{at}].h = b[{self.at()}].h;", f"b[{at}].r[0] = b[{self.at()}].r[1];"],
            [f"{self.glob}float *{r} = &b[{at}].r[1].m;", f"*{r} = {number};"],
            [f"struct Q {r};", f"{r}.g = {self.integer(1)};", copied, f"if ({r}c.g > 2) z[{self.at()}] = a;"],
            [f"struct Q {r};", f"{r}.r[0].m = {number};", copied, f"z[{self.at()}] = {r}c.r[0].m * a;"],
        )

    def draw_table_of_steps(self):
        r, place = self.name("r"), self.pick("2", self.variable() + " & 3")
        return [f"const int {r}[4] = {{0, 2, 5, 1}};", f"y[i + {r}[{place}]] = {self.number()};"]

    def draw_fall_through(self):
        """Draw a switch in a loop, with continue and return inside, or one that goes on into the next case."""
        j = self.name("j")
        word = self.pick("break;", "", "continue;", "return;" if self.depth == 0 else "break;")
        self.left = self.left or word == "return;"
        cases = (
            f"case 0: y[i] = a; {word} case 1: z[{j}] = {self.number()}; break; case 2: {{ y[{j} + 3] = a; }} break;"
        )
        switch = f"switch ({self.pick(j, 'i', j + ' % 3')}) {{ {cases} default: z[i] += a; }}"
        return [f"for (int {j} = 0; {j} < {self.size()}; {j}++) {{ {switch} y[{j} + 1] *= {self.number()}; }}"]

    def draw_while_data(self):
        j, store = self.name("j"), self.pick("", "y[i] = a;")
        leave = f"if (x[{j}] {self.pick('>', '<')} {self.pick('0.3f', '-5.0f', 'a')}) break;"
        after = f"if ({j} < {self.pick('2', self.size())}) z[{self.at()}] = {self.number()}; else y[{j}] = a;"
        return [f"int {j} = 0;", f"for (; {j} < {self.size()}; {j}++) {{ {leave} {store} }}", after]

    def draw_side_effect(self):
        """Draw what the right side of && and || changes, or one way of a condition, and what uses it then."""
        e, number = self.name("e"), self.number()
        effect = self.pick(f"{e}++ < 9", f"({e} = {self.size()}) > 3", f"++{e} > {self.pick('1', '2', 'i')}")
        test = (
            f"{self.pick(self.condition(0), self.condition(0), self.data_condition())} {self.pick('&&', '||')} {effect}"
        )
        use = self.pick(
            [f"if ({test}) y[i] = {number};"],
            [f"int {e}b = {test};", f"if ({e}b) z[i] = {number};"],
            [f"y[i] = ({self.condition(0)}) ? {e}++ : {e};"],
            [f"for (int {e}j = 0; {e}j < 3 && {effect}; {e}j++) z[{e}j] = {number};"],
        )
        return [f"int {e} = 1;", *use, f"if ({e} == {self.pick('1', '2', self.size())}) y[{e}] = a;"]

    def draw_unsigned_arithmetic(self):
        one, number, word = self.integer(1), self.number(), "unsigned" if self.cuda else "uint"
        return self.pick(
            [f"y[min(({word})({one}), {self.pick('5u', '7u')})] = {number};"],
            [f"if (max(({word})({one} - 3), 3u) > 9u) y[i] = {number};"],
            [f"if ((({one}) {self.pick('>>', '<<')} {self.pick('1u', '2u')}) - {self.size()} < 0) z[i] = {number};"],
            [f"if (({word})({one}) * {self.pick('3u', '7u', '2654435761u')} % 16u < 5u) z[i] = {number};"],
            [f"unsigned char {(c := self.name('c'))} = {one};", f"if (({c} << 4u) - 99 < 0) y[{c} & 7] = {number};"],
        )

    def draw_chained(self):
        e = self.name("e")
        steps = [f"int {e} = {self.pick('1', 'i', self.size())}, {e}f;", f"{e}f = {e} {self.pick('+=', '=')} 2;"]
        more = [f"({e} += 1) *= 2;", f"++(++{e});", f"{e}f = ({e} = 3, {e} + 1);"] if self.cuda else [f"{e}f = ++{e};"]
        return [*steps, self.draw.choice(more), f"y[({e} + {e}f) & 31] = {self.number()};"]

    def draw_modulo_by_size(self):
        n, number = self.size(), self.number()
        return self.pick(
            [f"y[i % {n}] = {number};"],
            [f"y[(i / {n}) * {n} + i % {n}] = {number};"],
            [f"if (i % {n} == {self.pick('0', n + ' - 1')}) z[i] = {number};"],
        )

    def draw_same_name(self):
        """Draw calls of functions whose local names are those of the kernel."""
        start = "__device__ " if self.cuda else ""
        self.need(start + "float first(float b) { float y[2]; y[0] = b; y[1] = b * b; int i = 1; return y[i]; }")
        self.need(start + f"void second({self.glob}float *z, int x) {{ for (int i = 0; i < x; i++) z[i] = 1.0f; }}")
        second = f"second({self.pick('y', 'z + i')}, {self.pick('2', self.size())});"
        return [self.pick(f"y[{self.at()}] = first({self.number()});", second)]
