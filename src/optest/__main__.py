"""``python -m optest`` is the ``optest`` command."""

import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the working directory, which `find_modules_here` puts at the end: it may have a json.py
    from optest.cli import main

    main()
