"""The operators that index and order elements: descriptors, inference, references, error terms and case sets."""
