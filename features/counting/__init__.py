"""How accesses and operations are counted: quasi-polynomials, strides, footprints, certainty."""
