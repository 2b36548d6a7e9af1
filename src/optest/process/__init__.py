"""Foreign programs: starting, watching and killing them, with everything they started."""
