"""The instruction roofline: instructions, transactions, ceilings and walls (Ding and Williams, PMBS 2019)."""
