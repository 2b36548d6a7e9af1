"""What torch has one of for everybody in the process: defaults, modes, switches, the seed. A call that changes them
decides what others compute, and by which rule this one is judged: a switch for coarser products widens that."""

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
    put_back: Callable[[Any], Any]


def _set_default_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)


def _matmul_precision() -> str:
    """Torch refuses to say one word where its backends were set each by itself."""
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:
        return _BY_BACKEND


_BY_BACKEND = "set for each backend"


def _set_matmul_precision(precision: str) -> None:
    if precision != _BY_BACKEND:
        torch.set_float32_matmul_precision(precision)


def _of_backend(name: str) -> Iterator[_Setting]:
    """What one kind of device may do to float32 operands; older versions of torch have no such setting."""
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
    *_of_backend("mkldnn"),  # after the word for all of them, which sets these, too
    *_of_backend("cuda"),
    _SEED,
)


@contextmanager
def settings_kept(who: str, *, may_seed: bool = False) -> Iterator[None]:
    """While inside, what is set for all of torch has to stay as it is; whatever happens, it is put back.

    ``may_seed`` is for who draws at random.

    Raises:
        Fault: STATE, with what was changed, where nothing else is raised.
    """
    before = [setting.read() for setting in _SETTINGS]
    try:
        yield
    except BaseException:
        _put_back(before)
        raise
    changed = [each for each in _put_back(before) if not (may_seed and each.startswith(_SEED.name))]
    if changed:
        raise Fault(Reason.STATE, f"{who} changed what is set for all of torch: {'; '.join(changed)}")


def _put_back(before: list[Any]) -> list[str]:
    """What is not as it was, in words."""
    now = [setting.read() for setting in _SETTINGS]
    if now == before:
        return []
    for setting, was in zip(_SETTINGS, before, strict=True):
        if setting.read() != was:
            setting.put_back(was)
    return [
        f"{setting.name} was {was}, is {found}"
        for setting, was, found in zip(_SETTINGS, before, now, strict=True)
        if was != found
    ]
