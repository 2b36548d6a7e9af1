"""How a C library is called, as data: a YAML file that maps operators to functions and arguments to roles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from optest.errors import UsageError, nearest
from optest.ffi.signatures import CKind, Parameter, Prototype
from optest.spec import OperatorDescriptor

__all__ = [
    "Call",
    "LibraryMapping",
    "OperatorMapping",
    "Role",
    "drift",
    "mapping_path",
    "read_mapping",
    "unknown_names",
]

_FOLDER = Path(__file__).parent / "c_mappings"
_PLAIN = {
    "set_device": ("device", "device_id"),
    "handle": ("slot",),
    "tensor": ("slot", "ndim", "shape", "strides", "dtype"),
    "create": ("handle", "slot", "null"),
    "run": ("descriptor", "workspace", "workspace_size", "stream", "null"),
}
_NAMED = ("output", "input", "attribute")
_TYPES = {"float": "a float", "double": "a double", "int": "an integer", "bool": "a bool"}
_ROLE = re.compile(r"(?P<kind>\w+)(?::(?P<name>\w+)(?P<optional>\?)?(?: as (?P<type>\w+))?)?")
_INTEGERS = ("ndim", "dtype", "device", "device_id", "workspace_size")


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function and the roles of its arguments."""

    function: str
    arguments: tuple[str, ...]


class Made(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something opaque: how it is made, and the function that ends it."""

    create: Call
    destroy: str


class Protocol(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of an operator's four functions; ``{name}`` is the operator's."""

    create: str
    workspace: str
    run: str
    destroy: str


class StartsAs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An output that holds an input's values when the call begins.

    ``without`` are the attributes' values where the case leaves that input out.
    """

    output: str
    input: str
    without: Mapping[str, float] = {}


class OperatorMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operator: ``broadcasts`` where C wants operands of the output's shape, which strides of 0 give them."""

    name: str
    create: tuple[str, ...]
    run: tuple[str, ...]
    broadcasts: bool = False
    workspace: bool = True
    starts_as: StartsAs | None = None

    def roles(self) -> tuple[Role, ...]:
        """Those of both functions, in order."""
        return _parsed((*self.create, *self.run))


@lru_cache(maxsize=256)
def _parsed(roles: tuple[str, ...]) -> tuple[Role, ...]:
    return tuple(map(Role.parse, roles))


class LibraryMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole file. ``unsupported`` names statuses by which the library says that it does not have a kernel."""

    version: Literal[1]
    name: str
    library: tuple[str, ...]
    status: str
    dtypes: Mapping[str, str]
    devices: Mapping[str, int]
    set_device: Call
    handle: Made
    tensor: Made
    protocol: Protocol
    operators: Mapping[str, OperatorMapping]
    unsupported: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What one argument is: ``output:out``, ``input:bias?`` (NULL if left out), ``attribute:alpha as float``."""

    kind: str
    name: str = ""
    optional: bool = False
    type: str = ""

    @property
    def key(self) -> str:
        """What the values of a call are found under."""
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @classmethod
    def parse(cls, text: str) -> Role:
        """Read a role of a mapping that was checked."""
        found = _ROLE.fullmatch(text)
        if found is None:
            raise UsageError(f"role is {text!r}, but should look like 'handle' or 'input:a'")
        return cls(
            kind=found["kind"], name=found["name"] or "", optional=bool(found["optional"]), type=found["type"] or ""
        )


def mapping_path(name: str, base_dir: str) -> Path:
    """The file of a built-in mapping (``infiniop``), or of one of the user's, relative to the plan."""
    if "/" in name or "\\" in name or name.endswith((".yaml", ".yml")):
        return Path(base_dir, name)
    return _FOLDER / f"{name}.yaml"


@lru_cache(maxsize=16)
def read_mapping(path: Path) -> LibraryMapping:
    """Read a file and check everything that needs no library.

    Raises:
        UsageError: naming the file and the key.
    """
    if not path.is_file():
        raise UsageError(_no_such_mapping(path))
    try:
        data = yaml.load(path.read_bytes(), _Loader)
        mapping = msgspec.convert(data, LibraryMapping)
    except yaml.YAMLError as error:
        raise UsageError(f"mapping {path} is no YAML: {error}") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"mapping {path}: {error}") from None
    problems = list(_problems(mapping))
    if problems:
        raise UsageError("\n".join(f"mapping {path}: {problem}" for problem in problems))
    return mapping


def _no_such_mapping(path: Path) -> str:
    built_in = sorted(each.stem for each in _FOLDER.glob("*.yaml"))
    if path.parent != _FOLDER:
        return f"there is no mapping {path}; built in: {', '.join(built_in)}"
    near = nearest(path.stem, built_in)
    return (
        f"there is no built-in mapping {path.stem!r}; "
        + (f"did you mean {near}? " if near else "")
        + (f"built in: {', '.join(built_in)}; a file of yours ends in .yaml")
    )


class _Loader(yaml.SafeLoader):
    """YAML in which no key may stand twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = [key for index, key in enumerate(keys) if key in keys[:index]]
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice[0]!r} stands twice", node.start_mark)
        return dict(super().construct_mapping(node, deep))


def _problems(mapping: LibraryMapping) -> Iterable[str]:
    """What a schema cannot say: unknown roles, patterns without a name."""
    for field, call in (
        ("set_device", mapping.set_device),
        ("handle", mapping.handle.create),
        ("tensor", mapping.tensor.create),
    ):
        yield from _wrong_roles(f"{field}.arguments", call.arguments, _PLAIN[field], named=())
    for field in Protocol.__struct_fields__:
        if "{name}" not in getattr(mapping.protocol, field):
            yield f"protocol.{field} is {getattr(mapping.protocol, field)!r}, but should contain {{name}}"
    for name, operator in mapping.operators.items():
        for field in ("create", "run"):
            yield from _wrong_roles(f"operators.{name}.{field}", getattr(operator, field), _PLAIN[field], named=_NAMED)


def _wrong_roles(where: str, roles: Sequence[str], plain: Sequence[str], *, named: Sequence[str]) -> Iterable[str]:
    for index, text in enumerate(roles):
        why = _wrong_role(text, plain, named)
        if why:
            yield f"{where}[{index}] is {text!r}, {why}"


def _wrong_role(text: str, plain: Sequence[str], named: Sequence[str]) -> str:
    found = _ROLE.fullmatch(text)
    forms = (*plain, *(f"{kind}:NAME" for kind in named))
    if found is None or found["kind"] not in (*plain, *named):
        near = nearest(found["kind"] if found else text, (*plain, *named))
        return f"which is no role here; {f'did you mean {near}? ' if near else ''}known: {', '.join(forms)}"
    if (found["name"] is not None) != (found["kind"] in named):
        return f"but should be one of {', '.join(forms)}"
    if found["kind"] == "attribute" and found["type"] not in _TYPES:
        return f"but should say its C type: 'attribute:{found['name']} as {'|'.join(_TYPES)}'"
    if found["kind"] != "attribute" and found["type"]:
        return "but only an attribute has a C type"
    return ""


def unknown_names(operator: OperatorMapping, descriptor: OperatorDescriptor) -> list[str]:
    """What a mapping names and optest's operator does not have."""
    known = {
        "input": [each.name for each in descriptor.tensors.inputs],
        "output": list(descriptor.tensors.outputs),
        "attribute": [each.name for each in descriptor.attributes],
    }
    start = operator.starts_as
    roles = [*operator.roles()]
    if start is not None:
        roles += [Role(kind="output", name=start.output), Role(kind="input", name=start.input)]
        roles += [Role(kind="attribute", name=name) for name in start.without]
    wrong = [role for role in roles if role.kind in known and role.name not in known[role.kind]]
    return [
        f"{descriptor.name} has no {role.kind} {role.name!r}; it has {', '.join(known[role.kind]) or 'none'}"
        for role in dict.fromkeys(wrong)
    ]


def drift(where: str, roles: Sequence[Role], prototype: Prototype) -> str | None:
    """Why the header's prototype is not what the roles say, naming the argument; None if they agree."""
    shown = f"\n  at {prototype.where}: {prototype}"
    if len(roles) != len(prototype.parameters):
        return (
            f"{where} has {len(roles)} arguments, but {prototype.name} should have {len(prototype.parameters)}{shown}"
        )
    for index, (role, parameter) in enumerate(zip(roles, prototype.parameters, strict=True)):
        why = _misfit(role, parameter)
        if why:
            return f"{where}: {prototype.label(index)} of {prototype.name} is {parameter}, but {role.key} {why}{shown}"
    return None


def _misfit(role: Role, parameter: Parameter) -> str:
    type_ = parameter.type
    if role.kind == "attribute":
        fits = {
            "float": type_.kind is CKind.FLOAT and type_.size == 4,
            "double": type_.kind is CKind.FLOAT and type_.size == 8,
            "int": type_.is_integer,
            "bool": type_.kind is CKind.BOOL,
        }[role.type]
        return "" if fits else f"should be {_TYPES[role.type]}"
    if role.kind in _INTEGERS:
        return "" if type_.is_integer else "should be an integer"
    if not type_.is_pointer:
        return "should be a pointer"
    if role.kind in ("output", "slot", "workspace") and parameter.is_const:
        return "should point at what may be written"
    return ""
