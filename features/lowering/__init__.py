"""What front ends share: places in a schedule, C's arithmetic types, and vectors."""
