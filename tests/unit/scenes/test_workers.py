"""Workers of scenes as processes: one for each device and runtime, given back in the end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import toy_runtime
from filelock import FileLock, Timeout
from scene_kit import scene_text
from texts import refusal

from optest.api.running import run
from optest.errors import UsageError
from optest.scenes import TaskArgs
from optest.scenes.runtimes import register_runtime
from optest.scenes.workers import SceneWorkers
from optest.spec import Status

_CASES = 'CASES = [{"name": f"n{size}", "params": {"size": size}} for size in range(1, 7)]'
_OTHER = """
@scene_test(level=2, runtime="toy", platforms=["cpusim"])
class TestOther(TestToy):
    pass
"""


@pytest.mark.parametrize("devices", ["3", "0,2"])
def test_one_worker_for_each_device(devices: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened once, used by every class, case and round, and closed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPTEST_PLUGINS", "toy_runtime")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "plugins"))
    Path("test_toy.py").write_text(scene_text(attributes=_CASES) + _OTHER)
    outcome = run({"source": ["scene:test_toy.py"], "device": devices, "rounds": 2, "max_parallel": "2", "quiet": 2})
    assert Counter(each.status for each in outcome.results) == {Status.PASSED: 24}
    lines = [line.split() for line in Path("toy.log").read_text().splitlines()]
    did = Counter((what, ids) for what, _, _, ids in lines)
    used = [device for device in devices.split(",") if did["run", device]]
    assert {(what, device): 1 for what in ("open", "close") for device in used}.items() <= did.items()
    assert sum(did["run", device] for device in used) == 24
    assert len({pid for _, pid, _, _ in lines}) == len(used)


def test_by_hand_one_runtime_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPTEST_LEASES", str(tmp_path / "leases"))
    register_runtime("toy2", toy_runtime.ToyRuntime, replace=True)
    workers = SceneWorkers("toychip", (3,))
    seen = []

    def kernel(*_: object) -> None:
        with pytest.raises(Timeout):
            FileLock(tmp_path / "leases" / "toychip-3.lock").acquire(timeout=0)
        seen.append("leased")

    workers.run({"function": kernel}, TaskArgs(), runtime="toy")
    workers.run({"function": kernel}, TaskArgs(), runtime="toy")
    with refusal(UsageError, "scenes.toychip_serves_one_runtime"):
        workers.run({"function": kernel}, TaskArgs(), runtime="toy2")
    assert seen == ["leased", "leased"]
    FileLock(tmp_path / "leases" / "toychip-3.lock").acquire(timeout=0).lock.release()
    workers.close()
    assert Path("toy.log").read_text().count("open") == 1
