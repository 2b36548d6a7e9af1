"""Torch functions called by name: look them up, execute them on a device, and compute the expected results."""
