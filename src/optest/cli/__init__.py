"""The ``optest`` command."""


def main() -> None:
    """Entry point of the console script."""
