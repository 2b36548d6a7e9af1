"""Steps of optimizers: descriptors, inference, references, error terms and case sets."""
