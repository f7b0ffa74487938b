"""Sub-groups, work-items and memory transactions of a Scop, counted instance by instance."""

from collections import Counter

import numpy as np

from .points import elements, executions, instances

WARP = 32


def accessed(scop, sizes):
    """Return transactions of each array, and the sub-groups and work-items that execute accesses of each address space.

    Of global memory, transactions are sectors of 32 bytes; of local memory, accesses with their replays in 32 banks of
    4 bytes.
    """
    transactions = Counter()
    executed = {space: [0, 0] for space in ("global", "local", "private")}
    for statement in scop.statements:
        points = instances(statement, sizes)
        _, number = np.unique(executions(scop, statement, points, WARP), axis=0, return_inverse=True)
        number = number.ravel()
        for access in statement.accesses:
            array = scop.array(access.array)
            times = executed[array.space]
            times[0], times[1] = times[0] + len(np.unique(number)), times[1] + len(number)
            address = array.itemsize * elements(scop, access, sizes, points)
            if array.space == "global":
                transactions[array.name] += len(np.unique(np.stack([number, address // 32]), axis=1).T)
            elif array.space == "local":
                words = np.unique(np.stack([number, address // 4]), axis=1)
                (group, _), replays = np.unique(np.stack([words[0], words[1] % 32]), axis=1, return_counts=True)
                transactions[array.name] += int(sum(replays[group == one].max() for one in np.unique(group)))
    return transactions, executed
