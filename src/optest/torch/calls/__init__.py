"""Calls of torch's own functions by their names: found, made on a device, and made once more for what is expected."""
