"""The activations: descriptors, inference, references, error terms and case sets."""
