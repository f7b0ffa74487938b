"""Functions that the source defines, walked through where they are called: helpers, methods, constructors, lambdas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from perflex.features.from_source.copies import replace
from perflex.features.from_source.expressions import Expressions
from perflex.features.from_source.layouts import bases_of, is_union
from perflex.features.from_source.parsing import Node, fields_of
from perflex.features.from_source.values import Aggregate, Closure, CType, Place, Value, held, unknown_of
from perflex.features.from_source.walk import RETURNED, Frame, Walk


class Inlining:
    """Walks through functions of the source."""

    def __init__(self, walk: Walk, expressions: Expressions, execute: Callable[[Node], None]) -> None:
        self._walk = walk
        self._expressions = expressions
        self._execute = execute

    def called(self, function: Node, arguments: Sequence[Node], owner: Place | None = None) -> Value:
        """Return what a function gives, of one that returns a reference the place; `owner` is a method's object."""
        return self._run(function, self._given(function, arguments), owner)

    def _run(self, function: Node, given: Sequence[Value], owner: Place | None = None) -> Value:
        walk = self._walk
        if any(frame.function == function.key for frame in walk.frames):
            raise walk.refuse(f"function {function.spelling!r} calls itself; write it as a loop")
        if function.kind == "CXX_METHOD" and function.is_virtual_method():
            raise walk.refuse(f"which {function.spelling!r} is called is not known: it is virtual; call a function")
        for parameter, each in zip(function.parameters, given, strict=True):
            walk.declare(parameter.key)
            walk.variables[parameter.key] = self._expressions.converted(each, walk.types.read(parameter.type))
        line, file, before = walk.line, walk.file, walk.active
        kind = walk.types.read(function.result_type)
        walk.frames.append(
            Frame(
                walk.guards, len(walk.loops), function=function.key, owner=owner, by_reference=kind.kind == "reference"
            )
        )
        if function.kind == "CONSTRUCTOR" and owner is not None:
            self._initialise(function, owner)
        self._execute(function.body)
        walk.rejoin(walk.frames.pop().exits)
        walk.active, walk.line, walk.file = before, line, file
        returned = walk.variables.pop(RETURNED, None)
        if returned is None or kind.kind == "reference":
            return returned or unknown_of(kind)
        return held(self._expressions.converted(returned, kind))

    def _given(self, function: Node, arguments: Sequence[Node]) -> list[Value]:
        """Return the values of a function's parameters, of references the places."""
        read, value, place = self._walk.types.read, self._expressions.value, self._expressions.places.place
        return [
            (place if read(parameter.type).kind == "reference" else value)(argument)
            for parameter, argument in zip(function.parameters, self._complete(function, arguments), strict=True)
        ]

    def _complete(self, function: Node, arguments: Sequence[Node]) -> list[Node]:
        """Return the arguments of a call with the defaults of those that are left out."""
        parameters = function.parameters
        given = list(arguments[: len(parameters)]) + [None] * (len(parameters) - len(arguments))
        if len(arguments) > len(parameters):
            raise self._walk.refuse(f"function {function.spelling!r} takes any number of arguments; write them out")
        complete = []
        for parameter, argument in zip(parameters, given, strict=True):
            # clang shows a default as an expression without place and parts.
            missing = argument is None or (argument.kind == "UNEXPOSED_EXPR" and not argument.location.line)
            default = parameter.operands[-1] if missing and parameter.operands else argument
            if default is None:
                raise self._walk.refuse(f"argument {parameter.spelling!r} of {function.spelling!r} is not given")
            complete.append(default)
        return complete

    # Objects

    def of_value(self, function: Node, arguments: Sequence[Node], owner: Place) -> Value:
        """Return what a method gives of an object that no variable holds."""
        place = self._object(owner.type, Aggregate() if owner.value is None else owner.value)
        result = self.called(function, arguments, place)
        self._walk.variables.pop(place.variable)
        return result

    def require_plain_end(self, kind: CType) -> None:
        """Stop where an object does something when it ends."""
        if kind.kind == "struct" and kind.declared is not None:
            owner = Node(kind.declared.get_declaration())
            members = owner.children or (owner.template.children if owner.template is not None else [])
            if any(each.kind == "DESTRUCTOR" and each.body is not None and each.body.children for each in members):
                raise self._walk.refuse(f"what {owner.spelling!r} does at its end is not read; call a function")

    def _object(self, kind: CType, value: Value) -> Place:
        self._walk.counters += 1
        place = Place(kind, variable=("object", self._walk.counters))
        self._walk.variables[place.variable] = value
        return place

    def constructed(self, constructor: Node, arguments: Sequence[Node], kind: CType, *, zeroed: bool) -> Value:
        """Return a new object, whose fields are zero before it is constructed, or were not set."""
        self.require_plain_end(kind)
        place = self._object(kind, self._expressions.initialisers.zero(kind) if zeroed else Aggregate())
        self._construct(constructor, arguments, place)
        return self._walk.variables.pop(place.variable)

    def begun(self, kind: CType) -> Value:
        """Return an object, or an array of some, that is declared without arguments."""
        place = self._object(kind, Aggregate())
        self._construct_unlisted(place)
        return self._walk.variables.pop(place.variable)

    def _construct(self, constructor: Node, arguments: Sequence[Node], place: Place) -> None:
        """Construct an object, or a base or field of one, where it is."""
        function = constructor.definition or constructor
        if function.body is not None:
            self.called(function, arguments, place)
        else:
            self._initialise(function, place)

    def _initialise(self, constructor: Node | None, owner: Place) -> None:
        """Construct bases and fields of a new object as a constructor's list says, and else as they are declared."""
        walk, children = self._walk, constructor.children if constructor is not None else []
        listed = {child.spelling: initial for child, initial in pairwise(children) if child.kind == "MEMBER_REF"}
        begun: set[str] = set()
        for before, initial in pairwise([None, *children]):
            if initial is not None and initial.is_expression and (before is None or before.kind != "MEMBER_REF"):
                if initial.kind != "CALL_EXPR" or initial.referenced is None:
                    name = owner.type.declared.spelling
                    raise walk.refuse(f"how a base of {name!r} is initialised is not read; give it a constructor")
                place = replace(owner, type=walk.types.read(initial.type))
                self._construct(initial.referenced, initial.arguments, place)
                if place.type == owner.type:  # Another constructor of the class does all.
                    return
                begun.add(_spelling(place.type))
        for base in bases_of(owner.type.declared):
            place = replace(owner, type=walk.types.read(base.type))
            if _spelling(place.type) not in begun:
                self._construct_unlisted(place)
        for field in map(Node, fields_of(owner.type.declared)):
            # Extents of arrays stand there, too.
            declared = field.operands[-1] if field.operands else None
            is_extent = declared is not None and "ARRAY" in field.type.kind.name and declared.kind != "INIT_LIST_EXPR"
            initial = listed.get(field.spelling) or (None if is_extent else declared)
            kind = walk.types.read(field.type)
            place = replace(owner, type=kind, steps=(*owner.steps, field.spelling))
            if field.is_bitfield():
                continue
            if initial is not None:
                value = self._expressions.converted(self._expressions.value(initial), kind)
                self._expressions.places.store(place, value)
            else:
                self._construct_unlisted(place)

    def _construct_unlisted(self, place: Place) -> None:
        """Construct a base or a field that no list names, or the elements of an array."""
        kind = place.type
        if kind.kind == "array" and kind.inner[0].kind == "struct" and kind.element is not None:
            for number in range(kind.extent or 0):
                self._construct_unlisted(replace(place, type=kind.element, steps=(*place.steps, number)))
        elif kind.kind == "struct" and kind.declared is not None and not is_union(kind.declared):
            owner = Node(kind.declared.get_declaration())
            members = owner.children or (owner.template.children if owner.template is not None else [])
            written = [each for each in members if each.kind == "CONSTRUCTOR"]
            default = [each for each in written if each.is_default_constructor()]
            if default and owner.template is not None:
                cause = f"which constructor of {owner.spelling!r} runs is not known"
                raise self._walk.refuse(f"{cause}; call it in the list of the constructor around it")
            if default:
                self._construct(default[0], (), place)
            elif not written:
                self._initialise(None, place)

    # Lambdas

    def closure(self, cursor: Node) -> Closure:
        """Return a lambda with what it captures."""
        words = cursor.words
        captures = words[1 : words.index("]")] if "]" in words else []
        named = {child.spelling: child.referenced.key for child in cursor.children if child.kind == "VARIABLE_REF"}
        if words[:1] != ["["] or "{" not in words or not named.keys() <= set(captures):
            raise self._walk.refuse("what a lambda captures stands in a macro; write it out")
        if "=" in captures[2:] or "mutable" in words[: words.index("{")] or "this" in captures:
            raise self._walk.refuse("a lambda that changes or computes what it captures is not read; write a function")
        by_reference = {key for name, key in named.items() if captures[captures.index(name) - 1 :][:1] == ["&"]}
        if not captures or (captures[0] == "&" and set(named.values()) <= by_reference):
            return Closure()
        if captures[0] == "&" and (len(captures) == 1 or captures[1] == ","):
            by_reference |= set(self._walk.variables) - set(named.values())
        return Closure(None, dict(self._walk.variables), frozenset(by_reference))

    def closure_called(self, closure: Closure, function: Node, arguments: Sequence[Node]) -> Value:
        """Return what a lambda gives: by value it captured what variables were when it was made."""
        walk = self._walk
        if closure.captured is None:
            return self.called(function, arguments)
        given, taken = self._given(function, arguments), closure.captured
        kept = {key: now for key, now in walk.variables.items() if key in taken and key not in closure.by_reference}
        walk.variables |= {key: taken[key] for key in kept}
        result = self._run(function, given)
        walk.variables |= kept
        return result


def _spelling(kind: CType) -> str:
    return str(kind.declared.spelling) if kind.declared is not None else ""
