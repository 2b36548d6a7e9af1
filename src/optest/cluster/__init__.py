"""Runs beyond one machine: a session's lanes have their workers on the nodes of a Ray cluster."""
