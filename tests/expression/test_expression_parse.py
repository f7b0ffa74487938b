"""Model strings: what they mean, what is refused, and how."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perflex.errors import ModelSyntaxError
from perflex.expression.parser import parse_expression
from perflex.expression.tree import evaluate, names

VALUES = {"p_a": 1.25, "p_b": -0.5, "p_c": 3.0, "f_x": 7.0, "f_y": 0.125}

FUNCTIONS = {name: getattr(math, name) for name in ("exp", "log", "sqrt", "tanh")} | {
    "abs": abs,
    "min": min,
    "max": max,
}


def python_value(text):
    """Return what Python makes of a string: an independent reading of precedence."""
    return float(eval(f"({text})", {"__builtins__": {}}, VALUES | FUNCTIONS))


@pytest.mark.parametrize("text", [
    "p_a", "1 - 2 - 3 + p_a", "-p_a ** 2", "p_a ** -2", "2 ** p_a ** p_c", "p_a / p_b / p_c * f_x", "p_a - -+-p_b",
    "p_a * -p_b", "(p_a + p_b) * (f_x - f_y) / 3", "1.5e-3 * f_x + .5 * f_y + 2. * p_a + 1E2", "--p_a", "+-+p_a * 2",
    "exp(p_a) + log(f_x) + sqrt(f_y) + tanh(p_b) + abs(p_b)", "min(p_a, p_b, p_c) + max(f_x, f_y)",
    "\n p_a\t+\r\n p_b ", "-(p_a + 2) ** 2", "8 / 4 / 2 * p_a", "p_a - (p_b - (p_c - 1))", "p_a / (p_b / (p_c * 2))",
])  # fmt: skip
def test_reads_like_python(text):
    assert evaluate(parse_expression(text), VALUES) == pytest.approx(python_value(text), rel=1e-14)


ATOMS = st.sampled_from([*VALUES, "2", "0.5", "3e1"])


def _combine(inner):
    one = st.sampled_from(["({})", "-({})", "({})**2", "tanh({})"])
    two = st.sampled_from(["{} + {}", "{}-{}", "{}*{}", "{} / {}", "max({}, {})"])
    return st.tuples(st.one_of(one, two), inner, inner).map(lambda drawn: drawn[0].format(*drawn[1:]))


@given(st.recursive(ATOMS, _combine, max_leaves=12))
@settings(max_examples=200, deadline=None)
def test_any_expression_reads_like_python(text):
    try:
        expected = python_value(text)
    except (ArithmeticError, ValueError):
        return
    try:
        got = evaluate(parse_expression(text), VALUES)
    except ModelSyntaxError as error:
        assert "powers of powers" in error.message or "finite" in error.message  # noqa: PT017
        return
    # Different orders of summation round differently; cancellation makes that visible.
    assert got == pytest.approx(expected, rel=1e-6, abs=1e-6 * (1 + abs(expected)))


LONG = "f_mem_access_global_float32_load_lstrides:{0:1;1:>15}_gstrides:{0:16}_afr:>1"


@pytest.mark.parametrize("identifier", [
    "f_op_float32_madd", "f_mem_access_tag:aLD", "f_mem_access_tag:b_fetch_2", LONG,
    "f_mem_access_global_float32_store_lstrides:{0:<n}_gstrides:{0:>=16;1:16*n}",
    "f_mem_access_global_float32_load_afr:1.5", "f_mem_access_global_float32_load_afr:<=n",
    "f_mem_access_lstrides:{0:-1}", "f_mem_access_lstrides:{}",
])  # fmt: skip
@pytest.mark.parametrize("frame", ["p_a*{}", "{}*p_a", "p_a * {} + p_b", "({})/2", "max({},1)", "p_a -{}"])
def test_feature_identifiers_stay_whole(identifier, frame):
    found = names(parse_expression(frame.replace("{}", identifier, 1)))
    assert [name for name in found if name.startswith("f_")] == [identifier]


@pytest.mark.parametrize(("text", "position", "says"), [
    ("p_a % f_b", 4, "'%' is not allowed"), ("p_a ^ 2", 4, "write ** for a power"),
    ("p_a f_b", 4, "operator is missing before 'f_b'"), ("(p_a + p_b", 0, "'(' was never closed"),
    ("p_a + p_b)", 9, "unmatched ')'"), ("p_a +", 5, "string ends where"),
    ("p_a * * p_b", 6, "must stand here, not '*'"), ("p_a * madd", 6, "did you mean 'p_madd'"),
    ("p_a * f_x + px_a", 12, "did you mean 'p_a'"), ("2p_a", 1, "put an operator such as *"),
    ("0x10 * p_a", 1, "follows a number"), ("sqr(p_a)", 0, "did you mean 'sqrt'"),
    ("overlp(p_a, p_b, p_c)", 0, "did you mean 'overlap'"), ("p_a(3)", 3, "put * here"),
    ("exp * p_a", 0, "write exp(x)"), ("overlap(p_a, p_b)", 0, "write overlap(g, o, p_edge)"),
    ("max(p_a)", 0, "does not take 1"), ("smooth_max(p_a, p_b)", 0, "does not take 2"),
    ("smooth_max(p_a, p_b, -0.5)", 21, "sharpness -0.5 is out of range; write 0 or more"),
    ("partial_overlap(p_a, p_b, 3, 80)", 29, "hidden 80 is out of range; write 0 to 1"),
    ("p_a, p_b", 3, "only separates arguments"), ("(p_a, p_b)", 4, "only separates arguments"),
    ("f_", 0, "name after f_ is missing"), ("p_ * f_x", 0, "name after p_ is missing"),
    ("p_a * f_mem_access_tag:", 22, "tag: must be followed by"),
    ("p_a * f_mem_access_lstrides:{0:1", 27, "lstrides: must be followed by"),
    ("p_a * f_mem_access_lstrides:{0: 1}", 27, "without blanks"),
    ("p_a * f_mem_access_afr:>", 22, "afr: must be followed by"), ("p_a * f_op:float32", 10, "check the spelling"),
    ("p_a * f_x + 1/0", 12, "not a finite number"), ("log(0) * p_a", 0, "not a finite number"),
    ("p_a + 1e999", 6, "too large for double"), ("", 0, "it is empty"), ("p_\u0430", 2, "not an ASCII character"),
    ("p_a \u2212 p_b", 4, "not an ASCII character"), ("\uff50_a", 0, "not an ASCII character"),
])  # fmt: skip
def test_errors_show_the_place(text, position, says):
    with pytest.raises(ModelSyntaxError) as caught:
        parse_expression(text)
    error = caught.value
    assert error.position == position
    assert says in error.message
    cause, shown, caret = error.message.split("\n")
    assert f"character {position + 1}:" in cause
    if text.isascii() and text.isprintable():
        assert shown == f"  {text}"
        assert caret == " " * (2 + position) + "^"


def test_long_strings_are_shown_around_the_place():
    text = " + ".join(f"p_{i} * f_x" for i in range(300)) + " + oops + " + " + ".join(["p_a"] * 300)
    with pytest.raises(ModelSyntaxError) as caught:
        parse_expression(text)
    _, shown, caret = caught.value.message.split("\n")
    assert len(shown) < 140
    assert shown[caret.index("^") :].startswith("oops")


HOSTILE = [
    "9**9**9", "p_a**(10**10)", "((((2*p_a)**99)**99)**99)**99", "__import__('os').system('true')", "p_a.__class__",
    "lambda: 0", "[p_a for p_a in (1,)]", "p_a[0]", "f'{p_a}'", "p_a if p_b else p_c", "p_a := 3", "p_a == p_b",
    "p_a and p_b", "~p_a", "p_a // p_b", "p_a; p_b", "p_a # comment", "p_a \\\n+ p_b", "max(*p_a)", "exp(x=p_a)",
    "exp(p_a,)", "eval(p_a)", "await p_a", "True", "1j", "inf", "\0", "p_a + \x1b[31m", "p_\u202ea", "p_a" + "\ud800",
    "(" * 100_000, "(" * 60 + "p_a" + ")" * 60, "exp(" * 5_000 + "p_a" + ")" * 5_000, "p_a" + "**p_a" * 20_000,
    "p_a" + "**p_a" * 60, "overlap(" * 12 + "p_a" + ", p_b, p_c)" * 12, "p_a+" * 24_999 + "p_a",
    "p_a * " + "9" * 50_000, "p_" + "a" * 200_000, "f_mem_access_tag:" + "\n",
    "f_mem_access_lstrides:{" + "0" * 90_000,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:24]))
def test_hostile_strings_are_refused(text):
    with pytest.raises(ModelSyntaxError):
        parse_expression(text)


@pytest.mark.parametrize("thing", [None, 3, b"p_a", ["p_a"]])
def test_only_strings_are_model_strings(thing):
    with pytest.raises(ModelSyntaxError, match="must be a str"):
        parse_expression(thing)  # type: ignore[arg-type]


@given(st.text(alphabet="fp_ab12.+-*/() ,:{};<>=maxe\n", max_size=40))
@settings(max_examples=500, deadline=None)
def test_texts_of_model_characters_are_read_or_refused(text):
    try:
        tree = parse_expression(text)
    except ModelSyntaxError as error:
        assert 0 <= error.position <= len(text)  # noqa: PT017
        return
    evaluate(tree, dict.fromkeys(names(tree), 1.5))
