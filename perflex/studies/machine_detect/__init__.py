"""Finding out what a CPU's machine file says: what the operating system reports, and what kernels measure."""
