"""What data volumes say: the limiter, series over domain sizes, comparison with measured volumes."""
