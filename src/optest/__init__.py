"""optest finds out whether an operator implementation is right and, if not, what is wrong with it."""

__version__ = "0.1.0"
