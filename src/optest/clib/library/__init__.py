"""A C library as a backend: loaded, mapped to operators by a YAML file, called on watched memory."""
