"""Leases of devices and the health of a device."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from filelock import FileLock

from optest.core.devices import Health, Leases, check_health
from optest.errors import UsageError
from optest.settings.platforms import Platform, parse_devices
from optest.settings.variables import leases_folder

CHIP = Platform(name="chip", probe=("sh", "-c", "exit {device}"))


def never() -> bool:
    return False


def is_free(folder: Path, device: int) -> bool:
    lock = FileLock(folder / f"chip-{device}.lock", thread_local=False)
    try:
        lock.acquire(timeout=0)
    except TimeoutError:
        return False
    lock.release()
    return True


def test_lock_file_names_holder(tmp_path: Path) -> None:
    leases = Leases(tmp_path, [CHIP], "optest run")
    assert leases.acquire([4, 2], 2, pytest.fail, never) == (4, 2)
    assert json.loads((tmp_path / "chip-4.json").read_text()) == {"pid": os.getpid(), "command": "optest run"}
    assert not is_free(tmp_path, 2)
    leases.release()
    assert is_free(tmp_path, 2)
    assert not (tmp_path / "chip-4.json").exists()


def test_waiting_process_holds_only_lower_devices(tmp_path: Path) -> None:
    # otherwise two processes could wait for each other
    other = Leases(tmp_path, [CHIP], "optest run other.yaml")
    other.acquire([3], 1, pytest.fail, never)
    held_meanwhile: list[dict[int, bool]] = []

    def say(note: str) -> None:
        assert note == f"device 3 is held by optest run other.yaml (pid {os.getpid()}); waiting"
        held_meanwhile.append({device: not is_free(tmp_path, device) for device in (2, 4)})
        other.release()

    assert Leases(tmp_path, [CHIP], "mine").acquire([2, 3, 4], 3, say, never) == (2, 3, 4)
    assert held_meanwhile == [{2: True, 4: False}]


def test_acquire_some_leases_free_devices(tmp_path: Path) -> None:
    other, mine = Leases(tmp_path, [CHIP], "other"), Leases(tmp_path, [CHIP], "mine")
    assert other.acquire_some([4, 5, 6, 7], 2) == (4, 5)
    assert mine.acquire_some([4, 5, 6, 7], 1) == (6,)
    assert is_free(tmp_path, 7)
    threading.Timer(0.3, other.release).start()
    assert Leases(tmp_path, [CHIP], "late").acquire_some([4, 5, 6, 7], 3) == (4, 5, 7)
    assert Leases(tmp_path, [Platform(name="chipsim")], "").acquire_some([0, 1], 2) == (0, 1)


def test_simulated_devices_need_no_lease(tmp_path: Path) -> None:
    first, second = (Leases(tmp_path, [Platform(name="chipsim")], "") for _ in range(2))
    assert first.acquire([0], 1, pytest.fail, never) == second.acquire([0], 1, pytest.fail, never) == (0,)
    assert not list(tmp_path.iterdir())


def test_unwritable_lease_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"the lease of device 0 cannot be written to .*file/leases: Not a directory"):
        Leases(tmp_path / "file" / "leases", [CHIP], "").acquire([0], 1, pytest.fail, never)


def test_leases_folder_is_per_user(tmp_path: Path) -> None:
    # cron has fewer variables than a shell
    usual = leases_folder({})
    assert usual.name == f"optest-{os.getuid()}"
    assert leases_folder({"XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}) == usual
    assert leases_folder({"OPTEST_LEASES": str(tmp_path)}) == tmp_path


FAILED = "device 3 failed its probe (exit code 3)"


@pytest.mark.parametrize(
    ("changes", "device", "health"),
    [
        ({"probe": ()}, 3, Health(True)),
        ({}, 0, Health(True)),
        ({}, 3, Health(False, FAILED)),
        (
            {"reset": ("sh", "-c", "echo no such card >&2; exit 7")},
            3,
            Health(False, f"{FAILED}, and the reset failed (exit code 7: no such card)"),
        ),
        ({"reset": ("true",)}, 3, Health(False, f"{FAILED}, and again after a reset (exit code 3)")),
    ],
)
def test_device_is_probed_and_reset(changes: dict[str, tuple[str, ...]], device: int, health: Health) -> None:
    known = {"probe": CHIP.probe, **changes}
    assert check_health(Platform(name="chip", **known), device) == health  # type: ignore[arg-type]


def test_missing_probe_command_is_reported() -> None:
    assert "no-such-tool" in check_health(Platform(name="chip", probe=("no-such-tool",)), 0).note


@pytest.mark.parametrize(
    ("text", "ids"),
    [("0", (0,)), ("0-7", tuple(range(8))), ("0,2,5", (0, 2, 5)), ("0-3,6", (0, 1, 2, 3, 6)), ("8 - 9, 4", (8, 9, 4))],
)
def test_device_lists_are_parsed(text: str, ids: tuple[int, ...]) -> None:
    assert parse_devices(text) == ids
