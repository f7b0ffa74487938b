"""Functions, functors, templates and methods that random kernels call."""


def helpers_of(draft):
    """Return what draws a call of each helper that a language has: functions of a draft that return statements."""
    both = [_product, _early, _data_exit, _put, _through_pointer, _whole, _odd_names, _loop_exit, _two_returns]
    own = [_template, _functor, _method, _reference, _lambda, _overload, _factor]
    return [*both, *(own if draft.cuda else [])]


def _name(draft):
    odd = ("sync", "prefetch", "size", "atomic_add_f", "dot", "mix", "index", "norm2", "helper", "barrier_of", "step_")
    known = [each for each in odd if each not in draft.sizes and f"helper {each}" not in draft.without]
    # Built-in functions of OpenCL C cannot be defined anew.
    known = [each for each in known if draft.cuda or each not in {"prefetch", "dot", "mix"}]
    return draft.draw.choice(known) + ("" if draft.chance(0.5) else str(len(draft.prelude)))


def _function(draft, result, parameters, body):
    """Define a function; return its name."""
    taken = {each.split("(")[0].split()[-1] for each in draft.prelude if "(" in each}
    name = _name(draft)
    while name in taken:
        name += "_"
    start = "__device__ " if draft.cuda else ""
    draft.prelude.append(f"{start}{result} {name}({parameters}) {{ {body} }}")
    return name


def _product(draft):
    name = _function(draft, "float", "float b, float e", "return b * e + b;")
    return [f"y[{draft.at()}] = {name}({draft.number()}, {draft.number(1)}) + {draft.number(1)};"]


def _early(draft):
    name = _function(
        draft, "float", "float b, int q", "if (q > 2) return b; b = b * b; if (q == 1) return b + b; return b - 1.5f;"
    )
    return [f"y[{draft.at()}] = {name}({draft.number()}, {draft.integer(1)});", f"z[i] = {name}(a, i);"]


def _data_exit(draft):
    name = _function(
        draft, "float", f"{draft.glob}const float *q, int r", "if (q[r] > 0.5f) return 0; return q[r + 1] * q[r];"
    )
    return [f"y[{draft.at()}] = {name}(x, {draft.variable()});"]


def _put(draft):
    name = _function(
        draft, "void", f"{draft.glob}float *q, int r, float b", "if (r < 2) return; q[r] += b; q[r + 1] = b;"
    )
    return [f"{name}({draft.pick('y', 'z + 2', 'y + i')}, {draft.variable()}, {draft.number()});"]


def _through_pointer(draft):
    name = _function(draft, "void", "int *q, int r", "*q += r; if (*q > 5) *q = 5;")
    here = draft.name("k")
    return [
        f"int {here} = {draft.pick('0', 'i', '2')};",
        f"{name}(&{here}, {draft.integer(0)});",
        f"y[{here} & 15] = {draft.number()};",
    ]


def _whole(draft):
    name = _function(
        draft,
        "int",
        "int q, int r",
        draft.pick(
            "return q < r ? q : r;", "if (q & 1) return q / 2; return q + r;", "while (q > 3) q -= 2; return q;"
        ),
    )
    return [f"y[({name}({draft.variable()}, {draft.variable()})) & 15] = {draft.number()};"]


def _odd_names(draft):
    name = _function(draft, "void", f"{draft.glob}float *q", "q[0] = q[1]; q[2] = q[3] * 2.0f;")
    return [f"{name}({draft.pick('y', 'z', 'y + i')});"]


def _loop_exit(draft):
    name = _function(
        draft, "float", f"{draft.glob}const float *q, int r",
        "float b = q[0]; for (int h = 0; h < 5; h++) { if (h == r) return b; b += q[h]; } return b * b;",
    )  # fmt: skip
    return [f"z[{draft.at()}] = {name}({draft.pick('x', 'x + i', 'y')}, {draft.variable()});"]


def _two_returns(draft):
    name = _function(
        draft,
        "int",
        f"{draft.glob}const int *q, int r",
        "for (int h = 0; h < r; h++) { if (q[h] == 3) return h; } return -1;",
    )
    return [f"if ({name}(idx, {draft.size()}) >= 0) y[{draft.at()}] = {draft.number()};"]


def _template(draft):
    name = _function(
        draft, "T", "const T *q, int r", "T b = q[r]; for (int h = 0; h < N; h++) b += q[r + h] * q[h]; return b;"
    )
    draft.prelude[-1] = f"template <int N, typename T> {draft.prelude[-1]}"
    return [f"y[{draft.at()}] = {name}<{draft.pick('3', '2', '4')}>(x, {draft.variable()});"]


def _functor(draft):
    draft.need("struct Twice { __device__ float operator()(float b) const { return b * b + b; } };")
    draft.need(
        "struct Half { float h; __device__ float operator()(float b) const { if (b < 0.2f) return b; return b * h; } };"
    )
    name = _function(draft, "float", "F f, float b", "return f(b) + f(b);")
    draft.prelude[-1] = f"template <typename F> {draft.prelude[-1]}"
    here = draft.name("f")
    return draft.pick(
        [f"y[{draft.at()}] = {name}(Twice(), {draft.number()});"],
        [f"Half {here} = {{{draft.number()}}};", f"y[{draft.at()}] = {name}({here}, {draft.number()});"],
        [f"Twice {here};", f"y[{draft.at()}] = {here}({draft.number()});"],
    )


def _method(draft):
    draft.need(
        "struct Row { const float *q; int w; __device__ float get(int r) const { return q[r * w]; }\n"
        "  __device__ void on(int s) { q += s; } };"
    )
    here = draft.name("f")
    return [
        f"Row {here} = {{x, {draft.pick('2', draft.size())}}};",
        f"{here}.on({draft.pick('1', 'i')});",
        f"z[{draft.at()}] = {here}.get({draft.variable()}) * a;",
    ]


def _reference(draft):
    name = _function(draft, "void", "float &b, const float &e, int &q", "b = b * e + e; q += 2;")
    here, there = draft.name("f"), draft.name("k")
    return [
        f"float {here} = {draft.number()}; int {there} = {draft.integer(0)};",
        f"{name}({here}, {draft.pick('a', here)}, {there});",
        f"y[{there} & 15] = {here};",
    ]


def _lambda(draft):
    here = draft.name("f")
    return [f"auto {here} = [=](float b) {{ return b * a + 1.0f; }};", f"y[{draft.at()}] = {here}({draft.number()});"]


def _overload(draft):
    draft.need("__device__ float pick(float b, int q) { return b * b; }")
    draft.need("__device__ float pick(float b, float q) { return b / q; }")
    return [f"y[{draft.at()}] = pick({draft.number()}, {draft.pick('3', 'a', 'i * 2')});"]


def _factor(draft):
    draft.need("struct Pair { float b, e; };")
    draft.need("__device__ Pair operator*(Pair q, float r) { Pair s; s.b = q.b * r; s.e = q.e * r + q.b; return s; }")
    here = draft.name("f")
    return [
        f"Pair {here} = {{{draft.number()}, a}};",
        f"{here} = {here} * {draft.number()};",
        f"y[{draft.at()}] = {here}.b + {here}.e;",
    ]
