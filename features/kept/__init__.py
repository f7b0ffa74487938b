"""Scops and counts that are kept in the store between runs."""
