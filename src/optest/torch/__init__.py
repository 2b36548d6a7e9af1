"""PyTorch: its operators and functions as cases and backends, what models call, and its own samples."""
