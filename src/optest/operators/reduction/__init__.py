"""The reductions: descriptors, inference, references, error terms and case sets."""
