"""Execution of foreign programs: start, supervision, and termination with all descendants.

On macOS a command is killed with its process group, so a descendant in another session survives.
"""

from optest.process.channel import Channel
from optest.process.child import TRACEBACK_SIGNAL, Child, module_command, start_child
from optest.process.command import Finished, run
from optest.process.exits import crash_below_a_shell, directory_kept, exits_refused, leave, signal_name
from optest.process.forks import Forked, ForkedServer, ForkServer, fork_and_run, fork_server
from optest.process.guard import CannotStart
from optest.process.guard_program import adopt_orphans, end_children

__all__ = [
    "TRACEBACK_SIGNAL",
    "CannotStart",
    "Channel",
    "Child",
    "Finished",
    "ForkServer",
    "Forked",
    "ForkedServer",
    "adopt_orphans",
    "crash_below_a_shell",
    "directory_kept",
    "end_children",
    "exits_refused",
    "fork_and_run",
    "fork_server",
    "leave",
    "module_command",
    "run",
    "signal_name",
    "start_child",
]
