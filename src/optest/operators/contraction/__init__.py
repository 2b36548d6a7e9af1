"""The contractions: descriptors, inference, references, error terms and case sets."""
