"""Process-wide settings of torch: defaults, modes, switches, the seed. A call that changes one affects later calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._device  # get_default_device imports it at its first call: import it before a fork

from optest.spec import Fault, Reason


@dataclass(frozen=True, slots=True)
class _Setting:
    name: str
    read: Callable[[], Any]
    restore: Callable[[Any], Any]


def _set_default_device(device: torch.device) -> None:
    # Even the default device "cpu" would activate a mode that slows every call down.
    torch.set_default_device(None if device.type == "cpu" else device)


def _matmul_precision() -> str:
    # torch raises if its backends were set one by one to different precisions.
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:
        return _BY_BACKEND


_BY_BACKEND = "set for each backend"


def _set_matmul_precision(precision: str) -> None:
    if precision != _BY_BACKEND:
        torch.set_float32_matmul_precision(precision)


def _precision_of(name: str) -> Iterator[_Setting]:
    """Yield the setting of one torch backend's float32 precision; nothing if this version of torch has none."""
    switch: Any = getattr(getattr(torch.backends, name), "matmul", None)
    if hasattr(switch, "fp32_precision"):
        yield _Setting(
            f"torch.backends.{name}.matmul.fp32_precision",
            lambda: switch.fp32_precision,
            lambda precision: setattr(switch, "fp32_precision", precision),
        )


_SEED = _Setting("torch.initial_seed()", torch.initial_seed, torch.manual_seed)
_SETTINGS = (
    _Setting("torch.get_default_dtype()", torch.get_default_dtype, torch.set_default_dtype),
    _Setting("torch.get_default_device()", torch.get_default_device, _set_default_device),
    _Setting("torch.is_grad_enabled()", torch.is_grad_enabled, torch.set_grad_enabled),
    _Setting("torch.is_anomaly_enabled()", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    _Setting(
        "torch.get_deterministic_debug_mode()",
        torch.get_deterministic_debug_mode,
        torch.set_deterministic_debug_mode,
    ),
    _Setting("torch.get_num_threads()", torch.get_num_threads, torch.set_num_threads),
    _Setting("torch.get_float32_matmul_precision()", _matmul_precision, _set_matmul_precision),
    # After the precision for all backends: restoring that sets these, too.
    *_precision_of("mkldnn"),
    *_precision_of("cuda"),
    _SEED,
)


@contextmanager
def keep_settings(who: str, *, may_seed: bool = False) -> Iterator[None]:
    """Restore torch's settings after the block; ``Fault`` STATE if it changed any, the seed unless ``may_seed``."""
    before = [setting.read() for setting in _SETTINGS]
    try:
        yield
    except BaseException:
        _restore(before)
        raise
    changes = [change for change in _restore(before) if not (may_seed and change.startswith(_SEED.name))]
    if changes:
        raise Fault(Reason.STATE, f"{who} changed process-wide settings of torch: {'; '.join(changes)}")


def _restore(before: list[Any]) -> list[str]:
    """Restore the settings to the values ``before``; return a description of each one that differed."""
    after = [setting.read() for setting in _SETTINGS]
    if after == before:
        return []
    for setting, value in zip(_SETTINGS, before, strict=True):
        if setting.read() != value:
            setting.restore(value)
    return [
        f"{setting.name} was {old}, is {new}"
        for setting, old, new in zip(_SETTINGS, before, after, strict=True)
        if old != new
    ]
