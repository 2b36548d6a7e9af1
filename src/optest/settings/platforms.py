"""Platforms: the hardware or simulations that tests run on. A name that ends in ``sim`` is a simulation.

``--platform`` names the present hardware, ``--device`` the devices to use. A test declares what it needs by the marker
``requires_hardware``, a scene by ``platforms``.
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

    With ``one_runtime_per_process`` a process that has used one runtime on a device cannot use another one on it.
    ``device_mask`` is the environment variable that restricts a worker to its devices, "" if no variable is set.
    ``probe`` and ``reset`` are commands with ``{device}`` in place of the id: after a crash ``probe`` runs and exits
    with 0 if the device is healthy; otherwise ``reset`` runs.
    """

    name: str
    one_runtime_per_process: bool = False
    device_mask: str = ""
    probe: tuple[str, ...] = ()
    reset: tuple[str, ...] = ()

    @property
    def is_device(self) -> bool:
        return is_device(self.name)


# Simulations on the CPU (C++, OpenCL, Triton's interpreter), CUDA, other OpenCL devices, and the two chips of simpler
# (hw-native-sys), each with its simulation. Plug-ins can register more.
PLATFORMS: Registry[Platform] = Registry("platform")

get_platform = PLATFORMS.get


def register_platform(platform: Platform, *, replace: bool = False) -> None:
    """Add ``platform`` to :data:`PLATFORMS`; ``replace`` allows the name of a registered one.

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
    """Return whether ``platform`` is hardware: not None, and no name that ends in ``sim``."""
    return platform is not None and not platform.endswith("sim")


def why_skipped(required: Sequence[Any] | None, platform: str | None) -> str | None:
    """Return why a test is skipped on ``platform``, or None if it runs.

    ``required`` are the arguments of its marker ``requires_hardware``: None if it has no marker, () for any hardware,
    or one platform name. A test without marker is skipped on hardware, because the job without hardware runs it.

    Raises:
        UsageError: if ``required`` has several platforms, or one that is no hardware.
    """
    if required is None:
        return "no-hardware test, runs in no-hw job" if is_device(platform) else None
    if not required:
        return None if is_device(platform) else "requires hardware"
    if len(required) > 1 or not isinstance(required[0], str) or not is_device(required[0]):
        words = ", ".join(map(repr, required))
        raise UsageError(f'requires_hardware has ({words}), expected one hardware platform such as "a2a3", or nothing')
    return None if platform == required[0] else f"requires --platform {required[0]}"


def platforms_of_a_run(declared: Sequence[str], requested: str | None) -> Sequence[str]:
    """Return the platforms to run a scene on: ``requested``, else all declared simulations, else [""]."""
    return [requested] if requested is not None else [name for name in declared if name.endswith("sim")] or [""]


def scene_skip_reason(platform: str, declared: Sequence[str]) -> str | None:
    """Return why a scene is skipped on one of :func:`platforms_of_a_run`, or None if it runs."""
    names = ", ".join(declared)
    if not platform:
        return f"no simulation among its platforms ({names}); select one with --platform"
    return None if platform in declared else f"platform is {platform}, but the scene supports only {names}"


_IDS = re.compile(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?")
_MOST_DEVICES = 4096


def device_ids(option: str | None) -> tuple[int, ...]:
    """Return the ids of ``--device``; if ``option`` is None, those of ``DEVICE_RANGE``, which CI sets, else (0,).

    Raises:
        UsageError: as :func:`parse_devices`.
    """
    text = environment().get("DEVICE_RANGE", "0") if option is None else option
    return parse_devices(text, "DEVICE_RANGE" if option is None else "--device")


def parse_devices(text: str, source: str = "--device") -> tuple[int, ...]:
    """Parse a list of device ids, such as ``0``, ``0-7``, ``0,2,5`` or ``0-3,6``, and keep its order.

    ``source`` names the option or variable in messages.

    Raises:
        UsageError: for other text, a range that counts down, a repeated id, or more than 4096 ids.
    """

    def wrong(why: str) -> UsageError:
        return UsageError(f"{source} is {text!r}, expected device ids such as 0, 0-7 or 0,2,5: {why}")

    ids: list[int] = []
    for part in text.split(","):
        match = _IDS.fullmatch(part)
        if match is None:
            raise wrong(f"{part.strip()!r} is neither an id nor a range" if text.strip() else "it is empty")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise wrong(f"the range {first}-{last} counts down")
        ids += range(first, min(last, first + _MOST_DEVICES) + 1)
        if len(ids) > _MOST_DEVICES:
            raise wrong(f"there are more than {_MOST_DEVICES}")
    if twice := [device for device, count in Counter(ids).items() if count > 1]:
        raise wrong(f"{twice[0]} occurs twice")
    return tuple(ids)


def share_of_devices(ids: Sequence[int], index: int, count: int) -> tuple[int, ...]:
    """Return the ids that pytest-xdist's worker ``index`` of ``count`` uses; several workers share one if ids are few.

    ``index`` may exceed ``count``: the replacement of a crashed worker gets a new index.
    """
    slot = index % count
    part = ids[slot * len(ids) // count : (slot + 1) * len(ids) // count]
    return tuple(part) or (ids[slot % len(ids)],)
