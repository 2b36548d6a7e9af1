"""Validation of whole models on backends: comparison of outputs, and search for the node that differs."""
