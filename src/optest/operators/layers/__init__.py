"""Layers, composed of operators: descriptors, inference, compositions and case sets."""
