"""Layers, which are made of operators: what each computes, its inference and case sets."""
