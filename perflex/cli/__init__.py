"""The command line. Each command has a module of its own with one function, registered in ``app``."""
