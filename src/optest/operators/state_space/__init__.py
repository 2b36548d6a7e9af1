"""What state space models are made of: descriptors, inference, references, error terms and case sets."""
