"""Quantization to integers and back: descriptors, inference, references, error terms and case sets."""
