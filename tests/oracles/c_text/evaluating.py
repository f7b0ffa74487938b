"""Expressions of C: what they evaluate to, and what evaluating them loads, stores and computes."""

import math
from dataclasses import replace

from oracles.c_text.types import (
    BOOL,
    INT,
    VOID,
    CType,
    Memory,
    Place,
    UndefinedError,
    Value,
    common,
    converted,
    pointer,
    scalar,
    vector,
)

_FUNCTIONS = {
    "sqrt": math.sqrt,
    "exp": math.exp,
    "fabs": abs,
    "sin": math.sin,
    "log": math.log,
    "floor": math.floor,
    "ceil": math.ceil,
}
_KINDS = {"fabs": "abs"}
_COMPARED = {
    "<": lambda a, b: a < b, ">": lambda a, b: a > b, "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}  # fmt: skip
_IDS = {
    "get_local_id": "threadIdx",
    "get_group_id": "blockIdx",
    "get_local_size": "blockDim",
    "get_num_groups": "gridDim",
}
_BARRIERS = {"barrier", "__syncthreads"}
_LANES = {name: place for names in ("xyzw", "rgba") for place, name in enumerate(names)}


class Expressions:
    """Evaluates expressions: to a `Place`, or to a `Value`."""

    def evaluate(self, expression):
        return getattr(self, f"of_{expression[0]}")(*expression[1:])

    def value(self, expression):
        """Evaluate an expression, and load what it names."""
        found = self.evaluate(expression)
        return self.load(found) if isinstance(found, Place) else found

    def converted(self, given, kind):
        """Return a value as another type."""
        if kind.kind == "scalar" and given.type.kind == "scalar":
            same = given.type == kind
            return replace(given, type=kind, value=converted(given.value, kind), product=given.product and same)
        if kind.kind == "vector":
            values = given.value if given.type.kind == "vector" else (given.value,) * kind.count
            return Value(kind, tuple(converted(each, kind.of) for each in values), given.product, given.literal)
        if kind.kind == "pointer" and given.type.kind == "scalar":
            return Value(kind, None)
        return replace(given, type=kind) if kind.kind == "pointer" else given

    def of_num(self, kind, number):
        return Value(scalar(kind), number, literal=True)

    def of_name(self, name, arguments):
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if name in self.bound:
            return Value(INT, self.bound[name], literal=True)
        if name in self.ids:
            return Value(CType("ids", name), self.ids[name])
        if name in {"CLK_LOCAL_MEM_FENCE", "CLK_GLOBAL_MEM_FENCE"}:
            return Value(INT, 1)
        return Value(CType("function", name), (None, self.unit.functions.get(name, []), arguments))

    def of_member(self, owner, name):
        found = self.evaluate(owner)
        kind = found.type
        if kind.kind == "ids":
            return Value(scalar("uint32"), found.value["xyz".index(name)])
        if isinstance(found, Value):
            memory = Memory("a value")
            self.store(Place(kind, memory), found)
            found = Place(kind, memory)
        if kind.kind == "vector":
            return replace(found, lanes=_lanes(name, kind.count))
        for label, offset, inner in kind.fields:
            if label == name:
                return Place(inner, found.memory, found.offset + offset)
        return Value(CType("function", name), (found, [kind.function[0][name]], None))

    def of_index(self, owner, subscript):
        base, step = self.value(owner), self.value(subscript)
        return self.pointed(self.moved(base, step.value))

    def moved(self, base, step):
        memory, offset = base.value
        return replace(base, value=(memory, offset + step * base.type.of.size))

    def pointed(self, given):
        if given.value is None:
            msg = "a null pointer is followed"
            raise UndefinedError(msg)
        return Place(given.type.of, *given.value)

    def of_comma(self, first, second):
        self.evaluate(first)
        return self.value(second)

    def of_cond(self, test, then, other):
        found = replace(self.value(then if self.holds(test) else other), product=False, literal=False)
        kinds = [self.kind_of(each) for each in (then, other)]
        is_known = all(kind is not None and kind.kind == "scalar" for kind in kinds)
        return self.converted(found, common(*kinds)) if is_known else found

    def kind_of(self, expression):
        """Return the type of an expression that is not evaluated; None of those that are left aside here."""
        match expression:
            case "num", kind, _:
                return scalar(kind)
            case "name", name, _:
                return next(
                    (getattr(scope[name], "type", None) for scope in reversed(self.scopes) if name in scope), None
                )
            case ("bin", _, one, two) | ("cond", _, one, two):
                kinds = [self.kind_of(each) for each in (one, two)]
                if None in kinds or any(kind.kind != "scalar" for kind in kinds):
                    return None
                sign = expression[1] if expression[0] == "bin" else ""
                is_truth = sign in {"&&", "||", *_COMPARED}
                return INT if is_truth else common(kinds[0], INT) if sign in {"<<", ">>"} else common(*kinds)
        return None

    def of_sizeof(self, what):
        kind = self.resolve(what) if what[0] in {"base", "ptr", "arr"} else self.evaluate(what).type
        return Value(scalar("uint64"), kind.size, literal=True)

    def of_cast(self, kind, expression):
        return self.converted(self.value(expression), self.resolve(kind))

    def of_make(self, kind, items):
        found = self.resolve(kind)
        if found.kind == "struct":
            listed = items[0][1] if items and items[0][0] == "list" else items
            return self.filled(found, listed)
        values = [self.value(each) for each in items]
        if found.kind == "scalar":
            return self.converted(values[0], found)
        parts = [part for each in values for part in (each.value if each.type.kind == "vector" else (each.value,))]
        parts = parts * found.count if len(parts) == 1 else parts
        return Value(found, tuple(converted(each, found.of) for each in parts))

    def of_lambda(self, function):
        scopes = [dict(each) for each in self.scopes]
        return Value(CType("function", ""), ((scopes,), [function], None))

    def of_assign(self, sign, target, source):
        if sign:
            operand = self.value(source)
            return self.changed(*self.updated(target, sign, operand))
        given = self.value(source)
        place = self.evaluate(target)
        given = self.converted(given, self.taken(place))
        self.store(place, given)
        return self.changed(place, None, given)

    def changed(self, place, _, after):
        """Return what an assignment is: a place, or its value where nobody assigns to that."""
        return place if place.memory.space == "private" and self.cuda else after

    def taken(self, place):
        """Return the type of what a place holds."""
        if place.lanes is None:
            return place.type
        of = place.type.of
        return of if len(place.lanes) == 1 else vector(of, len(place.lanes), cuda=self.cuda)

    def updated(self, target, sign, operand):
        place = self.evaluate(target)
        before = self.load(place)
        after = self.converted(self.binary(sign, before, operand), self.taken(place))
        self.store(place, after)
        return place, before, after

    def of_post(self, sign, target):
        return self.updated(target, sign[0], Value(INT, 1, literal=True))[1]

    def of_un(self, sign, inner):
        if sign in {"++", "--"}:
            return self.changed(*self.updated(inner, sign[0], Value(INT, 1, literal=True)))
        if sign == "&":
            place = self.evaluate(inner)
            return Value(pointer(place.type), (place.memory, place.offset))
        if sign == "!":
            return Value(INT, int(not self.holds(inner)))
        given = self.value(inner)
        if sign == "*":
            return self.pointed(given)
        if given.type.kind == "vector":
            return replace(given, value=tuple(-each for each in given.value))
        kind = given.type if given.type.is_float else common(given.type, INT)
        number = {"-": lambda: -given.value, "~": lambda: ~given.value, "+": lambda: given.value}[sign]()
        return replace(given, type=kind, value=checked(number, kind))

    def of_bin(self, sign, left, right):
        if sign in {"&&", "||"}:
            if self.holds(left) != (sign == "&&"):
                return Value(INT, int(sign == "||"))
            return Value(INT, int(self.holds(right)))
        return self.binary(sign, self.value(left), self.value(right))

    def binary(self, sign, one, two):
        """Return what an operator gives."""
        kinds = {one.type.kind, two.type.kind}
        if "struct" in kinds or (self.cuda and "vector" in kinds):
            if f"operator{sign}" not in self.unit.functions:
                msg = f"no operator {sign} is defined"
                raise UndefinedError(msg)
            return self.called(self.unit.functions[f"operator{sign}"], [one, two], None)
        if "pointer" in kinds:
            return self.of_pointers(sign, one, two)
        for sign_of, given in ((one, two), (two, one)):
            # A factor of 1 or -1 changes a sign at most.
            if sign == "*" and sign_of.literal and sign_of.value in (1, -1) and not given.literal:
                if given.type.kind == "vector":
                    return replace(given, value=tuple(sign_of.value * each for each in given.value))
                if given.type.is_float and common(given.type, sign_of.type) == given.type:
                    return replace(given, value=sign_of.value * given.value)
        return self.of_vectors(sign, one, two) if "vector" in kinds else self.of_numbers(sign, one, two)

    def of_numbers(self, sign, one, two):
        literal = one.literal and two.literal
        if sign in {"<<", ">>"}:
            kind = common(one.type, INT)
            if two.value not in range(8 * kind.size) or (sign == "<<" and one.value < 0):
                msg = "a shift by more than there are bits"
                raise UndefinedError(msg)
            number = one.value << two.value if sign == "<<" else one.value >> two.value
            return Value(kind, checked(number, kind), literal=literal)
        kind = common(one.type, two.type)
        first, second = converted(one.value, kind), converted(two.value, kind)
        if sign in _COMPARED:
            return Value(BOOL if self.cuda else INT, int(_COMPARED[sign](first, second)))
        number = checked(computed(sign, first, second, whole=kind.is_integer), kind)
        product = kind.is_float and not literal and self.counted(sign, kind, one, two)
        return Value(kind, number, product, literal)

    def counted(self, sign, kind, one, two, lanes=1):
        """Count an operation on floats; return whether it is a product."""
        fused = [each for each in (one, two) if each.product and each.type in {kind, one.type if lanes > 1 else kind}]
        fused = [each for each in fused if (each.type.count if each.type.kind == "vector" else 1) == lanes]
        if sign in {"+", "-"} and fused:
            self.operation("mul", kind, -lanes)
            self.operation("madd", kind, lanes)
        else:
            self.operation({"+": "add", "-": "add", "*": "mul", "/": "div"}[sign], kind, lanes)
        return sign == "*"

    def of_vectors(self, sign, one, two):
        of = (one if one.type.kind == "vector" else two).type.of
        count = max(each.type.count for each in (one, two))
        first, second = (
            each.value if each.type.kind == "vector" else (converted(each.value, of),) * count for each in (one, two)
        )
        pairs = zip(first, second, strict=True)
        values = tuple(checked(computed(sign, *pair, whole=of.is_integer), of) for pair in pairs)
        product = of.is_float and self.counted(sign, of, one, two, count)
        return Value(vector(of, count, cuda=self.cuda), values, product)

    def of_pointers(self, sign, one, two):
        if sign in _COMPARED:
            first, second = (None if each.type.kind == "scalar" else each.value for each in (one, two))
            if first is not None and second is not None:
                if first[0] is not second[0]:
                    msg = "pointers to different arrays are compared"
                    raise UndefinedError(msg)
                return Value(INT, int(_COMPARED[sign](first[1], second[1])))
            return Value(INT, int((first is second) == (sign == "==")))
        if two.type.kind == "pointer" and one.type.kind == "pointer":
            return Value(scalar("int64"), (one.value[1] - two.value[1]) // one.type.of.size)
        base, step = (one, two) if one.type.kind == "pointer" else (two, one)
        return self.moved(base, step.value if sign == "+" else -step.value)

    # Calls

    def of_call(self, called, arguments):
        target = self.evaluate(called)
        target = self.load(target) if isinstance(target, Place) else target
        if target.type.kind == "struct":
            owner = self.evaluate(called)
            if isinstance(owner, Value):
                owner = Place(owner.type, Memory("a value"))
                self.store(owner, target)
            return self.called(
                [target.type.function[0]["operator()"]], list(map(self.evaluate, arguments)), None, owner
            )
        this, functions, given = target.value
        if functions:
            return self.called(functions, list(map(self.evaluate, arguments)), given, this)
        return self.built_in(target.type.name, arguments)

    def called(self, functions, arguments, given, this=None):
        """Call the overload that fits best."""
        kinds = [each.type if each.__class__ is Value else self.taken(each) for each in arguments]
        function = max(
            (each for each in functions if len(each.parameters) == len(kinds)), key=lambda each: self.fit(each, kinds)
        )
        bound, scopes = self.bound, self.scopes
        own = self.bindings(function, kinds, given or ())
        places = {}
        if isinstance(this, Place) and this.type.kind == "struct":
            own = {**this.type.function[1], **own}
        self.bound = {**bound, **own} if own else bound
        for (kind, name, _), each in zip(function.parameters, arguments, strict=True):
            if kind[0] == "ref" and isinstance(each, Place):
                places[name] = each
                continue
            given_value = self.load(each) if isinstance(each, Place) else each
            wanted = self.resolve(kind) if kind[1] != "auto" else given_value.type
            place = Place(wanted, Memory(name))
            self.store(place, self.converted(given_value, wanted))
            places[name] = place
        inner = this[0] if isinstance(this, tuple) else [scopes[0]]
        if isinstance(this, Place):
            inner = [
                scopes[0],
                {name: Place(kind, this.memory, this.offset + at) for name, at, kind in this.type.fields},
            ]
        self.scopes = [*inner, places]
        try:
            return self.returned(function)
        finally:
            self.bound, self.scopes = bound, scopes

    def returned(self, function):
        """Execute a function's body; return what it gives."""
        left, result = self.execute(function.body), function.result
        found = left if isinstance(left, (Value, Place)) else Value(VOID, None)
        if result[0] == "ref" or found.type.kind == "void":
            return found
        found = self.load(found) if isinstance(found, Place) else found
        found = found if result[1] == "auto" else self.converted(found, self.resolve(result))
        return replace(found, product=False, literal=False)

    def fit(self, function, kinds):
        if function.templates:
            return 0
        written = [self.resolve(kind) for kind, *_ in function.parameters]
        return sum(2 if one == two else one.kind == two.kind for one, two in zip(written, kinds, strict=True))

    def bindings(self, function, kinds, given):
        """Return template arguments: those that are written, and types that follow from the arguments."""
        found = self.evaluated(function.templates, given)
        for (written, *_), kind in zip(function.parameters, kinds, strict=True):
            inner = written
            while inner[0] in {"ptr", "ref"}:
                kind = kind.of if inner[0] == "ptr" else kind  # noqa: PLW2901
                inner = inner[1]
            if inner[0] == "base" and inner[1] in function.templates:
                found.setdefault(inner[1], kind)
        return found

    def built_in(self, name, arguments):
        if name in _BARRIERS:
            self.counts.barriers += 1
            return Value(VOID, None)
        values = [self.value(each) for each in arguments]
        if name in _IDS:
            return Value(scalar("uint64"), self.ids[_IDS[name]][values[0].value])
        if name in {"get_global_id", "get_global_size"}:
            word, rest = ("blockIdx", True) if name == "get_global_id" else ("gridDim", False)
            axis = values[0].value
            own = self.ids["threadIdx"][axis] if rest else 0
            return Value(scalar("uint64"), self.ids[word][axis] * self.ids["blockDim"][axis] + own)
        if name.startswith(("make_", "convert_")):
            kind = self.resolve(("base", name.split("_", 1)[1], ()))
            made = Value(kind, tuple(each.value for each in values)) if name.startswith("make_") else values[0]
            return self.converted(made, kind)
        return self.vector_access(name, values) if name[:5] in {"vload", "vstor"} else self.number(name, values)

    def vector_access(self, name, values):
        base, step = values[-1], values[-2].value
        of, count = base.type.of, int(name[-1])
        memory, offset = base.value
        whole = CType("vector", f"{of.name}x{count}", of, count, of.size * count, of.size)
        place = Place(whole, memory, offset + step * count * of.size)
        if name.startswith("vload"):
            return replace(self.load(place), type=vector(of, count, cuda=self.cuda))
        self.store(place, values[0])
        return Value(VOID, None)

    def number(self, name, values):
        kind = values[0].type
        for each in values[1:]:
            kind = common(kind, each.type)
        numbers = [converted(each.value, kind) for each in values]
        if name in {"min", "max", "fmin", "fmax", "fminf", "fmaxf"}:
            word = name.strip("f")
            if kind.is_float:
                self.operation(word, kind)
            literal = kind.is_integer and all(each.literal for each in values)
            return Value(kind, {"min": min, "max": max}[word](numbers), literal=literal)
        if name in {"abs", "clamp", "mul24"}:
            known = {"abs": abs, "clamp": lambda x, low, high: min(max(x, low), high), "mul24": lambda a, b: a * b}
            result = kind
            if name == "abs" and not self.cuda and not kind.name.startswith("u"):  # as OpenCL C has it
                result = scalar(f"u{kind.name}")
            return Value(result, known[name](*numbers), literal=all(each.literal for each in values))
        if name in {"fma", "fmaf", "mad"}:
            self.operation("madd" if name == "mad" else "fma", kind)
            return Value(kind, numbers[0] * numbers[1] + numbers[2])
        base = name.removesuffix("f") if name != "f" and name.removesuffix("f") in _FUNCTIONS else name
        self.operation(_KINDS.get(base, base), kind)
        try:
            return Value(kind, float(_FUNCTIONS[base](numbers[0])))
        except (ValueError, OverflowError) as error:
            raise UndefinedError(str(error)) from None


def checked(number, kind):
    """Return a number as its type holds it; signed integers must not overflow."""
    if kind.is_float:
        return float(number)
    found = converted(number, kind)
    if found != number and not kind.name.startswith("u"):
        msg = "a signed integer overflows"
        raise UndefinedError(msg)
    return found


def computed(sign, one, two, *, whole):
    """Return a sum, product and the like of two numbers."""
    if sign in {"/", "%"}:
        if two == 0:
            msg = "a division by zero"
            raise UndefinedError(msg)
        if not whole:
            return one / two
        quotient = abs(one) // abs(two) * (1 if (one < 0) == (two < 0) else -1)
        return quotient if sign == "/" else one - quotient * two
    found = {
        "+": lambda: one + two, "-": lambda: one - two, "*": lambda: one * two, "&": lambda: one & two,
        "|": lambda: one | two, "^": lambda: one ^ two,
    }[sign]()  # fmt: skip
    if not whole and abs(found) > 1e30:
        msg = "a float overflows"
        raise UndefinedError(msg)
    return found


def _lanes(name, count):
    """Return which elements of a vector a component names."""
    half = (4 if count == 3 else count) // 2
    if name in {"lo", "hi", "even", "odd"}:
        return {"lo": range(half), "hi": range(half, 2 * half), "even": range(0, count, 2), "odd": range(1, count, 2)}[
            name
        ]
    if name[0] in "sS":
        return tuple(int(each, 16) for each in name[1:])
    return tuple(_LANES[each] for each in name)
