"""Reports: they hear the engine's events or read a journal, and never decide anything."""
