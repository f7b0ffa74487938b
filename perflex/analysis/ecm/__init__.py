"""Composition of ECM contributions: single core, saturation, domains, as numbers and as model strings.

>>> compose(machine, in_core, {"l1": 6, "l2": 5, "l3": 8, "mem": 8.76})   # Eq. 6, in the machine's overlap hypothesis
>>> ecm_model(machine, cores=4, in_core="3 * f_thread_items")             # the same as a Model
"""
