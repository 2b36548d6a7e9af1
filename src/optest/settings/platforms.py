"""Platforms: where tests run. A name that ends in ``sim``, and none at all, needs no hardware; any other name is some.

``--platform`` alone says what hardware is there. What a test needs it says by the marker ``requires_hardware``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optest.errors import UsageError

__all__ = ["PLATFORMS", "is_device", "why_skipped"]

PLATFORMS = ("cpusim", "oclsim", "tritonsim", "cuda", "a2a3sim", "a2a3", "a5sim", "a5")
"""The names that are known without a plug-in: simulations on the CPU (C++, OpenCL, Triton's interpreter) and CUDA; and
the two chips of simpler (hw-native-sys), each with its simulation."""


def is_device(platform: str | None) -> bool:
    """Whether a platform is hardware."""
    return platform is not None and not platform.endswith("sim")


def why_skipped(required: Sequence[Any] | None, platform: str | None) -> str | None:
    """Why a test is skipped on a platform, None if it runs.

    ``required`` are the arguments of its marker ``requires_hardware``: None without one, () for any hardware, or the
    one platform that it needs.

    Raises:
        UsageError: for several platforms, or one that is no hardware.
    """
    if required is None:
        return "no-hardware test, runs in no-hw job" if is_device(platform) else None
    if not required:
        return None if is_device(platform) else "requires hardware"
    if len(required) > 1 or not isinstance(required[0], str) or not is_device(required[0]):
        words = ", ".join(map(repr, required))
        raise UsageError(f'requires_hardware({words}) should name one platform that is hardware, as "a2a3", or none')
    return None if platform == required[0] else f"requires --platform {required[0]}"
