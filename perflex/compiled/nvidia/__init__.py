"""Machine code for NVIDIA's GPUs, made and read without one: compiler, container, disassembly, executions."""
