"""An operator, a backend and a report that optest finds by the entry points of this distribution."""
