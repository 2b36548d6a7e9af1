"""Attention and its rotary positions: descriptors, inference, references, error terms and case sets."""
