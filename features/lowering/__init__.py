"""What front ends share: places of statements, flattened subscripts, C's arithmetic types, and vectors."""
