"""Runs beyond one machine: the workers of a session are on the nodes of a Ray cluster."""
