"""The function of a kernel that is named, of a template its instance, and whether clang understood all that it uses."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

from perflex.errors import UnsupportedKernelError
from perflex.features.from_source.host_code import HostCode
from perflex.features.from_source.parsing import (
    CUDA_HEADERS,
    TOOLKIT,
    Language,
    Node,
    declares,
    kind_of,
    language_of,
    numbers_of,
    parsed,
)

# What refers to a declaration.
_REFERRING = {"DECL_REF_EXPR", "MEMBER_REF_EXPR", "CALL_EXPR", "TYPE_REF", "TEMPLATE_REF", "MEMBER_REF"}
_TYPED = {"VAR_DECL", "PARM_DECL", "FIELD_DECL"}
_FUNCTIONS = {"FUNCTION_DECL", "FUNCTION_TEMPLATE", "CXX_METHOD", "CONSTRUCTOR", "DESTRUCTOR", "CONVERSION_FUNCTION"}
# Clang leaves out what it does not understand in them, to their end.
_CUT_SHORT = {"VAR_DECL", "FIELD_DECL", "TYPEDEF_DECL", "TYPE_ALIAS_DECL"}
_CLASSES = {"STRUCT_DECL", "CLASS_DECL", "UNION_DECL", "CLASS_TEMPLATE", "ENUM_DECL"}
# Headers that declare nothing for devices, or what perflex declares.
_OF_HOSTS = re.compile(r"(std\w+|math|float|string|assert|time|limits|errno|cuda(_runtime(_api)?)?|sys/\w+)\.h|\w+")
_REMEDY = (
    "state macros that the host program sets with -D NAME=VALUE (defines=...), and folders of headers with -I FOLDER "
    "(folders=...)"
)
# Directives that leave out text, without comments, and definitions of macros.
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b((?:(?!/[/*]).)*)", re.MULTILINE)
_QUOTED = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
_DEFINED = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_MISSING = re.compile(r"'(.*)' file not found")
# A function of the host that names an instance of a template, behind the source's last line.
_USER = "__perflex_user"
_INSTANCE = f"\n{{}}static void {_USER}() {{{{ (void)&{{}}<{{}}>; }}}}{{}}\n"
# What clang calls wrong without the toolkit's headers, and counting does not need.
_HARMLESS = re.compile(r"reference to __host__ (variable|function)")


@lru_cache(maxsize=16)
def _macros(source: str, given: tuple[tuple[str, str], ...]) -> dict[str, str]:
    macros = HostCode(source, dict(given)).macros
    return {name: text for name, (words, text) in macros.items() if words is None}


@dataclass(frozen=True)
class ParsedKernel:
    """A kernel's function in its parsed file; `unit` is clang's, `defines` are the macros that were given."""

    path: Path
    name: str
    language: Language
    source: str
    function: Node
    unit: Any
    root: Node
    defines: Mapping[str, Any]

    def content(self, file: str) -> bytes:
        """Return what a file holds, of the kernel's own its source."""
        return self.source.encode() if file == str(self.path) else _read(file)

    def text(self, line: int, file: str = "") -> str:
        """Return what stands in a line of the kernel's file or another, without what surrounds it."""
        lines = _lines(self.source if file in {"", str(self.path)} else _read(file))
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    @property
    def macros(self) -> dict[str, str]:
        """Texts of macros without parameters that have one meaning in the file, or were given."""
        return _macros(self.source, tuple((name, str(value)) for name, value in self.defines.items()))

    def included(self) -> list[str]:
        """Return the paths of headers."""
        return list(dict.fromkeys(each.include.name for each in self.unit.get_includes()))


def parsed_kernel(
    path: Path,
    source: str,
    name: str,
    arguments: Sequence[str],
    defines: Mapping[str, Any],
    folders: Sequence[str] = (),
    language: Language | None = None,
) -> ParsedKernel:
    """Return a kernel's function, parsed with macros; headers are looked for beside `path` and in `folders`.

    Of a template it is the instance with the given arguments, which clang makes: nothing in it depends on parameters.
    """
    language = language or language_of(path, source)
    # Where the kernel is in no namespace, this names its instance already.
    tried = _INSTANCE.format("", name, ", ".join(arguments), "") if arguments else ""
    unit, root = parsed(path, source + tried, defines, folders, language)
    found = _kernels(root, name)
    if tried and (not found or found[0].qualified != name):
        tried = ""
        unit, root = parsed(path, source, defines, folders, language)
        found = _kernels(root, name)
    if not found:
        raise _no_kernel(path, name, root, unit)
    templates = [each for each in found if each.kind == "FUNCTION_TEMPLATE"]
    # Specialisations are reached through their template.
    plain = [each for each in found if each.kind == "FUNCTION_DECL" and each.template is None]
    if arguments or (templates and not plain):
        if (instance := _instance_of(found[0], arguments)) != tried:
            unit, root = parsed(path, source + instance, defines, folders, language)
        function = _instance(root)
        wrong = [each.spelling for each in _errors(unit) if _is_behind(each, path, source)]
        if function is None or wrong:
            # Of a template that clang does not understand there are no instances.
            for each in templates:
                _require_sound(ParsedKernel(path, name, language, source, each, unit, root, defines))
            raise _no_instance(path, found[0], arguments, wrong)
    elif len(plain) > 1:
        lines = ", ".join(str(each.location.line) for each in plain)
        msg = f"{path.name} has {len(plain)} kernels {name!r}, in lines {lines}; rename all but one"
        raise UnsupportedKernelError(msg, kernel=name)
    else:
        function = plain[0]
    kernel = ParsedKernel(path, name, language, source, function, unit, root, defines)
    _require_sound(kernel)
    _require_for_this_gpu(kernel)
    return kernel


def _require_for_this_gpu(kernel: ParsedKernel) -> None:
    """Stop where nothing of a kernel is for the compute capability that is taken where none is named."""
    extent = kernel.function.body.extent
    text = kernel.content(extent.start.file.name)[extent.start.offset : extent.end.offset]
    is_taken = kernel.language == "cuda" and "__CUDA_ARCH__" not in kernel.defines
    if is_taken and not kernel.function.body.children and b"__CUDA_ARCH__" in text:
        cause = "does nothing on compute capability 7.0, which is taken where no GPU is named"
        remedy = "name the GPU with --machine, or its capability with -D __CUDA_ARCH__=900 (defines=...)"
        msg = f"{kernel.path.name}: kernel {kernel.name!r} {cause}; {remedy}"
        raise UnsupportedKernelError(msg, kernel=kernel.name)


def _kernels(root: Node, name: str) -> list[Node]:
    """Return the kernels of a name that have bodies, templates first."""
    named = [each for each in declared_functions(root) if each.spelling == name and each.body is not None]
    found = [each for each in named if each.is_kernel]
    return sorted(found, key=lambda each: each.kind != "FUNCTION_TEMPLATE")


def _no_kernel(path: Path, name: str, root: Node, unit: Any) -> UnsupportedKernelError:
    named = [each for each in functions(root) if each.spelling == name]
    errors = [each.spelling for each in _errors(unit) if each.location.file and not is_ours(each.location.file.name)]
    there = ", ".join(dict.fromkeys(each.spelling for each in functions(root) if each.is_kernel)) or "none"
    first = f"; its first error: {errors[0]}" if errors else ""
    other = f" ({name!r} in line {named[0].location.line} is a function of host or device)" if named else ""
    return UnsupportedKernelError(f"{path.name} has no kernel {name!r}{other}; it has {there}{first}", kernel=name)


def _instance_of(kernel: Node, arguments: Sequence[str]) -> str:
    """Return a line that names a template's instance where the template is declared: so are its arguments read."""
    *around, name = kernel.qualified.split("::")
    wanted = [each for each in kernel.children if each.kind.startswith("TEMPLATE_")]
    given = list(arguments)
    for at, (parameter, argument) in enumerate(zip(wanted, arguments, strict=False)):
        kind = parameter.type.get_canonical()
        # Profilers write the numbers of enumerators.
        if kind.kind.name == "ENUM" and re.fullmatch(r"-?\d+", argument):
            given[at] = f"static_cast<{kind.spelling}>({argument})"
    opened = "".join(f"namespace {each} {{ " for each in around)
    return _INSTANCE.format(opened, name, ", ".join(given), " }" * len(around))


def _instance(root: Node) -> Node | None:
    """Return the instance that the last line of a source names; None if there is none."""
    user = next((each for each in reversed(list(declared_functions(root))) if each.spelling == _USER), None)
    named = [] if user is None else [each for each in user.preorder() if each.kind == "DECL_REF_EXPR"]
    function = next((each.referenced for each in named if each.referenced is not None), None)
    return None if function is None or function.body is None else cast("Node", function)


def _is_behind(wrong: Any, path: Path, source: str) -> bool:
    """Return whether an error is in what stands behind a file's source."""
    file = wrong.location.file
    return file is not None and file.name == str(path) and wrong.location.line > len(source.splitlines())


def _no_instance(path: Path, kernel: Node, arguments: Sequence[str], wrong: Sequence[str]) -> UnsupportedKernelError:
    name, parameters = kernel.spelling, ", ".join(kernel.template_parameters)
    why = (
        wrong[0]
        if wrong and "overloaded function" not in wrong[0]
        else "the kernel's declaration is not valid with them"
    )
    given = f"its arguments <{', '.join(arguments)}> do not fit ({why})"
    if kernel.kind == "FUNCTION_TEMPLATE":
        remedy = f"write {name}<{parameters}> with types and numbers that the file knows"
        cause = f"is a template of {parameters}; {given if arguments else 'no arguments are given'}; {remedy}"
    else:
        cause = "is no template; write its name alone"
    return UnsupportedKernelError(f"{path.name}: kernel {name!r} {cause}", kernel=name)


def kernels_in(
    path: Path, source: str, defines: Mapping[str, Any], folders: Sequence[str] = (), language: Language | None = None
) -> list[Node]:
    """Return the functions of a source that can be launched, templates included."""
    root = parsed(path, source, defines, folders, language)[1]
    return [function for function in functions(root) if function.is_kernel]


def required_work_group(
    path: Path,
    source: str,
    name: str,
    defines: Mapping[str, Any],
    folders: Sequence[str | Path],
    language: Language | None = None,
) -> list[Any] | None:
    """Return the work-group that a kernel's ``reqd_work_group_size`` states; None if it states none.

    An UnsupportedKernelError where there is no such kernel.
    """
    looked = list(map(str, folders))
    unit, root = parsed(path, source, defines, looked, language)
    if not _kernels(root, name):
        raise _no_kernel(path, name, root, unit)
    for function in kernels_in(path, source, defines, looked, language):
        for each in function.children if function.spelling == name else ():
            stated = re.match(r"(?:__)?reqd_work_group_size(?:__)? \((.*?)\)(?: \) \).*)?$", " ".join(each.words))
            if each.kind == "UNEXPOSED_ATTR" and stated:
                # Clang says what macros make of it.
                table = f"\n__constant int {_USER}[] = {{{stated[1]}}};\n"
                root = parsed(path, source + table, defines, looked, language)[1]
                initial = next(node for node in reversed(root.children) if node.spelling == _USER).operands[-1]
                return [extent.value for extent in initial.operands]
    return None


def functions(cursor: Node) -> Iterator[Node]:
    """Yield all functions that have bodies, templates included."""
    return (each for each in declared_functions(cursor) if each.body is not None)


def declared_functions(cursor: Node) -> Iterator[Node]:
    """Yield all functions outside classes that are declared, templates included."""
    for child in cursor.children:
        if child.kind in {"FUNCTION_DECL", "FUNCTION_TEMPLATE"}:
            yield child
        elif child.kind in {"NAMESPACE", "LINKAGE_SPEC", "UNEXPOSED_DECL"}:
            yield from declared_functions(child)


@lru_cache(maxsize=16)
def _read(file: str) -> bytes:
    return Path(file).read_bytes()


# Asked for at each access.
@lru_cache(maxsize=16)
def _lines(content: str | bytes) -> list[str]:
    return (content if isinstance(content, str) else content.decode("utf-8", "replace")).splitlines()


@cache
def is_ours(file: str) -> bool:
    """Return whether a header comes with perflex."""
    return CUDA_HEADERS.parent in Path(file).parents


def _errors(unit: Any) -> Iterator[Any]:
    """Yield what clang calls wrong, but for headers that are missing."""
    return (each for each in unit.diagnostics if each.severity >= 3 and not _MISSING.match(each.spelling))


def _require_sound(kernel: ParsedKernel) -> None:
    """Stop where something that the kernel uses has errors: clang leaves out what it does not understand."""
    places: dict[str, list[tuple[int, Any]]] = {}
    for each in _errors(kernel.unit):
        if each.location.file is not None and not _HARMLESS.search(each.spelling):
            places.setdefault(each.location.file.name, []).append((each.location.offset, each))
    for found in places.values():
        found.sort(key=itemgetter(0))
    for declared in _used(kernel.function, ours=any(map(is_ours, places))) if places else ():
        if (wrong := _first_within(kernel, declared, places)) is not None:
            raise _misunderstood(kernel, wrong)
    _require_known_macros(kernel)


def _missing_headers(kernel: ParsedKernel) -> list[str]:
    """Return the headers that are not found."""
    return [found[1] for each in kernel.unit.diagnostics if (found := _MISSING.match(each.spelling))]


def _require_known_macros(kernel: ParsedKernel) -> None:
    """Stop where a header that is missing may say what is left out of what the kernel uses."""
    missing = list(filter(is_of_program, _missing_headers(kernel)))
    texts = [kernel.source.encode(), *(_read(name) for name in kernel.included() if missing and Path(name).is_file())]
    # In angle brackets stand those of systems.
    quoted = {name.decode() for text in texts for name in _QUOTED.findall(text)} if missing else set()
    missing = [name for name in missing if name in quoted]
    if not missing:
        return
    known = {name.decode() for text in texts for name in _DEFINED.findall(text)} | set(kernel.defines)
    for declared in _used(kernel.function, ours=False):
        extent = declared.extent
        text = kernel.content(extent.start.file.name)[extent.start.offset : extent.end.offset].decode(
            "utf-8", "replace"
        )
        for found in _CONDITION.finditer(text):
            unknown = [name for name in re.findall(r"(?<!\w)[A-Za-z]\w*", found[1]) if name not in {*known, "defined"}]
            if unknown:
                line = extent.start.line + text.count("\n", 0, found.start(1))
                cause = f"whether macro {unknown[0]!r} is defined is not known ({', '.join(missing[:3])}: not found)"
                msg = f"{Path(extent.start.file.name).name}:{line}: {cause}; {_REMEDY}"
                raise UnsupportedKernelError(msg, kernel=kernel.name, line=line)


def is_of_program(header: str) -> bool:
    """Return whether a header is neither one of the host's nor one of CUDA's toolkit."""
    return not _OF_HOSTS.fullmatch(header) and not any(map(header.startswith, TOOLKIT))


def _misunderstood(kernel: ParsedKernel, wrong: Any) -> UnsupportedKernelError:
    headers = _missing_headers(kernel)
    named = [name for name in headers if declares(name, re.findall(r"\w+", wrong.spelling))]
    missing = named or [name for name in headers if not _OF_HOSTS.fullmatch(name)][:3]
    cause = wrong.spelling + (f" ({', '.join(missing)}: not found)" if missing else "")
    line = wrong.location.line
    msg = f"{Path(wrong.location.file.name).name}:{line}: {cause}; {_REMEDY}"
    return UnsupportedKernelError(msg, kernel=kernel.name, line=line)


def _first_within(kernel: ParsedKernel, declared: Node, places: Mapping[str, list[tuple[int, Any]]]) -> Any:
    """Return the first error inside a declaration, of a class without those of its functions; None if there is none."""
    extent = declared.extent
    file, end = extent.start.file.name, extent.end.offset
    if file not in places:
        return None
    if declared.kind in _CUT_SHORT:
        end = kernel.content(file).find(b";", end)
    first = bisect_left(places[file], extent.start.offset, key=itemgetter(0))
    inside = list(takewhile(lambda pair: pair[0] <= end, places[file][first:]))
    inner = [each.extent for each in declared.children if each.kind in _FUNCTIONS] if inside else []
    for offset, wrong in inside:
        if not any(each.start.offset <= offset <= each.end.offset for each in inner):
            return wrong
    return None


def _used(function: Node, *, ours: bool) -> Iterator[Node]:
    """Yield a function and what it uses, directly or not: functions, types, variables; of headers of `ours`, too."""
    pending, seen, kinds = [function], set[Hashable](), numbers_of(_TYPED | _REFERRING)
    # What many expressions refer to is looked at once: to ask for keys takes longer than to compare bytes.
    referred = set[bytes]()
    while pending:
        declared = pending.pop()
        if declared.key in seen:
            continue
        seen.add(declared.key)
        file, around = declared.location.file, declared.semantic_parent
        # What a function declares inside is looked at with it.
        inside = around is not None and around.kind in _FUNCTIONS and declared.kind in _TYPED
        if file is None or inside or (not ours and is_ours(file.name)):
            continue
        yield declared
        pending += [each for each in (declared.template, declared.definition) if each is not None]
        pending += [around] if around is not None and around.kind in _CLASSES else []
        is_class = declared.kind in _CLASSES
        for child in declared.children:
            if is_class and child.kind in _FUNCTIONS:
                continue
            for node in [*([child] if child.kind in _TYPED | _REFERRING else []), *child.below(kinds)]:
                if node.kind in _TYPED:
                    pending.append(_class_of(node.type))
                elif (found := node.referenced) is not None and bytes(found.cursor) not in referred:
                    referred.add(bytes(found.cursor))
                    pending.append(found)


def _class_of(declared: Any) -> Node:
    """Return where the class or enumeration is declared that a type is or leads to."""
    found = declared.get_canonical()
    while True:
        leads = "POINTER" in (kind := kind_of(found)) or "REFERENCE" in kind
        inner = found.get_pointee() if leads else found.get_array_element_type()
        if kind_of(inner) == "INVALID":
            break
        found = inner
    return Node(found.get_declaration())
