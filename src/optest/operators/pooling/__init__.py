"""The poolings: descriptors, inference, references, error terms and case sets."""
