"""Kernels as trees of lines and blocks, that are written as texts, and made smaller while something fails."""

import re
from dataclasses import dataclass, field, replace

from oracles.c_text.comparing import Text


@dataclass
class Block:
    """What stands in braces behind a head; `tail` ends it."""

    head: str
    body: list
    tail: str = "}"


@dataclass
class Program:
    """A kernel that can be written."""

    cuda: bool
    local: tuple
    groups: tuple
    sizes: dict
    seed: int
    prelude: list
    body: list
    stated: dict = field(default_factory=dict)

    def text(self):
        """Return it as a text with its launch."""
        glob = "" if self.cuda else "__global "
        arrays = [
            f"{glob}const float *x", f"{glob}float *y", f"{glob}float *z", f"{glob}const int *idx",
            f"{glob}const float *u", f"{glob}F4 *v", f"{glob}F3 *t", f"{glob}struct P *p", f"{glob}double *d",
            f"{glob}unsigned char *c", f"{glob}struct Q *b",
        ]  # fmt: skip
        body = "\n".join(_lines(self.body, 1))
        prelude = "\n".join(self.prelude)
        used = [each for each in arrays if _has(body + prelude, each.rpartition("*")[2])]
        arguments = ", ".join([*used, "float a", *(f"int {name}" for name in self.sizes)])
        start = 'extern "C" __global__ void' if self.cuda else "__kernel void"
        lines = [*self.prelude, f"{start} k({arguments}) {{", body, "}"]
        text = "\n".join(lines).replace("F4", "float4").replace("F3", "float3") + "\n"
        for word in ("struct P", "struct Q"):
            text = text if f"{word} {{" in text else text.replace(f"{word} *", "float *")
        stated = {name: extent for name, extent in self.stated.items() if _has(text, f"*{name}")}
        return Text(text, self.cuda, self.local, self.groups, self.sizes, stated, seed=self.seed)


def _has(text, name):
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _lines(body, depth):
    for each in body:
        if isinstance(each, Block):
            yield "  " * depth + each.head
            yield from _lines(each.body, depth + 1)
            yield "  " * depth + each.tail
        else:
            yield "  " * depth + each


def smaller(program):
    """Yield the program without one statement each, or with one block's content instead of the block."""
    for place in range(len(program.prelude)):
        yield replace(program, prelude=[*program.prelude[:place], *program.prelude[place + 1 :]])
    for body in _smaller(program.body):
        yield replace(program, body=body)


def _smaller(body):
    for place, each in enumerate(body):
        before, after = body[:place], body[place + 1 :]
        yield [*before, *after]
        if isinstance(each, Block):
            yield [*before, *each.body, *after]
            for inner in _smaller(each.body):
                yield [*before, replace(each, body=inner), *after]


def minimised(program, fails):
    """Return the smallest program that still fails, as far as dropping statements goes."""

    def still(text):
        try:
            return fails(text)
        except (LookupError, TypeError, ValueError, AttributeError, SyntaxError):
            return False  # What it uses was dropped

    while (found := next((each for each in smaller(program) if still(each.text())), None)) is not None:
        program = found
    return program
