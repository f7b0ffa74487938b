"""The values of all features that a kernel has."""

from perflex import estimate_ecm, load_machine
from perflex.errors import PerflexError
from perflex.features import Target, parse_feature
from perflex.features.families import registry

TARGETS = (
    Target(sub_group_size=32, machine=load_machine("V100")),
    Target(sub_group_size=8, machine=load_machine("EPYC-7452")),
)


def everything(scop, sizes):
    """Yield the value of every feature that a kernel has."""
    examples = [example for family in registry._families for example in family.examples]
    for target in TARGETS:
        listed = (name for example in examples for name in parse_feature(example).inventory(scop))
        # Behind accesses stands what they are called in the kernel.
        found = dict.fromkeys(name.partition(" ")[0] for name in listed)
        chains = [f"{name}_after:{after}" for name in found if name.startswith("f_chain_") for after in (3, 40)]
        for name in (*found, *chains):
            try:
                value = parse_feature(name).value(scop, sizes, target)
            except PerflexError as error:
                value = type(error).__name__
            yield f"{target.sub_group_size} {name}", value


def caches(scop, sizes):
    """Yield what a CPU's caches load."""
    for lanes in (1, 8):
        try:
            volumes = estimate_ecm(scop, sizes, "clx", lanes=lanes)
        except PerflexError as error:
            yield f"ecm {lanes}", type(error).__name__
            continue
        for level in ("L1", "L2", "L3"):
            yield f"ecm {lanes} {level}", volumes.level(level).launch_load_bytes
