"""A parser of small kernels in OpenCL C and CUDA C: text to nested tuples, without any library.

Expressions are ``(word, ...)``; types ``("base", name, arguments)``, ``("ptr", type)``, ``("ref", type)`` and
``("arr", type, extent)``. What is not in the subset raises `SyntaxError`.
"""

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"(?P<number>0[xX][0-9a-fA-F]+[uUlL]*|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[fFuUlLhH]*)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<text>\"[^\"]*\")"
    r"|(?P<sign><<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|::|[-+*/%&|^~!<>=?:;,.(){}\[\]])"
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SCALARS = {
    "void", "bool", "char", "short", "int", "long", "unsigned", "signed", "float", "double", "uchar", "ushort", "uint",
    "ulong", "size_t", "auto", "int32_t", "uint32_t", "uint8_t", "int64_t",
}  # fmt: skip
_VECTORS = {f"{name}{n}" for name in ("float", "int", "uint", "uchar", "double") for n in (2, 3, 4, 8)}
_SPACES = {
    "__global": "global", "global": "global", "__local": "local", "local": "local", "__constant": "constant",
    "__shared__": "local", "__constant__": "constant", "__device__": "global", "__private": "private",
}  # fmt: skip
_IGNORED = {
    "const", "volatile", "restrict", "__restrict__", "__restrict", "static", "inline", "register", "__forceinline__",
    "__kernel", "kernel", "__global__", "extern", "constexpr", "struct", "typename", "mutable", "__host__", "enum",
}  # fmt: skip
_LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
           ("*", "/", "%"))  # fmt: skip
_ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}


@dataclass
class Function:
    """A function: parameters as (type, name, space), the names of template parameters and its body."""

    name: str
    result: tuple
    parameters: list
    body: tuple | None
    templates: list = field(default_factory=list)


@dataclass
class Unit:
    """What stands in a file."""

    functions: dict = field(default_factory=dict)  # Lists of overloads, by name
    structs: dict = field(default_factory=dict)  # (fields, methods), by name
    typedefs: dict = field(default_factory=dict)
    variables: list = field(default_factory=list)  # Declarations
    enumerators: dict = field(default_factory=dict)  # Expressions


def tokens_of(text):
    """Return the tokens of a text behind its preprocessor."""
    macros, tokens, active = {}, [], [True]
    for line in _COMMENT.sub(" ", text.replace("\\\n", " ")).split("\n"):
        found = re.match(r"\s*#\s*(\w+)\s*(.*)", line)
        if found is None:
            if all(active):
                tokens += _expanded([match[0] for match in _TOKEN.finditer(line)], macros)
            continue
        word, rest = found.groups()
        if word in {"if", "ifdef", "ifndef"}:
            holds = rest.strip() in macros if word != "if" else rest.strip() not in {"0", "false"}
            active.append(holds != (word == "ifndef"))
        elif word == "else":
            active[-1] = not active[-1]
        elif word == "endif":
            active.pop()
        elif word == "define" and all(active):
            name, parameters, body = re.match(r"(\w+)(\([^)]*\))?\s*(.*)", rest).groups()
            names = None if parameters is None else [each.strip() for each in parameters[1:-1].split(",")]
            macros[name] = names, [match[0] for match in _TOKEN.finditer(body)]
    return tokens


def _expanded(tokens, macros, hidden=frozenset()):
    found, place = [], 0
    while place < len(tokens):
        token = tokens[place]
        place += 1
        names, body = macros.get(token, (None, None))
        if body is None or token in hidden or (names is not None and tokens[place : place + 1] != ["("]):
            found.append(token)
            continue
        if names is not None:
            arguments, depth, place = [[]], 1, place + 1
            while depth:
                depth += {"(": 1, ")": -1}.get(tokens[place], 0)
                if tokens[place] == "," and depth == 1:
                    arguments.append([])
                elif depth:
                    arguments[-1].append(tokens[place])
                place += 1
            given = dict(zip(names, (_expanded(each, macros, hidden) for each in arguments), strict=False))
            body = [part for each in body for part in given.get(each, [each])]
        found += _expanded(body, macros, hidden | {token})
    return found


class Parser:
    """Parses one file."""

    def __init__(self, text):
        self.tokens, self.at, self.unit = [*tokens_of(text), ""], 0, Unit()
        self.types = {*_SCALARS, *_VECTORS}
        self.template_names = set()

    # Tokens

    @property
    def token(self):
        return self.tokens[self.at]

    def sees(self, *wanted):
        return self.token in wanted

    def take(self, *wanted):
        """Return the next token, and go on if it is one of those wanted."""
        token = self.token
        if wanted and token not in wanted:
            return None
        self.at += 1
        return token

    def need(self, wanted):
        if not self.take(wanted):
            msg = f"{wanted!r} expected at {' '.join(self.tokens[max(self.at - 8, 0) : self.at + 4])!r}"
            raise SyntaxError(msg)

    def listed(self, close, parse):
        """Return what stands between commas up to a closing token."""
        found = []
        while not self.take(close):
            found.append(parse())
            self.take(",")
        return found

    # Types and declarations

    def starts_type(self):
        return any(self.token in known for known in (self.types, _SPACES, _IGNORED))

    def specifier(self):
        """Return a type without what belongs to the name, and the address space."""
        space, words = "private", []
        while True:
            if self.sees("__attribute__", "__launch_bounds__"):
                self.take()
                self.skip_parentheses()
            elif self.token in _SPACES:
                space = _SPACES[self.take()]
            elif self.token in _IGNORED or self.token.startswith('"'):
                self.take()
            elif self.token in self.types and (not words or (self.token in _SCALARS and words[0] in _SCALARS)):
                words.append(self.take())
            else:
                break
        arguments = self.template_arguments() if self.sees("<") and words else ()
        return ("base", " ".join(words), arguments), space

    def skip_parentheses(self):
        self.need("(")
        depth = 1
        while depth:
            depth += {"(": 1, ")": -1}.get(self.take(), 0)

    def template_arguments(self):
        self.need("<")
        found = []
        while not self.take(">"):
            found.append(self.type_name() if self.starts_type() else self.binary(8))
            self.take(",")
        return tuple(found)

    def pointers(self, kind):
        words = {"*": "ptr", "&": "ref"}
        while (sign := self.take(*words, "const", "restrict", "__restrict__", "volatile", "__restrict")) is not None:
            kind = (words[sign], kind) if sign in words else kind
        return kind

    def type_name(self):
        return self.pointers(self.specifier()[0])

    def extents(self, kind):
        found = []
        while self.take("["):
            found.append(None if self.sees("]") else self.expression())
            self.need("]")
        for extent in reversed(found):
            kind = ("arr", kind, extent)
        return kind

    def parameter(self):
        kind, space = self.specifier()
        kind = self.pointers(kind)
        name = self.take() if re.match(r"[A-Za-z_]", self.token) else ""
        kind = self.extents(kind)
        return (("ptr", kind[1]) if kind[0] == "arr" else kind), name, space

    def declaration(self, base=None):
        """Return ``("decl", [(type, name, space, initial value)])``."""
        kind, space = base or self.specifier()
        found = []
        while True:
            full = self.pointers(kind)
            name = self.take()
            full = self.extents(full)
            initial = None
            if self.take("="):
                initial = self.assignment()
            elif self.take("("):
                initial = self.expression()
                self.need(")")
            found.append((full, name, space, initial))
            if not self.take(","):
                break
        self.need(";")
        return ("decl", found)

    def parsed(self):
        """Return the file's content."""
        while self.token:
            if self.take(";"):
                continue
            templates = self.templates() if self.sees("template") else []
            self.top_level(templates)
            self.types -= set(templates)
        return self.unit

    def templates(self):
        self.take("template")
        self.need("<")
        names = []
        while not self.take(">"):
            if self.take("typename", "class"):
                names.append(self.take())
                self.types.add(names[-1])
            else:
                self.specifier()
                names.append(self.take())
            self.take(",")
        return names

    def top_level(self, templates):
        if self.take("typedef"):
            if self.sees("struct") and "{" in self.tokens[self.at : self.at + 3]:
                place = self.at
                while self.tokens[place] != "}" or self.tokens[place + 2] != ";":
                    place += 1
                self.structure(self.tokens[place + 1], templates)
                self.take()
            else:
                kind = self.type_name()
                self.types.add(self.token)
                self.unit.typedefs[self.take()] = kind
            self.need(";")
        elif self.sees("enum"):
            self.enumeration()
        elif self.sees("struct") and self.tokens[self.at + 2] == "{":
            self.structure(self.tokens[self.at + 1], templates)
            self.need(";")
        else:
            self.function_or_variable(templates)

    def enumeration(self):
        self.take("enum")
        if not self.sees("{"):
            self.types.add(self.token)
            self.unit.typedefs[self.take()] = ("base", "int", ())
        self.need("{")
        before = None
        while not self.take("}"):
            name = self.take()
            one = ("num", "int32", 1)
            value = self.assignment() if self.take("=") else None
            before = value or (("num", "int32", 0) if before is None else ("bin", "+", before, one))
            self.unit.enumerators[name] = before
            self.take(",")
        self.need(";")

    def structure(self, name, templates):
        self.take("struct")
        self.take(name)
        self.types.add(name)
        self.need("{")
        fields, methods = [], {}
        while not self.take("}"):
            kind, space = self.specifier()
            full = self.pointers(kind)
            word = self.take()
            if word == "operator":
                word += self.take()
                word += self.take(")") or "" if word == "operator(" else ""
            if self.take("("):
                methods[word] = self.function(word, full, templates)
                continue
            self.at -= 1
            fields += [(label, each) for each, label, *_ in self.declaration((full, space))[1]]
        self.unit.structs[name] = fields, methods, templates

    def function(self, name, result, templates):
        parameters = self.listed(")", self.parameter)
        parameters = [] if parameters == [(("base", "void", ()), "", "private")] else parameters
        self.take("const")
        body = None if self.take(";") else self.statement()
        return Function(name, result, parameters, body, templates)

    def function_or_variable(self, templates):
        kind, space = self.specifier()
        place, full = self.at, self.pointers(kind)
        name = self.take()
        if name == "operator":
            name += self.take()
        if self.take("("):
            if templates:
                self.template_names.add(name)
            made = self.function(name, full, templates)
            if made.body is not None:
                self.unit.functions.setdefault(name, []).append(made)
            return
        self.at = place
        self.unit.variables += self.declaration((kind, space))[1]

    # Statements

    def statement(self):
        token = self.token
        reader = {
            **dict.fromkeys(("if", "while", "switch"), self.tested), **dict.fromkeys(("for", "do"), self.loop),
            **dict.fromkeys(("case", "default"), self.case),
            **dict.fromkeys(("break", "continue", "return"), self.leaving),
        }.get(token)  # fmt: skip
        if reader is not None:
            return reader(self.take())
        if self.take("{"):
            return ("block", self.listed("}", self.statement))
        if self.take(";"):
            return ("block", [])
        return self.first_part()

    def tested(self, word):
        self.need("(")
        test = self.expression()
        self.need(")")
        body = self.statement()
        if word == "if":
            return ("if", test, body, self.statement() if self.take("else") else None)
        return (word, test, body)

    def case(self, word):
        value = self.conditional() if word == "case" else None
        self.need(":")
        return ("case", value)

    def leaving(self, word):
        value = None if self.sees(";") else self.expression()
        self.need(";")
        return (word, value)

    def loop(self, word):
        if word == "do":
            body = self.statement()
            self.need("while")
            self.need("(")
            test = self.expression()
            self.need(")")
            self.need(";")
            return ("do", test, body)
        self.need("(")
        first = ("block", []) if self.take(";") else self.first_part()
        test = None if self.sees(";") else self.expression()
        self.need(";")
        step = None if self.sees(")") else self.expression()
        self.need(")")
        return ("for", first, test, step, self.statement())

    def first_part(self):
        if self.starts_type() and self.tokens[self.at + 1] not in {"(", "{"}:
            return self.declaration()
        return ("expr", self.expression(), self.need(";"))[:2]

    # Expressions

    def expression(self):
        found = self.assignment()
        while self.take(","):
            found = ("comma", found, self.assignment())
        return found

    def assignment(self):
        if self.take("{"):
            return ("list", self.listed("}", self.assignment))
        found = self.conditional()
        if (sign := self.take(*_ASSIGNMENTS)) is not None:
            return ("assign", sign[:-1], found, self.assignment())
        return found

    def conditional(self):
        found = self.binary(0)
        if self.take("?"):
            then = self.expression()
            self.need(":")
            return ("cond", found, then, self.assignment())
        return found

    def binary(self, level):
        if level == len(_LEVELS):
            return self.unary()
        found = self.binary(level + 1)
        while (sign := self.take(*_LEVELS[level])) is not None:
            found = ("bin", sign, found, self.binary(level + 1))
        return found

    def unary(self):
        if (sign := self.take("-", "+", "!", "~", "*", "&", "++", "--")) is not None:
            return ("un", sign, self.unary())
        if self.take("sizeof"):
            self.need("(")
            found = ("sizeof", self.type_name() if self.starts_type() else self.expression())
            self.need(")")
            return found
        if self.sees("("):
            place = self.at
            self.take()
            if self.starts_type():
                kind = self.type_name()
                self.need(")")
                if kind[1] in _VECTORS and self.take("("):
                    return self.postfix(("make", kind, self.listed(")", self.assignment)))
                if self.sees("{"):
                    return self.postfix(("make", kind, [self.assignment()]))
                return ("cast", kind, self.unary())
            self.at = place
        return self.postfix(self.primary())

    def primary(self):
        if self.take("("):
            found = self.expression()
            self.need(")")
        elif self.take("["):
            while not self.take("]"):
                self.take()
            parameters = self.listed(")", self.parameter) if self.take("(") else []
            found = ("lambda", Function("", ("base", "auto", ()), parameters, self.statement()))
        elif self.take("static_cast", "reinterpret_cast"):
            (kind,) = self.template_arguments()
            self.need("(")
            found = ("cast", kind, self.expression())
            self.need(")")
        elif self.starts_type():
            kind, opened = self.specifier()[0], self.take("(", "{")
            found = ("make", kind, self.listed({"(": ")", "{": "}"}[opened], self.assignment))
        else:
            found = self.word(self.take())
        return found

    def word(self, token):
        if re.match(r"[\d.]", token):
            return _number(token)
        if token in {"true", "false"}:
            return ("num", "bool", int(token == "true"))  # noqa: S105
        given = token in self.template_names and self.sees("<")
        return ("name", token, self.template_arguments() if given else None)

    def postfix(self, found):
        while True:
            if self.take("["):
                found = ("index", found, self.expression())
                self.need("]")
            elif self.take("("):
                found = ("call", found, self.listed(")", self.assignment))
            elif self.take("."):
                found = ("member", found, self.take())
            elif self.take("->"):
                found = ("member", ("un", "*", found), self.take())
            elif (sign := self.take("++", "--")) is not None:
                found = ("post", sign, found)
            else:
                return found


def _number(token):
    word = token.lower()
    if word.startswith("0x"):
        digits = word.rstrip("ul")
        return ("num", _integer_type(word[len(digits) :], int(digits, 16)), int(digits, 16))
    digits = word.rstrip("fulh")
    if "." in digits or "e" in digits:
        return ("num", "float32" if word.endswith("f") else "float64", float(digits))
    return ("num", _integer_type(word[len(digits) :], int(digits)), int(digits))


def _integer_type(suffix, value):
    wide = "l" in suffix or value >= 2**32 or (value >= 2**31 and "u" not in suffix)
    return f"{'u' if 'u' in suffix else ''}int{64 if wide else 32}"
