"""optest.toml and [tool.optest]: where they are looked for, what they may say, who wins over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from optest.api import cases
from optest.errors import UnknownName, UsageError
from optest.settings import OPTIONS, Origin, config_file, plugin_modules, resolve


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, and the current folder two below its root."""
    (tmp_path / ".git").mkdir()
    below = tmp_path / "sub" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    return tmp_path


def test_nearest_file_below_the_repository_root(project: Path) -> None:
    (project.parent / "optest.toml").write_text("jobs = 9\n")
    try:
        assert config_file().values == {}
        (project / "pyproject.toml").write_text("[tool.optest]\njobs = 2\n")
        assert (resolve()["jobs"], config_file().folder) == (2, "../..")
        (project / "sub" / "pyproject.toml").write_text("[tool.ruff]\n")
        assert resolve()["jobs"] == 2
        (project / "sub" / "optest.toml").write_text("jobs = 3\n")
        assert resolve()["jobs"] == 3
    finally:
        (project.parent / "optest.toml").unlink()


def test_flag_environment_plan_file_default(project: Path) -> None:
    (project / "optest.toml").write_text("seed = 1\n")
    found: list[tuple[Any, Origin]] = []
    for layers in (
        {"command_line": {"seed": 4}, "variables": {"OPTEST_SEED": "3"}, "plan": {"seed": 2}},
        {"variables": {"OPTEST_SEED": "3"}, "plan": {"seed": 2}},
        {"variables": {}, "plan": {"seed": 2}},
        {"variables": {}},
    ):
        value = resolve(**layers).origin("seed")  # type: ignore[arg-type]
        found.append((value.value, value.origin))
    assert found == [(4, Origin.COMMAND_LINE), (3, Origin.ENVIRONMENT), (2, Origin.PLAN), (1, Origin.CONFIG)]
    assert resolve(variables={}).origin("jobs").origin is Origin.DEFAULT


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("job = 1", "unknown option 'job'; did you mean 'jobs'"),
        ("jobs = 'many'", "jobs in ../../optest.toml is 'many', expected an integer"),
        ("jobs = [1]", r"jobs in ../../optest.toml is \[1\], expected one value"),
        ("tier = 'huge'", "tier in ../../optest.toml is 'huge', expected one of smoke"),
        ("jobs = ", "optest.toml cannot be read"),
        ("jobs = 0", "jobs in ../../optest.toml is 0, expected 1 or more"),
    ],
)
def test_what_is_wrong_is_said(project: Path, text: str, said: str) -> None:
    (project / "optest.toml").write_text(text)
    with pytest.raises(UsageError, match=said):
        resolve()
    assert issubclass(UnknownName, UsageError)


def test_options_are_keys_with_relative_paths(project: Path) -> None:
    (project / "kernels.yaml").write_text("")
    values = {"int": "1", "float": "1.0", "bool": "true", "count": "1"}
    lines = {
        option.name: f"['{option.name}']" if option.repeat else values.get(option.type, f"'{option.name}'")
        for option in OPTIONS
        if not option.choices
    }
    lines |= {"mapping": "'infiniop'", "config": "'kernels.yaml'", "runs-dir": "'runs'"}
    lines.pop("runs_dir")
    (project / "optest.toml").write_text("".join(f"{name} = {value}\n" for name, value in lines.items()))
    settings = resolve(variables={})
    assert all(settings.is_set(name.replace("-", "_")) for name in lines)
    assert settings["runs_dir"] == "../../runs"
    assert settings["expectations"] == ("../../expectations",)
    assert settings["mapping"] == "infiniop"  # a name, where there is no such file
    assert plugin_modules() == ("plugins",)


def test_plan_overrides_the_configuration_file(project: Path) -> None:
    (project / "optest.toml").write_text("seed = 5\nretries = 2\ntolerance = 'rtol=0.5'\ndtype = 'float16'\n")
    below = Path.cwd()
    (below / "a.yaml").write_text(
        "cases: [{op: exp, shapes: {input0: 2x3}}, {op: exp, shapes: {input0: 2x3}, seed: 6}]"
    )
    (below / "b.yaml").write_text(
        "seed: 7\nretries: 0\ncases: [{op: exp, shapes: {input0: 2x3}}]".replace("retries: 0\n", "")
    )
    first, second = cases(plan="a.yaml")
    assert [first.seed, first.retries, first.dtypes[0].name] == [5, 2, "float16"]
    assert first.tolerances[0].tolerance.rtol == 0.5
    assert first.origins["seed"] == "../../optest.toml"
    assert second.seed == 6
    assert cases(plan="b.yaml")[0].seed == 7
    assert cases(plan="b.yaml", seed=8)[0].seed == 8
    assert cases(op="exp", shape={"input0": [2, 3]})[0].seed == 5
    assert cases(op="exp", shape={"input0": [2, 3]}, seed=9)[0].seed == 9


def test_an_option_of_another_backend_is_left_alone(project: Path) -> None:
    (project / "optest.toml").write_text("torch-device = 'cuda'\n")
    assert cases(op="exp", shape={"input0": [2, 3]}, backend="numpy")
