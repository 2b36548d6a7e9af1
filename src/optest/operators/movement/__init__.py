"""The operators that move elements: descriptors, inference, references, error terms and case sets."""
