"""Whether a machine is fit to measure on: what the system and short trials of its devices say, and what to do."""
