"""Reading compiled code without running it: containers, machine code, control flow, cycles, executions of blocks."""
