"""The port of a driver is narrow; what else a driver can do is asked by ``isinstance``, whatever it inherits from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from optest.backends import BackendDriver, abilities, backend_manager, command_abilities, worker_abilities
from optest.spec import TestCase

PROTOCOLS = [
    each
    for module in (abilities, command_abilities, worker_abilities)
    for each in vars(module).values()
    if isinstance(each, abilities.Ability)
]


class Plain(BackendDriver):
    name = kind = "plain"

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        return inputs


def test_the_port_has_14_members() -> None:
    members = {name for name in (*vars(BackendDriver), *BackendDriver.__annotations__) if not name.startswith("_")}
    assert len(members) <= 14, sorted(members)


def test_every_ability_is_one_member() -> None:
    assert PROTOCOLS
    assert len({each.member for each in PROTOCOLS}) == len(PROTOCOLS)


@pytest.mark.parametrize("ability", PROTOCOLS, ids=lambda each: each.__name__)
def test_who_defines_the_member_has_the_ability(ability: Any) -> None:
    assert not isinstance(Plain(), ability)
    able = type("Able", (Plain,), {ability.member: lambda *_: None})
    assert isinstance(able(), ability)


def test_a_driver_without_abilities_has_plain_answers() -> None:
    driver = Plain()
    command_abilities.configure(driver, {"threads": 2})
    assert not abilities.guards_memory(driver)
    assert not worker_abilities.keeps_deadline(driver)
    assert command_abilities.options_of(driver) == ()
    assert command_abilities.case_options_of(driver) == {}


@pytest.mark.parametrize(
    ("name", "able"),
    [
        ("numpy", {"ExplainsItself", "PreparesCalls", "WritesScripts"}),
        (
            "command",
            {"ChecksConfig", "ExplainsItself", "KeepsGolden", "KnowsDtypes", "WritesScripts"},
        ),
    ],
)
def test_abilities_of_built_in_drivers(name: str, able: set[str]) -> None:
    driver = backend_manager.get(name)
    assert {each.__name__ for each in PROTOCOLS if isinstance(driver, each)} == able


def test_a_command_keeps_deadlines_and_runs_programs() -> None:
    command = backend_manager.get("command")
    assert worker_abilities.keeps_deadline(command)
    assert command_abilities.runs_programs(command)
