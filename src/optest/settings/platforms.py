"""Platforms: where tests run. A name that ends in ``sim``, and none at all, needs no hardware; any other name is some.

``--platform`` alone says what hardware is there, ``--device`` which of its devices. What a test needs it says by the
marker ``requires_hardware``, or by ``platforms`` of a scene.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optest.errors import UsageError
from optest.registry import Registry
from optest.settings.variables import environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """One platform.

    With ``one_runtime_per_process`` a process that has served one runtime on a device serves no other one there.
    ``device_mask`` is the variable that shows a worker its devices alone, "" where none is set. ``probe`` and ``reset``
    are commands, with ``{device}`` for the id: ``probe`` ends with 0 if the device is healthy, and is asked after a
    crash; ``reset`` is what is tried on one that is not.
    """

    name: str
    one_runtime_per_process: bool = False
    device_mask: str = ""
    probe: tuple[str, ...] = ()
    reset: tuple[str, ...] = ()

    @property
    def is_device(self) -> bool:
        return is_device(self.name)


PLATFORMS: Registry[Platform] = Registry("platform")
"""Simulations on the CPU (C++, OpenCL, Triton's interpreter), CUDA, other OpenCL devices, and the two chips of simpler
(hw-native-sys), each with its simulation; plug-ins add theirs."""

platform_called = PLATFORMS.get


def register_platform(platform: Platform, *, replace: bool = False) -> None:
    """Add a platform.

    Raises:
        UsageError: if the name is taken and ``replace`` is False.
    """
    PLATFORMS.register(platform.name, platform, replace=replace)


for _name in ("cpusim", "oclsim", "tritonsim", "opencl", "a2a3sim", "a5sim"):
    register_platform(Platform(name=_name))
for _name in ("a2a3", "a5"):
    register_platform(Platform(name=_name, one_runtime_per_process=True, device_mask="ASCEND_RT_VISIBLE_DEVICES"))
register_platform(Platform(name="cuda", device_mask="CUDA_VISIBLE_DEVICES"))


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


def platforms_of_a_run(declared: Sequence[str], stated: str | None) -> Sequence[str]:
    """Where a scene runs: on the platform that is stated, else on every simulation that it declares; "" for none."""
    return [stated] if stated is not None else [each for each in declared if each.endswith("sim")] or [""]


def why_not_on(platform: str, declared: Sequence[str]) -> str | None:
    """Why a scene is skipped on one of :func:`platforms_of_a_run`, None if it runs."""
    names = ", ".join(declared)
    if not platform:
        return f"no simulation among its platforms ({names}); name one by --platform"
    return None if platform in declared else f"not for {platform}, but for {names}"


_IDS = re.compile(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?")
_MOST_DEVICES = 4096


def device_ids(stated: str | None) -> tuple[int, ...]:
    """The ids of ``--device``; where it is None those of ``DEVICE_RANGE``, which CI sets; else device 0.

    Raises:
        UsageError: as :func:`parse_devices`.
    """
    text = environment().get("DEVICE_RANGE", "0") if stated is None else stated
    return parse_devices(text, "DEVICE_RANGE" if stated is None else "--device")


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


def share_of_devices(ids: Sequence[int], index: int, count: int) -> tuple[int, ...]:
    """The part of the ids that the worker ``index`` of ``count`` of pytest-xdist uses; where there are more workers
    than ids several of them share one, and one that replaces a worker has an index beyond ``count``."""
    place = index % count
    part = ids[place * len(ids) // count : (place + 1) * len(ids) // count]
    return tuple(part) or (ids[place % len(ids)],)
