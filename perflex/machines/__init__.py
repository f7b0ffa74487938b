"""Machines: hardware facts of devices, each with its unit and source, and what follows from them.

>>> machine = load_machine("A100-40GB")          # a shipped one, or a file of one's own
>>> machine.l2_bytes, machine.sources["l2_bytes"]
"""
