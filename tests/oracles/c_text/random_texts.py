"""Random small kernels as OpenCL C and CUDA C, each with what real ones hold and readers stumble over.

A kernel is a tree: lines, and `Block` of a head and what it holds, so that what is not needed can be dropped.
"""

from oracles.c_text.programs import Block, Program
from oracles.c_text.random_expressions import Expressions
from oracles.c_text.random_helpers import helpers_of
from oracles.c_text.random_oddities import Oddities

_SIZES = ("n", "m", "n", "m", "count", "l0", "g0", "i1", "i0", "size", "p_n", "sync", "lane", "s", "e0", "dot")
# Kinds of statements with their weights; each can be switched off by its name.
KINDS = {
    "store": 6, "update": 3, "float": 5, "integer": 5, "loop": 9, "if": 5, "data if": 2, "switch": 1, "leave": 3,
    "data leave": 1, "helper": 4, "struct": 2, "vector": 3, "private": 2, "local": 2, "pointer": 2, "swap": 1,
    "comma": 1, "macro": 1, "gather": 1, "double": 1, "atomic": 1, "ternary": 2, "unsigned": 2, "table": 1,
    "bytes": 1, "shadow": 1, "rows": 1, "reference": 1, "chosen": 1, "moved counter": 2, "stride": 2, "wrap": 1,
    "unsigned test": 1, "nested struct": 1, "table of steps": 1, "fall through": 1, "while data": 1,
    "modulo by size": 1, "same name": 1, "side effect": 2, "unsigned arithmetic": 2, "chained": 1,
}  # fmt: skip


class Draft(Expressions, Oddities):
    """A kernel that is being drawn."""

    def __init__(self, seed, without=()):
        super().__init__(seed)
        draw = self.draw
        self.seed, self.without = seed, set(without)
        self.cuda = draw.random() < 0.5
        two = draw.random() < 0.3
        self.local, self.groups = ((4, 2), (2, 2)) if two else ((draw.choice((8, 6, 16)),), (2,))
        names = draw.sample([each for each in _SIZES if f"name {each}" not in self.without], 6)
        self.sizes = {name: draw.choice((3, 4, 5, 7, 9)) for name in dict.fromkeys(names[:2])}
        self.glob = "" if self.cuda else "__global "
        self.ints, self.floats, self.vectors = ["i", *self.sizes], ["a"], []
        self.pointers = ["x", "y", "z"]
        self.count, self.depth, self.left, self.in_loop, self.in_switch = 0, 0, False, False, False
        self.prelude, self.stated = [], dict.fromkeys(("x", "y", "z", "d", "c", "idx", "t", "v", "p", "b"), 512)
        self.helpers = helpers_of(self) if "helper" not in self.without else []

    def name(self, letter):
        self.count += 1
        return f"{letter}{self.count}"

    def program(self):
        draw = self.draw
        axis = "blockIdx.{0} * blockDim.{0} + threadIdx.{0}" if self.cuda else "get_global_id({0})"
        word = draw.choice(("int", "int", "int", "unsigned", "const int", "long"))
        axes = ("x", "y") if self.cuda else ("0", "1")
        body = [f"{word} i = {axis.format(axes[0])};"]
        if draw.random() < 0.5 or len(self.local) > 1:
            body.append(f"int l = {'threadIdx.x' if self.cuda else 'get_local_id(0)'};")
            self.ints.append("l")
        if len(self.local) > 1:
            body.append(f"int j = {axis.format(axes[1])};")
            self.ints.append("j")
        if draw.random() < 0.3:
            body.append(
                f"if (i >= {self.size()}) return;"
                if draw.random() < 0.5
                else f"if (i == {draw.randrange(5)} || i > 9) return;"
            )
            self.left = True
        body += self.statements(draw.randrange(1, 4))
        body.append(f"y[{self.at()}] = {self.number()};")
        return Program(self.cuda, self.local, self.groups, self.sizes, self.seed, self.prelude, body, self.stated)

    # Statements

    def statements(self, count):
        kinds = {kind: weight for kind, weight in KINDS.items() if kind not in self.without}
        found = []
        kept = list(self.ints), list(self.floats), list(self.vectors), list(self.pointers)
        for _ in range(count):
            kind = self.draw.choices(list(kinds), kinds.values())[0]
            found += getattr(self, "draw_" + kind.replace(" ", "_"))()
        if self.depth:
            self.ints, self.floats, self.vectors, self.pointers = kept
        return found

    def inner(self, head, count=None, tail="}"):
        self.depth += 1
        body = self.statements(count or self.draw.randrange(1, 3))
        self.depth -= 1
        return Block(head, body, tail)

    def draw_store(self):
        return [f"{self.pick('y', 'z', 'y', *self.pointers[3:])}[{self.at()}] = {self.number()};"]

    def draw_update(self):
        if self.chance(0.5) and len(self.floats) > 1:
            target = self.draw.choice(self.floats[1:])
            return [f"{target} {self.pick('+=', '-=', '*=', '=')} {self.number()};"]
        return [f"{self.pick('y', 'z')}[{self.at()}] {self.pick('+=', '-=', '*=', '/=')} {self.number()};"]

    def draw_float(self):
        name = self.name("f")
        line = f"float {name} = {self.number()};"
        self.floats.append(name)
        return [line]

    def draw_integer(self):
        if self.chance(0.3) and (known := [each for each in self.ints if each[0] == "k"]):
            target = self.draw.choice(known)
            return [
                f"{target} {self.pick('+=', '-=', '=', '*=', '>>=', '%=')} {self.pick('1', '2', '3', self.integer(1))};"
            ]
        word = self.pick("int", "int", "int", "const int", "short", "long")
        name = self.name("g" if word == "const int" else "k")
        line = f"{word} {name} = {self.integer()};"
        self.ints.append(name)
        return [line]

    def draw_unsigned(self):
        name = self.name("q")
        word = self.pick("unsigned", "unsigned char", "size_t", "unsigned short", "char", "bool")
        given = self.integer()
        line = f"{word} {name} = {self.pick(given, f'({word})({given})')};"
        self.ints.append(name)
        return [line]

    def draw_if(self):
        found = [self.inner(f"if ({self.condition()}) {{")]
        if self.chance(0.4):
            found[0].tail = "} else {"
            found[0].tail = "}"
            found.append(self.inner("else {"))
            return [Block("{", found)]
        return found

    def draw_data_if(self):
        found = self.inner(f"if ({self.data_condition()}) {{")
        return [found]

    def draw_ternary(self):
        return [f"y[{self.at()}] = {self.condition()} ? {self.number()} : {self.number()};"]

    def draw_switch(self):
        if self.depth > 2:
            return self.draw_store()
        outer, self.in_switch = self.in_switch, True
        labels = "case 0:", "case 1: case 3:", "default:"
        cases = [self.inner(label + " {", 1, "} break;") for label in labels]
        self.in_switch = outer
        return [Block(f"switch ({self.pick('i % 4', 'i & 3', self.size(), 'i')}) {{", cases)]

    def draw_leave(self):
        word = (
            "return"
            if not self.in_loop or self.in_switch
            else self.pick("break", "continue", "return", "break", "continue")
        )
        self.left = self.left or word == "return"
        condition = self.condition()
        if self.chance(0.3):
            return [Block(f"if ({condition}) {{", [f"z[{self.at()}] = {self.number()};", f"{word};"])]
        return [f"if ({condition}) {word};"]

    def draw_data_leave(self):
        word = "return" if not self.in_loop or self.in_switch else self.pick("break", "continue", "return")
        self.left = self.left or word == "return"
        return [f"if ({self.data_condition()}) {word};"]

    # Loops

    def draw_loop(self):
        if self.depth > 2:
            return self.draw_store()
        name, kept = self.name("j"), list(self.ints)
        first, last, step = (
            self.pick("0", "0", "1", "2", "i", "l" if "l" in self.ints else "3"),
            self.bound(),
            self.pick(1, 1, 2, 3),
        )
        up = (
            self.pick(f"{name} += {step}", f"{name} = {name} + {step}", f"{name} += {step}")
            if step > 1
            else self.pick(f"{name}++", f"++{name}", f"{name} += 1")
        )
        down = f"{name} -= {step}" if step > 1 else f"{name}--"
        word = self.pick("int", "int", "int", "unsigned", "long", "short")
        own = self.pick(
            (f"for ({word} {name} = {first}; {name} {self.pick('<', '<', '<=')} {last}; {up}) {{", [], []),
            (f"for (int {name} = {last} - 1; {name} {self.pick('>=', '>')} {first}; {down}) {{", [], []),
            (f"for (int {name} = {last}; {name}-- > {self.pick('0', '1')};) {{", [], []),
            (f"for (int {name} = 0; {name} != {last}; {name}++) {{", [], []),
            (f"while ({name} < {last}) {{", [f"int {name} = {first};"], [f"{up};"]),
            (f"while ({name}--) {{", [f"int {name} = {last};"], []),
            ("do {", [f"int {name} = {first};"], [f"{up};"]),
            ("for (;;) {", [f"int {name} = {first};"], [f"if ({name} >= {last}) break;", f"{up};"]),
            (
                "while (true) {" if self.cuda else "while (1) {",
                [f"int {name} = {first};"],
                [f"{up};", f"if ({name} > {last}) break;"],
            ),
            (f"for (int {name} = 8; {name} > 0; {name} >>= 1) {{", [], []),
            (f"for (int {name} = 1; {name} < {last}; {name} *= 2) {{", [], []),
            (f"for (int {name} = 0, o{name} = {last}; {name} < o{name}; {name}++, o{name}--) {{", [], []),
        )
        head, before, after = own
        outer, switch, self.in_loop, self.in_switch = self.in_loop, self.in_switch, True, False
        self.ints += [name, name]
        block = self.inner(head)
        self.in_loop, self.in_switch = outer, switch
        self.ints = kept
        block.body += after
        if head == "do {":
            block.tail = f"}} while ({name} < {last});"
        if before:
            self.ints.append(name)
            return [*before, block]
        return [block]

    def bound(self):
        return self.pick(
            self.size(),
            self.size(),
            "4",
            "5",
            f"{self.size()} - 1",
            "i + 2",
            f"{self.size()} / 2",
            f"min({self.size()}, 4)",
        )

    # Special things

    def draw_helper(self):
        if not self.helpers:
            return self.draw_store()
        return self.draw.choice(self.helpers)(self)

    def need(self, text):
        if text not in self.prelude:
            self.prelude.append(text)

    def draw_struct(self):
        word = "struct P"
        self.need(f"{word} {{ float a; int b; float c[2]; }};")
        name = self.name("r")
        at = self.at()
        lines = [f"{word} {name} = p[{at}];"]
        use = f"{name}.a * {name}.c[{self.pick('1', '0', 'i & 1')}]"
        return self.pick(
            [*lines, f"y[{self.at()}] = {use};"],
            [*lines, f"{name}.a = {self.number()};", f"p[{self.at()}] = {name};"],
            [f"p[{at}].c[{self.pick('0', '1', 'i % 2')}] = {self.number()};"],
            [f"p[{at}].a += p[{self.at()}].c[1];"],
            [f"p[{at}] = p[{self.at()}];"],
            [
                f"{word} {name} = {{{self.number()}, (int)({self.integer(1)}), {{{self.number()}, 1.5f}}}};",
                f"z[{self.at()}] = {use};",
                f"if ({name}.b > 2) y[{self.at()}] = {name}.a;",
            ],
            [
                f"{word} {name};",
                f"{name}.b = {self.integer()};",
                f"{word} {name}x = {name};" if self.cuda else f"{word} {name}x; {name}x.b = {name}.b;",
                f"y[({name}x.b) & 15] = {self.number()};",
            ],
            [
                f"{self.glob}{word} *{name} = p + {self.integer(0)};",
                f"{name}->a = {self.number()};",
                f"({name} + 1)->b = 3;",
            ],
        )

    def draw_vector(self):
        name, at = self.name("v"), self.at()
        ways = [
            [f"v[{at}].{self.pick('x', 'y', 'w')} = {self.number()};"],
            [f"F4 {name} = v[{at}];", f"y[{self.at()}] = {name}.x * {name}.w + {self.number()};"],
            [f"F3 {name} = t[{at}];", f"y[{self.at()}] = {name}.z + {name}.x;"],
            [f"t[{at}].{self.pick('x', 'z')} += {self.number()};"],
            [f"t[{at}] = t[{self.at()}];"],
            [f"F4 {name} = v[{at}];", f"{name}.y = {self.number()};", f"v[{self.at()}] = {name};"],
        ]
        if self.cuda:
            self.need(
                "__device__ float4 operator*(float4 a, float b) {\n"
                "  return make_float4(a.x * b, a.y * b, a.z * b, a.w * b); }"
            )
            self.need(
                "__device__ float3 operator+(float3 a, float3 b) {\n"
                "  return make_float3(a.x + b.x, a.y + b.y, a.z + b.z); }"
            )
            ways += [
                [f"v[{at}] = v[{self.at()}] * {self.number()};"],
                [f"t[{at}] = t[{self.at()}] + t[{self.at()}];"],
                [f"v[{at}] = make_float4({self.number()}, 0.0f, x[{self.at()}], 1.0f);"],
                [f"F4 {name} = ((const F4 *)x)[{at}];", f"z[{self.at()}] = {name}.z - {name}.w;"],
                [
                    f"F4 {name} = *reinterpret_cast<const F4 *>(&x[4 * ({at})]);",
                    f"z[{self.at()}] = {name}.z - {name}.w;",
                ],
            ]
        else:
            ways += [
                [f"v[{at}] = v[{self.at()}] * v[{self.at()}] + v[{self.at()}];"],
                [
                    f"F4 {name} = v[{at}] * {self.number()};",
                    f"{name}.{self.pick('lo', 'hi', 'xy', 'xw', 'odd')} = v[{at}].{self.pick('zw', 'lo', 'xw', 'yx')};",
                    f"v[{self.at()}] = {name};",
                ],
                [f"v[{at}].{self.pick('xy', 'lo', 'xw', 'hi', 's13')} = (float2)({self.number()}, x[{self.at()}]);"],
                [f"F4 {name} = vload4({at}, x);", f"y[{self.at()}] = {name}.s0 * {name}.s3;"],
                [f"vstore{self.pick('3((float3)(1.0f, 2.0f, a)', '2((float2)(a, 1.0f)', '4(v[0]')}, {at}, z);"],
                [f"F3 {name} = vload3({at}, x);", f"y[{self.at()}] = {name}.x - {name}.z;"],
                [f"F3 {name} = t[{at}] * 2.0f;", f"t[{self.at()}] = {name} + t[{self.at()}];"],
                [f"F4 {name} = (F4)({self.number()}, v[{at}].xyz);", f"z[{self.at()}] = {name}.y / {name}.w;"],
                [f"F4 {name} = v[{at}] + {self.number()} * {self.number()};", f"v[{self.at()}] = {name};"],
            ]
        return self.draw.choice(ways)

    def draw_private(self):
        name, inner = self.name("r"), self.name("h")
        first = f"float {name}[4] = {{{self.number()}, 2.0f, {self.number()}}};"
        if self.chance(0.5):
            first = f"float {name}[4]; for (int {inner} = 0; {inner} < 4; {inner}++) {name}[{inner}] = {self.number()};"
        second = self.pick(
            f"y[{self.at()}] = {name}[{self.integer()} & 3];",
            f"{name}[{self.integer(0)} & 3] += {self.number()}; z[{self.at()}] = {name}[1];",
        )
        third = (
            f"int {inner}[3] = {{1, (int){self.integer(0)}, (int)i}}; {inner}[i & 1] = {self.integer(0)};"
            f" y[({inner}[{self.pick('0', '1', '2')}]) & 15] = {self.number()};"
        )
        return self.pick([first, second], [first, second], [third])

    def draw_local(self):
        if self.depth or self.left:
            return self.draw_store()
        name, space = self.name("s"), "__shared__" if self.cuda else "__local"
        barrier = "__syncthreads();" if self.cuda else "barrier(CLK_LOCAL_MEM_FENCE);"
        at = "threadIdx.x" if self.cuda else "get_local_id(0)"
        fill = self.pick(f"{name}[{at}] = {self.number()};", f"if ({at} < 4) {name}[{at}] = {self.number()};")
        use = f"y[{self.at()}] = {name}[({at} + {self.pick('1', '3', self.size())}) % 6] * {self.number()};"
        halve = [
            Block(
                f"for (int d{name} = 4; d{name} > 0; d{name} /= 2) {{",
                [f"if ({at} < d{name}) {name}[{at}] += {name}[{at} + d{name}];", barrier],
            )
        ]
        return [f"{space} float {name}[16];", fill, barrier, *(halve if self.chance(0.5) else []), use]

    def draw_pointer(self):
        name, inner = self.name("p"), self.name("h")
        at, step = self.at(), self.pick("1", "2", self.size())
        return self.pick(
            [
                f"{self.glob}float *{name} = y + ({at});",
                f"{name}[{self.pick('0', '2', 'i')}] = {self.number()};",
                f"*{name} += {self.number()};",
            ],
            [
                f"{self.glob}const float *{name} = &x[{at}];",
                f"{name} += {step};",
                f"y[{self.at()}] = {name}[0] * *({name} + 1);",
            ],
            [
                Block(
                    f"for ({self.glob}const float *{name} = x; {name} < x + {self.bound()}; {name} += {step}) {{",
                    [f"z[{self.at()}] += *{name};"],
                )
            ],
            [
                f"{self.glob}float *{name} = z;",
                Block(
                    f"for (int {inner} = 0; {inner} < {self.bound()}; {inner}++) {{", [f"*{name}++ = {self.number()};"]
                ),
            ],
            [f"{self.glob}float *{name} = {self.condition()} ? y : y + 3;", f"{name}[i] = {self.number()};"],
            [f"{self.glob}float *{name} = {self.condition()} ? y : z;", f"{name}[i] = {self.number()};"],
            [
                f"int {name} = 3, {inner} = 9; int *o{name} = {self.condition()} ? &{name} : &{inner};",
                f"*o{name} = {self.integer(0)};",
                f"if (i < {inner}) y[i] = {self.number()};",
                f"if (i < {name}) z[i] = {self.number()};",
            ],
        )

    def draw_swap(self):
        one, two, inner, temporary = self.name("p"), self.name("o"), self.name("h"), self.name("w")
        kind, first, second = self.pick(
            (f"{self.glob}float *", "y", "z"), ("int ", "0", self.size()), ("int ", "(int)i", "3")
        )
        use = (
            f"{one}[{inner}] = {two}[i] * {self.number()};"
            if kind != "int "
            else f"y[{one}] = x[{two}] + {self.number()};"
        )
        return [
            f"{kind}{one} = {first}; {kind}{two} = {second};",
            Block(
                f"for (int {inner} = 0; {inner} < {self.bound()}; {inner}++) {{",
                [use, f"{kind}{temporary} = {one};", f"{one} = {two};", f"{two} = {temporary};"],
            ),
            use.replace(f"[{inner}]", "[1]"),
        ]

    def draw_comma(self):
        name, other, value = self.name("k"), self.name("k"), self.integer(0)
        self.ints += [name, other]
        return [f"int {name}, {other}; {name} = {value}, {other} = {name}++ + {self.pick('2', 'i')};"]

    def draw_macro(self):
        self.need("#define AT(q, r) ((q) * 3 + r)")
        self.need(
            "#if 0\n__attribute__((reqd_work_group_size(64, 1, 1)))\n#endif\n"
            "// __attribute__((reqd_work_group_size(32, 1, 1)))"
        )
        self.need("enum { FEW = 2, MORE };")
        return [f"y[AT({self.pick('i', 'i + 1')}, {self.pick('FEW', 'MORE', '1')})] = {self.number()};"]

    def draw_gather(self):
        self.stated["u"] = 8
        return [f"y[{self.at()}] = u[idx[{self.at()}]];"]

    def draw_double(self):
        return self.pick(
            [f"d[{self.at()}] = 2.5 * d[{self.at()}] + x[{self.at()}];"],
            [f"y[{self.at()}] = 0.5 * {self.number()};"],
            [f"d[{self.at()}] += x[{self.at()}] * a;"],
        )

    def draw_atomic(self):
        return [f"c[{self.at()}] = {self.integer(0)};"]

    def draw_bytes(self):
        name = self.name("b")
        return [f"unsigned char {name} = c[{self.at()}];", f"y[{self.at()}] = (float){name} * a;"]

    def draw_table(self):
        self.need("__constant__ float w[3] = {1, 2, 3};" if self.cuda else "__constant float w[3] = {1, 2, 3};")
        return [f"y[{self.at()}] = w[{self.integer(1)} & 1] * {self.number()};"]


def random_program(seed, without=()):
    """Draw a kernel."""
    return Draft(seed, without).program()
