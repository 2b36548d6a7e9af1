"""Platforms: where tests run. A name that ends in ``sim``, and none at all, needs no hardware; any other name is some.

``--platform`` alone says what hardware is there, ``--device`` which of its devices. What a test needs it says by the
marker ``requires_hardware``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from optest.errors import UsageError
from optest.settings.variables import environment

__all__ = ["PLATFORMS", "device_ids", "is_device", "parse_devices", "why_skipped"]

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


_IDS = re.compile(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?")
_MOST_DEVICES = 4096


def device_ids(stated: str | None) -> tuple[int, ...]:
    """The ids of ``--device``; where it is None those of ``DEVICE_RANGE``, which CI sets; else device 0.

    Raises:
        UsageError: as :func:`parse_devices`.
    """
    if stated is not None:
        return parse_devices(stated)
    return parse_devices(environment().get("DEVICE_RANGE", "0"), "DEVICE_RANGE")


def parse_devices(text: str, source: str = "--device") -> tuple[int, ...]:
    """The ids that ``0``, ``0-7``, ``0,2,5`` or ``0-3,6`` lists, in this order; ``source`` is who states it.

    Raises:
        UsageError: for anything else: no id, a range that counts down, an id twice, more than 4096 ids.
    """

    def wrong(why: str) -> UsageError:
        return UsageError(f"{source} is {text!r}, but should list device ids, as 0, 0-7 or 0,2,5: {why}")

    ids: list[int] = []
    for part in text.split(","):
        match = _IDS.fullmatch(part)
        if match is None:
            raise wrong(f"{part.strip()!r} is no id and no range" if text.strip() else "it is empty")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise wrong(f"the range {first}-{last} counts down")
        ids += range(first, min(last, first + _MOST_DEVICES) + 1)
        if len(ids) > _MOST_DEVICES:
            raise wrong(f"there are more than {_MOST_DEVICES}")
    if twice := [device for device, count in Counter(ids).items() if count > 1]:
        raise wrong(f"{twice[0]} is there twice")
    return tuple(ids)
