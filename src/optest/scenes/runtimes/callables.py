"""Validation of a scene's ``CALLABLE``, and import of a Python function among its sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from optest.errors import OptestError
from optest.registry import load_file
from optest.scenes.declaration import ArgDirection
from optest.spec import Fault, Reason


def required(mapping: Mapping[str, Any], key: str, kind: Any) -> Any:
    """Return an entry of ``CALLABLE``; raise Fault BAD_CASE if it is missing or not of type ``kind``."""
    value = mapping.get(key)
    if not isinstance(value, kind) or isinstance(value, bool) or (kind is Sequence and isinstance(value, str)):
        raise Fault(Reason.BAD_CASE, f"CALLABLE: {key} is {value!r}, expected {kind.__name__}")
    return value


def source_in(entry: Mapping[str, Any]) -> tuple[Path, str]:
    """Return the source file and the function name in an entry; raise Fault BAD_CASE without them or the file."""
    path, name = Path(required(entry, "source", str)), required(entry, "function_name", str)
    if not path.is_file():
        raise Fault(Reason.BAD_CASE, f"source {path} does not exist")
    return path, name


def directions_in(signature: Sequence[Any]) -> list[ArgDirection]:
    """Return the direction of each tensor of a signature, without scalars; raise Fault BAD_CASE for other entries."""
    # By name: the enumeration of an installed simpler has numbers as values.
    names = [str(getattr(entry, "name", entry)).upper() for entry in signature if entry is not None]
    if unknown := [name for name in names if name not in (*ArgDirection.__members__, "SCALAR")]:
        known = ", ".join(ArgDirection.__members__)
        raise Fault(Reason.BAD_CASE, f"CALLABLE: signature: {unknown[0]!r} is no direction; known: {known}")
    return [ArgDirection[name] for name in names if name != "SCALAR"]


def require_level_2(runtime: str, level: int) -> None:
    """Raise Fault BAD_CASE for another level than 2."""
    if level != 2:
        text = f"level is {level}, expected 2: runtime {runtime} has one device for each case"
        raise Fault(Reason.BAD_CASE, text)


def orchestration_in_python(callable: Mapping[str, Any]) -> Callable[..., Any]:  # noqa: A002 - the seed's name
    """Return ``orchestration`` itself if it is a function, else the function that it names in a Python source.

    Raises:
        Fault: BAD_CASE if there is none, COMPILE if the source cannot be imported.
    """
    function: Any = callable.get("orchestration")
    if isinstance(function, Mapping):
        path, name = source_in(function)
        try:
            function = getattr(load_file(path), name, None)
        except OptestError as error:
            raise Fault(Reason.BAD_CASE, str(error)) from None
        except Exception as error:  # border: the source may raise anything
            raise Fault(Reason.COMPILE, f"{path.name} cannot be imported: {type(error).__name__}: {error}") from error
        if function is None:
            raise Fault(Reason.BAD_CASE, f"{path.name} has no function {name}")
    return required({"orchestration": function}, "orchestration", Callable)  # type: ignore[no-any-return]
