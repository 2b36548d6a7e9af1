"""The port of a driver is narrow; what else a driver can do is asked by ``isinstance``, whatever it inherits from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from texts import says

from optest.backends import (
    _BUILTINS,
    BackendDriver,
    BackendManager,
    abilities,
    backend_manager,
    command_abilities,
    worker_abilities,
)
from optest.errors import Unavailable
from optest.operators import operators
from optest.spec import BackendTarget, TestCase

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


def test_port_and_abilities_have_few_members() -> None:
    # 14 as long as each method with a default was an ability of its own, which a caller had to ask for
    members = {name for name in (*vars(BackendDriver), *BackendDriver.__annotations__) if not name.startswith("_")}
    assert len(members) <= 39, sorted(members)
    assert PROTOCOLS
    assert len({each.member for each in PROTOCOLS}) == len(PROTOCOLS)


@pytest.mark.parametrize("ability", PROTOCOLS, ids=lambda each: each.__name__)
def test_who_defines_the_member_has_the_ability(ability: Any) -> None:
    assert not isinstance(Plain(), ability)
    able = type("Able", (Plain,), {ability.member: lambda *_: None})
    assert isinstance(able(), ability)


def test_defaults_of_a_driver() -> None:
    driver, case = Plain(), TestCase(descriptor=operators.get("relu"), inputs=(), backend=BackendTarget(name="plain"))
    driver.configure({"threads": 2})
    assert (driver.guards_memory, driver.keeps_deadline, driver.runs_programs) == (False, False, False)
    assert driver.reads_inputs
    assert not abilities.writes_outputs(driver, case)
    assert (driver.golden(case), driver.own_verdict(case), driver.command_line(case)) == (None, None, None)
    assert (driver.further(case), driver.writes_inputs(case), driver.options, driver.doctor()) == ((), (), (), ())
    assert command_abilities.case_options_of(driver) == {}
    command = backend_manager.get("command")
    assert command.keeps_deadline
    assert command.runs_programs


@pytest.mark.parametrize(
    ("name", "able"),
    [
        ("numpy", {"PreparesCalls", "WritesScripts"}),
        ("command", {"ChecksConfig", "WritesScripts"}),
    ],
)
def test_abilities_of_built_in_drivers(name: str, able: set[str]) -> None:
    driver = backend_manager.get(name)
    assert {each.__name__ for each in PROTOCOLS if isinstance(driver, each)} == able


def config_problems(driver: BackendDriver, **section: Any) -> list[str]:
    case = TestCase(
        descriptor=operators.get("relu"),
        inputs=(),
        backend=BackendTarget(name=driver.name),
        backend_config={driver.name: section},
    )
    return [*command_abilities.config_problems(driver, case)]


# Not `backend_manager.names()`, which has the drivers that other test modules of this process have registered.
@pytest.mark.parametrize("name", BackendManager(_BUILTINS).names())
@pytest.mark.parametrize("key", ["devcie", "golden", "workdri", "modul"])
def test_every_shipped_backend_refuses_an_unknown_key(name: str, key: str) -> None:
    try:
        driver = backend_manager.get(name)
    except Unavailable as error:
        pytest.skip(str(error))
    if name == "scene":
        pytest.skip("it refuses operators before it looks at their keys")
    key = "dolgen" if driver.kind in ("command", "npu") and key == "golden" else key
    assert any(f".{key} " in problem for problem in config_problems(driver, **{key: "x"}))


def test_an_unknown_key_suggests_the_nearest() -> None:
    class Tiled(Plain):
        config_keys = ("tile", "stages")

    assert config_problems(Tiled(), tile=3, stages=2) == []
    (problem,) = config_problems(Tiled(), tiel=3)
    assert problem.startswith("backend_config.plain.tiel ")
    assert "'tile'" in problem
    (problem,) = config_problems(backend_manager.get("function"), rleu="m:f", softmax="m:f")
    assert says(problem, "backends.did_you_mean_relu")


@pytest.mark.torch
def test_a_key_that_is_an_option_suggests_the_option() -> None:
    pytest.importorskip("torch")
    (problem,) = config_problems(backend_manager.get("torch"), devcie="cuda")
    assert "--torch-device" in problem


def test_keys_of_a_users_driver_are_checked_once_it_declares_them() -> None:
    class Checks(Plain):
        config_keys = ("tile",)

        def problems(self, case: TestCase) -> Sequence[str]:
            return ["backend_config.plain.tile is wrong"]

    class Keyless(Plain):
        config_keys = ()

    assert config_problems(Plain(), anything=1) == []
    assert len(config_problems(Checks(), tile=1)) == 1
    assert len(config_problems(Checks(), tiel=1)) == 2
    assert config_problems(Keyless(), anything=1)
