"""Memory that optest owns: buffers for any layout, poisons, guard zones and pages, and what was written where."""
