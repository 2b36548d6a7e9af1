"""Scenes: kernels that are compiled, loaded on a platform, run on one or several devices, and held to a golden."""
