"""torch's own samples (OpInfo) as a source of cases."""
