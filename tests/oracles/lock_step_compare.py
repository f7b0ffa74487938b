"""Counts of a kernel, and the instances that its Scop has, against what its printed code executes in lock step."""

from oracles.lock_step import execute
from oracles.transactions import accessed
from perflex.features import counts_of, extract_scop, kernel_feature_values

SUB_GROUP = 32


def differences(drawn):
    """Return what differs, in words: operations, loads, strides and sectors."""
    done = execute(drawn.kernel, drawn.sizes, drawn.groups, SUB_GROUP)
    scop = extract_scop(drawn.kernel)
    counts = counts_of(scop)
    expected = {}
    for kind in ("add", "madd"):
        expected[f"f_op_float32_{kind}"] = done.operations[kind]
    if drawn.plain:
        expected["f_txn_global"] = sum(done.sectors.values())
    found = kernel_feature_values(list(expected), drawn.kernel, drawn.sizes, machine="V100")
    wrong = [f"{name}: {found[name]} for {want}" for name, want in expected.items() if found[name] != want]
    sectors, _ = accessed(scop, drawn.sizes)
    for access in counts.accesses:
        name = access.array.name
        if access.array.space != "global":
            continue
        loads = counts.instances(access.statement, SUB_GROUP).evaluate(drawn.sizes)
        if access.access.direction == "load" and loads != done.loads[name]:
            wrong.append(f"loads of {name}: {loads} for {done.loads[name]}")
        stride = access.local_strides[0]
        if stride is not None and not done.steps[name] <= {int(stride.evaluate(drawn.sizes))}:
            wrong.append(f"stride of {name}: {stride} for {sorted(done.steps[name])}")
    names = sorted(sectors.keys() | done.sectors.keys())
    differing = [name for name in names if sectors[name] != done.sectors[name]]
    return wrong + [f"sectors of {name}: {sectors[name]} for {done.sectors[name]}" for name in differing]
