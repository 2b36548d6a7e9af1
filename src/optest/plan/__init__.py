"""Plans: YAML that a person writes, checked against one schema and turned into cases."""
