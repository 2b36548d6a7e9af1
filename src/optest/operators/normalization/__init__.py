"""The normalisations: descriptors, inference, references, error terms and case sets."""
