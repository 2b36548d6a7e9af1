"""Memory for tensors under test: buffers of any layout, poisons, guard zones and pages, and detection of writes."""
