"""How a C library is called, as data: a YAML file that maps operators to functions and arguments to roles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from optest.backends import wrong_numerics
from optest.backends.c_library.direct import DirectCall, problems_of
from optest.backends.c_library.roles import CALL_KINDS, Role, StartsAs, wrong_role
from optest.errors import UsageError, nearest
from optest.spec import OperatorDescriptor, UnfitArguments

__all__ = [
    "REFUSALS",
    "SIZE",
    "Call",
    "LibraryMapping",
    "OperatorMapping",
    "mapping_path",
    "read_mapping",
    "unknown_names",
]

REFUSALS = {
    "dtype": "a dtype that the operator does not have, or tensors of several",
    "shape": "tensors whose shapes do not fit one another, or of a rank that the operator does not have",
    "stride-0-output": "an output with several elements at one place",
    "overlap": "an output that overlaps an input, and is not that input with its layout",
    "null": "NULL in place of data, a workspace or an operator descriptor",
    "null-descriptor": "NULL in place of a handle or a tensor descriptor",
    "workspace": "a workspace that is too short",
    "index": "an index that a tensor does not have",
}
"""Kinds of wrong calls."""
SIZE = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\[(?P<dim>-?[0-9]{1,2})\]|\.dtype)")
"""A size of a tensor, or its dtype."""
_FOLDER = Path(__file__).parent / "mappings"
_PLAIN = {
    "set_device": ("device", "device_id"),
    "handle": ("slot", "null"),
    "tensor": ("slot", "ndim", "shape", "strides", "dtype"),
    "create": ("handle", "slot", "null"),
    "run": ("descriptor", "workspace", "workspace_size", "stream", "null"),
    "get_device": ("device_slot", "device_id_slot"),
    "synchronize": ("stream", "null"),
}


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


class Threads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What sets the number of threads: functions of the library, and variables that it reads with each descriptor."""

    functions: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


class Counting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Positions 0, 1, 2 … in place of an input that is left out: as many as ``of`` has in dimension ``dim``."""

    of: str
    dim: int
    dtype: str


class OperatorMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operator: ``broadcasts`` where C wants operands of the output's shape, which strides of 0 give them.

    What the library says that it has: ``dtypes`` that all tensors share (() for every one of the library's), but those
    in ``dtypes_of``, each with its own list, in which ``same`` is the shared one; ``ranks`` by tensor. ``in_place`` are
    the inputs that an output may be, with the same layout; ``output_layouts`` the layouts that an output may have;
    ``refuses`` what it promises to refuse, where that is not what the library promises; ``indexes`` says of which
    tensor's dimension an input holds indices (``{position_ids: "cos[0]"}``).

    Where C differs: ``choices`` are C's numbers (or names of them in the headers) for an attribute's values;
    ``left_out`` what is passed for an attribute that is none, perhaps by the first input's dtype (``other`` is the
    rest); ``implied`` the only values of attributes that are not passed, such as a size (``[input[-1]]``) or a dtype
    (``out.dtype``) of tensors;
    ``always`` attributes by which optest's operator gives all outputs that C has; ``arange`` positions for an input
    that is left out; ``swapped`` two dimensions of a tensor that C has the other way round, or the attribute
    by which its last two are.
    """

    name: str
    create: tuple[str, ...]
    run: tuple[str, ...]
    broadcasts: bool = False
    workspace: bool = True
    starts_as: StartsAs | None = None
    dtypes: tuple[str, ...] = ()
    dtypes_of: Mapping[str, tuple[str, ...]] = {}
    ranks: Mapping[str, tuple[int, ...]] = {}
    in_place: tuple[str, ...] = ()
    output_layouts: Literal["any", "dense"] = "any"
    refuses: tuple[str, ...] | None = None
    indexes: Mapping[str, str] = {}
    choices: Mapping[str, Mapping[Any, bool | int | float | str]] = {}
    left_out: Mapping[str, int | float | str | Mapping[str, int | float | str]] = {}
    implied: Mapping[str, Any] = {}
    always: Mapping[str, Any] = {}
    arange: Mapping[str, Counting] = {}
    swapped: Mapping[str, tuple[int, int] | str] = {}

    def roles(self) -> tuple[Role, ...]:
        """Those of both functions, in order."""
        return _parsed((*self.create, *self.run))


@lru_cache(maxsize=256)
def _parsed(roles: tuple[str, ...]) -> tuple[Role, ...]:
    return tuple(map(Role.parse, roles))


_NO_CALL = Call(function="", arguments=())
_NOTHING_MADE = Made(create=_NO_CALL, destroy="")
_NO_PROTOCOL = Protocol(create="", workspace="", run="", destroy="")
_OF_DESCRIPTORS = ("status", "set_device", "handle", "tensor", "protocol")


_MOST_ALIGNED = 4096
"""Bytes of a page."""


class LibraryMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole file. ``unsupported`` names statuses by which the library says that it does not have a kernel.

    ``operators`` are those that a descriptor is made for; ``direct`` those of one function, which a file states among
    ``operators`` as well, one or a list of them. ``headers`` are looked for by the compiler where no folder is stated.
    ``negative_increments`` says where the pointer of a vector points that is walked backwards: at its first element,
    or at its lowest address, as in BLAS.

    ``refuses`` are the kinds of wrong calls (:data:`REFUSALS`) for which the library promises a status; a check asks
    for them. ``synchronize`` returns when all work on the device is done; timings wait with it.
    ``get_device`` says which device is selected: one that was refused must not be. ``threads`` is what
    sets their number. ``numerics`` says by device what is
    declared of its arithmetic, in fields of :class:`optest.spec.Numerics`. ``alignment`` is what the pointers
    to tensors have to be multiples of, in bytes, beyond what their elements need.
    """

    version: Literal[1]
    name: str
    library: tuple[str, ...]
    headers: tuple[str, ...] = ()
    status: str = ""
    dtypes: Mapping[str, str] = {}
    devices: Mapping[str, int] = msgspec.field(default_factory=lambda: {"cpu": 0})
    set_device: Call = _NO_CALL
    handle: Made = _NOTHING_MADE
    tensor: Made = _NOTHING_MADE
    protocol: Protocol = _NO_PROTOCOL
    operators: Mapping[str, OperatorMapping] = {}
    direct: Mapping[str, tuple[DirectCall, ...]] = {}
    negative_increments: Literal["first", "lowest"] = "first"
    unsupported: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()
    synchronize: Call | None = None
    numerics: Mapping[str, Mapping[str, Any]] = {}
    alignment: int = 1
    get_device: Call | None = None
    threads: Threads = Threads()

    def entry(self, descriptor: OperatorDescriptor) -> OperatorMapping | None:
        """What the mapping says of an operator, under its name or an alias; None if nothing."""
        key = self.key(descriptor)
        return None if key is None else self.operators[key]

    def key(self, descriptor: OperatorDescriptor) -> str | None:
        """The name under which the mapping has an operator."""
        return next((name for name in (descriptor.name, *descriptor.aliases) if name in self.operators), None)

    def promised(self, entry: OperatorMapping) -> tuple[str, ...]:
        """The kinds of wrong calls that an operator refuses."""
        return self.refuses if entry.refuses is None else entry.refuses

    @property
    def names(self) -> tuple[str, ...]:
        """The operators that can be called, in either way."""
        return (*self.operators, *self.direct)


_LISTS_OF_WORDS = ("call", "create", "run", "arguments", "refuses")


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
        mapping = msgspec.convert(_with_direct(_with_words(data)), LibraryMapping)
    except yaml.YAMLError as error:
        raise UsageError(f"mapping {path} is no YAML: {error}") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"mapping {path}: {_located(str(error), data)}") from None
    problems = list(_problems(mapping))
    if problems:
        raise UsageError("\n".join(f"mapping {path}: {problem}" for problem in problems))
    return mapping


def _with_words(data: Any) -> Any:
    """``null`` in a list of roles or refusals is a word of the mapping, with or without quotes."""
    if isinstance(data, list):
        return [_with_words(each) for each in data]
    if not isinstance(data, dict):
        return data
    return {
        key: ["null" if each is None else each for each in value]
        if key in _LISTS_OF_WORDS and isinstance(value, list)
        else _with_words(value)
        for key, value in data.items()
    }


def _located(said: str, data: Any) -> str:
    """A schema's complaint about an operator, with the operator's name and the keys that could stand there."""
    for where, entry, kind in _entries(_with_direct(_with_words(data))):
        try:
            msgspec.convert(entry, kind)
        except msgspec.ValidationError as error:  # noqa: PERF203 - the first that is wrong is found
            return f"{where}: {error}" + _known_keys(entry, kind)
    return said


def _entries(read: Any) -> Iterable[tuple[str, Any, type]]:
    if not isinstance(read, dict):
        return
    if isinstance(read.get("operators"), dict):
        yield from ((f"operators.{name}", each, OperatorMapping) for name, each in read["operators"].items())
    for name, alternatives in read.get("direct", {}).items():
        for index, each in enumerate(alternatives):
            yield f"operators.{name}" + (f"[{index}]" if len(alternatives) > 1 else ""), each, DirectCall


def _known_keys(entry: Any, kind: Any) -> str:
    fields = kind.__struct_fields__
    unknown = [key for key in entry if key not in fields] if isinstance(entry, dict) else []
    if not unknown:
        return ""
    near = nearest(str(unknown[0]), fields)
    return f"; {f'did you mean {near}? ' if near else ''}known: {', '.join(fields)}"


def _with_direct(data: Any) -> Any:
    """The operators that are one function apart from those that a descriptor is made for."""
    stated = data.get("operators") if isinstance(data, dict) else None
    if not isinstance(stated, dict):
        return data
    direct = {
        name: each if isinstance(each, list) else [each]
        for name, each in stated.items()
        if isinstance(each, list) or (isinstance(each, dict) and ("call" in each or "functions" in each))
    }
    others = {name: each for name, each in stated.items() if name not in direct}
    return {**data, "operators": others, **({"direct": direct} if direct else {})}


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
    yield from _problems_of_numerics(mapping)
    yield from _problems_of_alignment(mapping.alignment)
    yield from _wrong_roles(
        "handle.create.arguments", mapping.handle.create.arguments, _PLAIN["handle"], named=("constant",)
    )
    if mapping.handle == _NOTHING_MADE:
        for name, alternatives in mapping.direct.items():
            if any("handle" in entry.call for entry in alternatives):
                yield f"operators.{name}.call has handle, so the file should say how it is made, under handle"
                break
    for name, alternatives in mapping.direct.items():
        for index, direct in enumerate(alternatives):
            yield from problems_of(f"operators.{name}" + (f"[{index}]" if len(alternatives) > 1 else ""), direct)
    if mapping.operators or not mapping.direct:
        yield from _problems_of_descriptors(mapping)


def _problems_of_alignment(alignment: int) -> Iterable[str]:
    if not 1 <= alignment <= _MOST_ALIGNED or alignment & (alignment - 1):
        yield f"alignment is {alignment}, but should be a power of two from 1 to {_MOST_ALIGNED}"


def _problems_of_numerics(mapping: LibraryMapping) -> Iterable[str]:
    for device, stated in mapping.numerics.items():
        if device not in mapping.devices:
            yield f"numerics.{device} is no device of this file; it has {', '.join(mapping.devices)}"
        wrong = wrong_numerics(stated)
        if wrong is not None:
            yield f"numerics.{device} has {wrong}"


def _problems_of_descriptors(mapping: LibraryMapping) -> Iterable[str]:
    missing = [
        name for name in _OF_DESCRIPTORS if getattr(mapping, name) in ("", _NO_CALL, _NOTHING_MADE, _NO_PROTOCOL)
    ]
    if missing:
        yield f"{', '.join(missing)} missing; operators that descriptors are made for need them"
        return
    for field, call in (
        ("set_device", mapping.set_device),
        ("tensor", mapping.tensor.create),
    ):
        yield from _wrong_roles(f"{field}.arguments", call.arguments, _PLAIN[field], named=())
    for field in ("synchronize", "get_device"):
        call = getattr(mapping, field)
        if call is not None:
            yield from _wrong_roles(f"{field}.arguments", call.arguments, _PLAIN[field], named=())
    for field in Protocol.__struct_fields__:
        if "{name}" not in getattr(mapping.protocol, field):
            yield f"protocol.{field} is {getattr(mapping.protocol, field)!r}, but should contain {{name}}"
    for name, operator in mapping.operators.items():
        wrong = [*_wrong_calls(f"operators.{name}", operator)]
        yield from wrong
        yield from _wrong_dtypes(f"operators.{name}", operator, mapping.dtypes)
        yield from _wrong_words(f"operators.{name}.refuses", operator.refuses or ())
        if not wrong:
            yield from _wrong_data(f"operators.{name}", operator, mapping.dtypes)
    yield from _wrong_words("refuses", mapping.refuses)


def _wrong_calls(where: str, operator: OperatorMapping) -> Iterable[str]:
    for field in ("create", "run"):
        yield from _wrong_roles(f"{where}.{field}", getattr(operator, field), _PLAIN[field], named=CALL_KINDS)


def _wrong_words(where: str, words: Sequence[str]) -> Iterable[str]:
    for each in words:
        if each not in REFUSALS:
            near = nearest(each, REFUSALS)
            hint = f"did you mean {near}? " if near else ""
            yield f"{where} has {each!r}; {hint}known: {', '.join(REFUSALS)}"


def _wrong_data(where: str, operator: OperatorMapping, dtypes: Iterable[str]) -> Iterable[str]:
    """What of the further keys nobody reads, or nobody could."""
    roles = operator.roles()
    passed = [role.name for role in roles if role.kind in ("attribute", "tensor")]
    arrays = [role.name for role in roles if role.is_array]
    for role in roles:
        if role.kind == "count" and role.name not in arrays:
            yield f"{where} counts {role.name!r}, which no role passes as an array; arrays: {_listed(arrays)}"
    for key in ("choices", "left_out"):
        for name in getattr(operator, key):
            if name not in passed:
                yield f"{where}.{key} names {name!r}, which no role passes; attributes that are: {_listed(passed)}"
    for name, rule in operator.implied.items():
        for size in rule if isinstance(rule, (list, tuple)) else (rule,):
            if isinstance(size, str) and ("[" in size or "." in size) and not SIZE.fullmatch(size):
                yield f"{where}.implied.{name} has {size!r}, but should look like 'input[-1]' or 'out.dtype'"
    for name, counting in operator.arange.items():
        if counting.dtype not in dtypes:
            near = nearest(counting.dtype, list(dtypes))
            hint = f"did you mean {near}?" if near else "see the file's dtypes"
            yield f"{where}.arange.{name}.dtype is {counting.dtype!r}; {hint}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"


def _wrong_dtypes(where: str, operator: OperatorMapping, known: Iterable[str]) -> Iterable[str]:
    stated = {"dtypes": operator.dtypes, **{f"dtypes_of.{name}": each for name, each in operator.dtypes_of.items()}}
    for key, names in stated.items():
        allowed = [*known, *(["same"] if key != "dtypes" else [])]
        for name in names:
            if name not in allowed:
                near = nearest(name, allowed)
                yield f"{where}.{key} has {name!r}; " + (f"did you mean {near}?" if near else "see the file's dtypes")


def _wrong_roles(where: str, roles: Sequence[str], plain: Sequence[str], *, named: Sequence[str]) -> Iterable[str]:
    for index, text in enumerate(roles):
        why = wrong_role(text, plain, named)
        if why:
            yield f"{where}[{index}] is {text!r}, {why}"


def unknown_names(operator: OperatorMapping, descriptor: OperatorDescriptor) -> list[str]:
    """What a mapping names and optest's operator does not have."""
    inputs = [each.name for each in descriptor.tensors.inputs]
    outputs, attributes = list(descriptor.tensors.outputs), [each.name for each in descriptor.attributes]
    tensors = [*inputs, *outputs]
    known = {"input": inputs, "scalar": inputs, "output": outputs, "tensor": attributes, "attribute": attributes}
    start = operator.starts_as
    named = [(role.kind, role.name, known[role.kind]) for role in operator.roles() if role.kind in known]
    named += [("input", name, inputs) for name in (*operator.in_place, *operator.arange)]
    named += [("input", counting.of, inputs) for counting in operator.arange.values()]
    named += [("tensor", name, tensors) for name in (*operator.dtypes_of, *operator.ranks, *operator.swapped)]
    if start is not None:
        named += [("output", start.output, outputs), ("input", start.input, inputs)]
        named += [("attribute", name, attributes) for name in start.without]
    named += [("attribute", name, attributes) for name in operator.swapped.values() if isinstance(name, str)]
    stated = (*operator.choices, *operator.left_out, *operator.implied, *operator.always)
    named += [("attribute", name, attributes) for name in stated]
    for rule in operator.implied.values():
        texts = [each for each in (rule if isinstance(rule, list) else [rule]) if isinstance(each, str)]
        named += [("tensor", size["name"], tensors) for size in map(SIZE.fullmatch, texts) if size]
    wrong = dict.fromkeys((kind, name, tuple(having)) for kind, name, having in named if name not in having)
    told = [_unknown(descriptor.name, *each) for each in wrong]
    return told or list(_unfit_attributes(operator, descriptor))


def _unfit_attributes(operator: OperatorMapping, descriptor: OperatorDescriptor) -> Iterable[str]:
    told = (_unfit(descriptor, name, value) for name, value in operator.always.items())
    return [f"always: {why}" for why in told if why]


def _unfit(descriptor: OperatorDescriptor, name: str, value: Any) -> str:
    try:
        descriptor.attribute(name).read(value)
    except UnfitArguments as error:
        return str(error)
    return ""


def _unknown(operator: str, kind: str, name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    hint = f"did you mean {near}? " if near else ""
    what = "attribute" if kind == "tensor" and not known else kind
    return f"{operator} has no {what} {name!r}; {hint}it has {_listed(known)}"
