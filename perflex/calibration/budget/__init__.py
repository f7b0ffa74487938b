"""Calibrating within a budget of seconds: everything where that fits, else what tells most for its time."""
