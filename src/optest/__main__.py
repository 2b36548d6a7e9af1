"""``python -m optest`` is the ``optest`` command."""

from optest.cli import main

if __name__ == "__main__":
    main()
