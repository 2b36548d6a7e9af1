"""State space models: descriptors, inference, references, error terms and case sets."""
