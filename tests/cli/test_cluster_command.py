"""``--cluster`` as a user types it: what is refused, and a cluster on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from texts import refusal, says
from user_shell import Shell

from optest.api.running import run
from optest.errors import Unavailable, UsageError
from optest.store import read_journal

ADD = ("run", "--op", "add", "--dtype", "float32", "--shape", "input0=4x4", "--shape", "input1=4x4")
GIVEN: dict[str, Any] = {"op": ("add",), "dtype": "float32", "shape": ("input0=4", "input1=4"), "cluster": "local"}


@pytest.mark.parametrize(
    ("option", "words"),
    [({"bench": True}, "--bench is not for a run on a cluster"), ({"isolate": "none"}, "on other machines")],
)
def test_options_against_cluster_are_refused(
    option: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=words):
        run({**GIVEN, **option, "runs_dir": str(tmp_path)})


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in [name for name in sys.modules if name.startswith("optest.cluster.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(Unavailable, match=r"^--cluster is unavailable: pip install ray"):
        run({**GIVEN, "runs_dir": str(tmp_path)})


@pytest.mark.heavy
def test_a_cluster_on_this_machine(process: Shell, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs ray: pip install ray")
    words = (*ADD, "--cluster", "local", "--rounds", "9", "-j", "2")
    ended = process(sys.executable, "-m", "optest", *words, timeout=200).expect(0)
    assert says(ended.out, "cli.note_on_node_of")
    assert "9 passed" in ended.out
    (journal,) = (tmp_path / ".optest" / "runs").glob("*/journal.jsonl")
    results = list(read_journal(journal).results)
    assert [result.round for result in sorted(results, key=lambda each: each.round)] == list(range(9))
    assert {result.isolation for result in results} == {"worker"}


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "ray://127.0.0.1:1"])
def test_unreachable_cluster_is_refused(address: str, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs ray: pip install ray")
    with refusal(UsageError, "cli.should_be_host_port"):
        run({**GIVEN, "cluster": address, "runs_dir": str(tmp_path)})
