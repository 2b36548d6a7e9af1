"""``python -m optest.cli`` is the ``optest`` command."""

from optest.cli import main

if __name__ == "__main__":
    main()
