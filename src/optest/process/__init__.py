"""Foreign programs: starting, watching and killing them, with everything they started.

Linux: complete. macOS: a command is killed with its process group, so a descendant that began a session of its own
survives.
"""

from optest.process.command import Finished, run
from optest.process.guard import CannotStart

__all__ = ["CannotStart", "Finished", "run"]
