"""From a loopy kernel to a Scop: domains, accesses, operations, barriers."""
