"""Repeated calls of one case in C under varied conditions, and the comparison of their outputs."""
