"""Sources that are damaged: they are described or refused in one line, and never end in another error."""

from __future__ import annotations

import random
import re

import pytest

from perflex.errors import PerflexError
from perflex.features import source_kernel
from support.source_samples import SAMPLES

_TOKENS = re.compile(r"\w+|[^\w\s]|\s+")


def mutated(source: str, chance: random.Random) -> str:
    """Return a source with a token deleted, doubled, swapped with its neighbour, or replaced."""
    tokens = _TOKENS.findall(source)
    place = chance.randrange(len(tokens) - 1)
    way = chance.randrange(4)
    if way == 0:
        del tokens[place]
    elif way == 1:
        tokens.insert(place, tokens[place])
    elif way == 2:
        tokens[place], tokens[place + 1] = tokens[place + 1], tokens[place]
    else:
        tokens[place] = chance.choice(["n", "x", "0", "-1", "*", "&", "(", "float4", "x[0]", "i", "goto", "1.5f", "&&"])
    return "".join(tokens)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_damaged_sources_are_refused_in_one_line(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    described, refused = 0, []
    for sample in SAMPLES.values():
        for _ in range(3 if seed == 0 else 40):
            source = mutated(sample.source, chance)
            kernel = source_kernel(source + "\n", "k", local=sample.local, groups=sample.groups)
            try:
                kernel.scop(sample.sizes)
                described += 1
            except PerflexError as error:
                refused.append(error.message)
    assert described
    assert refused
    assert not [message for message in refused if "\n" in message]
