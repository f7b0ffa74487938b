"""Formulas over names: they mean what they mean in Python, and everything that is no formula is refused."""

import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perflex.errors import ModelSyntaxError
from perflex.formula import parse_formula


def test_names_and_pickling():
    formula = parse_formula("b*a + b if c else max(a, 1)")
    assert formula.names == ("c", "b", "a")
    assert pickle.loads(pickle.dumps(formula)) == formula
    # Texts are no names.
    assert parse_formula("kind == 'tiled' and a in (b, 'c')").names == ("kind", "a", "b")


@pytest.mark.parametrize(
    "text",
    [
        *("", "x +", "x.real", "__import__('os')", "open('f')", "x[0]", "[x for x in y]", "lambda: 1"),
        *("ceil(x, y)", "max(*x)", "log(x, base=2)", "x is y", "(x := 1)", "x; y"),
        *("1j", "None"),
        "(" * 300 + "x" + ")" * 300,
        "+".join(["x"] * 2000),
    ],
)
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(ModelSyntaxError, match="constraint"):
        parse_formula(text)


def scalar(text, **values):
    return parse_formula(text).value(values)


@pytest.mark.parametrize(
    ("text", "at_zero", "at_four"),
    [
        ("a != 0 and 8 % a == 0", False, True),
        ("a == 0 or 8 / a == 1", True, False),
        ("8 // a if a else -1", -1, 2),
        ("-1 if not a else 8 // a", -1, 2),
        ("0 < a < 9 / a", False, False),
        ("a == 0 or a > 1 and 4 / a == 1", True, True),
    ],
)
def test_earlier_parts_of_constraints_guard_later_ones(text, at_zero, at_four):
    assert scalar(text, a=0) == at_zero
    assert scalar(text, a=4) == at_four


@pytest.mark.parametrize(
    "text",
    ["8 % a == 0 and a != 0", "8 / a == 1 or a == 0", "8 // a if a == 0 else 1", "a == 0 and 8 % a == 0", "1 // a"],
)
def test_unguarded_divisions_by_zero_are_errors(text):
    with pytest.raises(ZeroDivisionError):
        scalar(text, a=0)


@pytest.mark.parametrize(
    "text",
    [
        *("kind == 'tiled'", "kind in ('plain', 'tiled')", "kind not in ('plain', 'rows')", "'il' in kind"),
        *("'plain' < kind < 'tilee'", "max(kind, 'zero') == 'zero'", "a in (1, a + 1, 2 * a - 3)"),
        *("max((a, 1, 2)) - min([a, 2]) == 1", "a <= 3 in (2, 3)", "not a < 4 < 3"),
        *("(a, kind) in ((2, 'tiled'), (3, 'tiled'))", "(kind in ['plain', \"rows\"]) == (kind in ())"),
    ],
)
def test_texts_and_groups_in_constraints(text):
    assert scalar(text, kind="tiled", a=3) is True
    assert scalar(f"not ({text})", kind="tiled", a=3) is False


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("'ab' * 1000000000", "'ab'"),
        ("3 * kind", "'tiled'"),
        ("kind + 'x'", "'tiled'"),
        ("-kind", "'tiled'"),
        ("(1, 2) * 1000000000", r"\(1, 2\)"),
        ("[a] + [a]", r"\(3,\)"),
        ("2 ** 'x'", "'x'"),
    ],
)
def test_arithmetic_of_what_is_no_number_is_refused(text, culprit):
    with pytest.raises(TypeError, match=f"{culprit} is no number"):
        scalar(text, kind="tiled", a=3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("2**64", 2**64), ("a**-64 * 2**64", 1.0), ("1.5 ** 64.0", 1.5**64)),
        *((text, None) for text in ("2**65", "a << 65", "1 ** 64.5", "2 ** 8 ** 3", "0 ** (a * 33)", "1 ** 1e999")),
    ],
)
def test_exponents_up_to_64(text, expected):
    if expected is not None:
        assert scalar(text, a=2) == expected
        return
    with pytest.raises(ValueError, match="an exponent may not exceed 64"):
        scalar(text, a=2)


@pytest.mark.parametrize(
    "text",
    [
        *("a & 4 == 4", "(a & 4) == 0", "a | 3 ^ 1", "~a + 8", "1 << a", "a >> 1", "int(a / 2)"),
        *("ceil(a / 2) - floor(a / 2)", "a in range(2, 7, 2)", "bool(a) + round(a / 4)"),
    ],
)
def test_bits_and_rounding_are_those_of_python(text):
    names = {"ceil": math.ceil, "floor": math.floor}
    assert all(scalar(text, a=a) == eval(text, names, {"a": a}) for a in range(9))


def test_integers_of_constraints_are_exact():
    digits = "1" * 400
    assert scalar(digits) == int(digits)
    assert scalar("2**60 + 1 > 2**60") is True


@pytest.mark.parametrize(
    ("text", "position", "cause"),
    [
        ("max()", 1, r"max takes 1 or more argument\(s\), not 0"),
        ("a + abs(a, 2)", 5, r"abs takes 1 argument\(s\), not 2"),
        ("a * (b + c.real)", 10, "there is a Attribute"),
        ("a and sqrt(b)", 7, "call of an unknown function"),
        ("min(a, default=0)", 1, "with keywords"),
        ("1 < a is b", 1, "there is Is,"),
        ("a == b'x'", 6, "there is a Constant"),
        ("'a' == f'{a}'", 8, "there is a JoinedStr"),
        ("2 * -{a}", 6, "there is a Set"),
    ],
)
def test_messages_name_the_place_in_a_constraint(text, position, cause):
    with pytest.raises(ModelSyntaxError, match=f"constraint .* at character {position}, .*{cause}") as caught:
        parse_formula(text)
    assert (caught.value.position, caught.value.text) == (position, text)


@pytest.mark.parametrize(("before", "after"), [("-", ""), ("not ", ""), ("abs(", ")")])
def test_levels_are_limited(before, after):
    def nested(levels):
        return parse_formula(before * levels + "a" + after * levels)

    assert abs(nested(150).value({"a": 1})) == 1 or before == "not "
    with pytest.raises(ModelSyntaxError, match="nested more than 150 deep; write it in parts") as caught:
        nested(151)
    assert caught.value.position == len(before) * 151 + 1


def test_two_thousand_characters_and_no_more():
    text = f"max({', '.join(['a'] * 665)})"
    text = text.replace("(", "(" + " " * (2000 - len(text)), 1)
    assert parse_formula(text).value({"a": 7}) == 7
    with pytest.raises(ModelSyntaxError, match="a constraint of 2001 characters is refused; 2000 are the most"):
        parse_formula(text + " ")


def joined(parts):
    pair = st.builds(
        "({} {} {})".format, parts, st.sampled_from(["+", "-", "*", "<", "<=", ">", ">=", "==", "!="]), parts
    )
    chain = st.builds("({} < {} >= {})".format, parts, parts, parts)
    return pair | chain


NUMBERS = st.integers(-8, 8)
FORMULAS = st.recursive(st.sampled_from(["a", "b", "c", "(-a)", "3", "0.5"]), joined, max_leaves=12)


@settings(max_examples=150, deadline=None)
@given(text=FORMULAS, a=NUMBERS, b=NUMBERS, c=NUMBERS)
def test_values_are_those_of_python(text, a, b, c):
    values = {"a": a, "b": b, "c": c}
    assert scalar(text, **values) == eval(text, {}, values)
