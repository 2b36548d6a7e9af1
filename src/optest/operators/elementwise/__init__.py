"""The elementwise operators and conversion: descriptors, inference, references, error terms and case sets."""
