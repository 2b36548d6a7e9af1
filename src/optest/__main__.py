"""``python -m optest`` is the ``optest`` command."""

import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        # A json.py in the working directory would hide Python's; `find_modules_here` appends the folder at the end.
        del sys.path[0]
    from optest.cli import main

    main()
