"""Kernels that are wrong in one way each: one registry, ``FAULTS``, with tags, and a plug-in with a backend for each.

Families stand in files of their own; ``forms`` is a table of calls that a kernel takes for others, ``any_operator``
makes the faults that every operator can have.
"""

from wrong_kernels import (  # noqa: F401  (they fill the registry)
    activation,
    attention,
    contractions,
    conversions,
    elementwise,
    extremes,
    forms,
    indexing,
    kernels,
    movement,
    normalization,
    reductions,
    several_operators,
)
from wrong_kernels.registry import (
    FAULTS,
    MEMORY,
    ORDINARY,
    RARE,
    WITHOUT_FAULT,
    Call,
    Change,
    Fault,
    Faulty,
    first_findings,
    outputs_of,
    register_backends,
    registered,
    tagged,
)

__all__ = [
    "FAULTS",
    "MEMORY",
    "ORDINARY",
    "RARE",
    "WITHOUT_FAULT",
    "Call",
    "Change",
    "Fault",
    "Faulty",
    "first_findings",
    "outputs_of",
    "register",
    "registered",
    "tagged",
]


def register() -> None:
    """Register the backends, as a plug-in of ``OPTEST_PLUGINS`` has to."""
    register_backends()
