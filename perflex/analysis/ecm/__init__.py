"""The ECM model of a machine: contributions of caches and instructions, composed in a model string; its picture."""
