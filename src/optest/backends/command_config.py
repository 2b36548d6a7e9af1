"""Reader of ``backend_config.command`` (or ``.ascend``) that collects all errors of the section."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from os.path import isdir, normpath
from pathlib import Path
from typing import Any

from optest.backends.capabilities import LAYOUTS, Capability
from optest.backends.sections import SectionReader
from optest.backends.tokens import expand, problems_of, tokens_of
from optest.errors import UnknownName, did_you_mean
from optest.spec import DType, Fault, TensorSpec, TestCase, dtype, dtype_names, format_shape
from optest.store import path_of

Command = tuple[str, ...]

_KEYS = ("workdir", "command", "build", "prepare", "cleanup", "inputs", "outputs", "env", "golden", "promises")
_PROMISES = ("dtypes", "ranks", "layouts", "broadcasts", "promotes", "refuses", "ignores")
_OF_A_SIZE = re.compile(r"(shape|numel|rank)\d+(\[\d+\])?|input\d+")
_OTHER_NAMES = {
    "pre_run": "call it 'prepare'",
    "post_run": "call it 'cleanup'",
    "cmd": "call it 'command'",
    "timeout": "it belongs to the case, next to 'backend_config'",
    "retries": "it belongs to the case, next to 'backend_config'",
    "cwd": "call it 'workdir'",
    "environment": "call it 'env'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFile:
    """A tensor of the case and the file that it is exchanged in: raw, little-endian, row-major, without a header."""

    tensor: str
    spec: TensorSpec
    path: str
    dtype: DType

    @property
    def nbytes(self) -> int:
        return self.spec.elements * self.dtype.itemsize_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandConfig:
    """A section as read, with tokens not yet replaced."""

    workdir: str = "."
    command: Command = ()
    build: tuple[Command, ...] = ()
    prepare: tuple[Command, ...] = ()
    cleanup: tuple[Command, ...] = ()
    inputs: tuple[TensorFile, ...] = ()
    outputs: tuple[TensorFile, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    golden_load: tuple[TensorFile, ...] = ()
    golden_dump: tuple[TensorFile, ...] = ()


def read_config(case: TestCase, section: str) -> tuple[CommandConfig, list[str]]:
    """Return ``backend_config.<section>`` of a case, and its errors; with errors it cannot run."""
    reader = _Reader(case, section)
    return reader.config(), reader.problems


class _Reader(SectionReader):
    def __init__(self, case: TestCase, section: str) -> None:
        super().__init__(case, section, "'command' and other keys")
        self.case_tokens = tuple(case_tokens(case))
        # These tokens are replaced by the absolute paths of files.
        outputs = [f"output{index}" for index in range(len(case.outputs or case.descriptor.tensors.outputs))]
        self.all_tokens = (*self.case_tokens, "workdir", *(argument.path for argument in case.inputs), *outputs)

    def config(self) -> CommandConfig:
        self.unknown_keys(self.section, _KEYS, others=_OTHER_NAMES)
        specs = {argument.path: argument.spec for argument in self.case.inputs}
        inputs = self._files("inputs", self.section.get("inputs"), specs, "input/{}.bin")
        outputs = self._files("outputs", self.section.get("outputs"), self._output_specs(), "output/{}.bin")
        owners: dict[str, str] = {}
        for file in (*inputs, *outputs):
            owner = owners.setdefault(normpath(file.path), file.tensor)
            if owner != file.tensor:
                self.add_problem(
                    "", f"has the path {file.path!r} for {owner} and for {file.tensor}; give each its own file"
                )
        load, dump = self._golden(outputs)
        # A file that the command reads or writes cannot be the expected output.
        for file in dict.fromkeys((*load, *dump)):
            if tensor := owners.get(normpath(file.path)):
                self.add_problem(
                    "golden", f"has the path {file.path!r}, which the command uses for {tensor}; choose another"
                )
        workdir = self._text("workdir", self.section.get("workdir", "."), self.case_tokens)
        path = Path(self.case.base_dir, workdir)
        if "{" not in workdir and not isdir(path):
            self.add_problem("workdir", f"is {workdir!r}, but {str(path)!r} is no directory")
        self._require_allowed_paths(workdir, (*inputs, *outputs, *load, *dump))
        _read_promises(self)
        return CommandConfig(
            workdir=workdir,
            command=self._command(),
            build=self._commands("build"),
            prepare=self._commands("prepare"),
            cleanup=self._commands("cleanup"),
            inputs=inputs,
            outputs=outputs,
            env=self._env(),
            golden_load=load,
            golden_dump=dump,
        )

    def _text(self, key: str, value: Any, tokens: Sequence[str] = ()) -> str:
        """Return a path, argument or environment value as text; report unknown tokens (not in ``tokens``, else all)."""
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            self.add_problem(key, f"is {value!r}, expected a string")
            return ""
        for problem in problems_of(str(value), tokens or self.all_tokens):
            self.add_problem(key, problem)
        if "{chip}" in str(value) and self.case.backend.chip is None:
            self.add_problem(key, f"{value!r}: {{chip}} is used, but no chip is selected; add `chip:` or --chip")
        return str(value)

    def _require_allowed_paths(self, workdir: str, files: Sequence[TensorFile]) -> None:
        """Report a path of an untrusted plan that leaves its folder."""
        # A link may appear later, so paths are checked again at each use.
        if not self.case.allowed_folders or self.problems:
            return
        tokens = path_tokens(self.case)
        try:
            folder = path_of(self.case, expand(workdir, tokens))
            for file in files:
                path_of(self.case, expand(file.path, tokens), folder)
        except Fault as fault:
            self.add_problem("", f"has a path that is not allowed: {fault.message}")

    def _command(self) -> Command:
        if "command" not in self.section:
            self.add_problem("command", "is missing; it should be a list such as [bash, run.sh]")
            return ()
        return self._read_command("command", self.section["command"])

    def _read_command(self, key: str, value: Any) -> Command:
        if isinstance(value, str):
            try:
                words = shlex.split(value)
            except ValueError:
                words = [value]
            plain = re.compile(r"[\w./][\w./=+-]*")
            listed = ", ".join(word if plain.fullmatch(word) else repr(word) for word in words)
            self.add_problem(key, f"is {value!r}, expected a list, since it is not run by a shell: [{listed}]")
            return ()
        if not isinstance(value, (list, tuple)) or not value:
            self.add_problem(key, f"is {value!r}, expected a list such as [bash, run.sh]")
            return ()
        return tuple(self._text(f"{key}[{index}]", part) for index, part in enumerate(value))

    def _commands(self, key: str) -> tuple[Command, ...]:
        value = self.section.get(key)
        if value is None or value == []:
            return ()
        if isinstance(value, (list, tuple)) and all(isinstance(part, (list, tuple)) for part in value):
            return tuple(self._read_command(f"{key}[{index}]", part) for index, part in enumerate(value))
        if isinstance(value, (list, tuple)) and any(isinstance(part, (list, tuple)) for part in value):
            self.add_problem(key, "mixes words and lists, expected one command or a list of commands")
            return ()
        return (self._read_command(key, value),)

    def _env(self) -> dict[str, str]:
        value = self.section.get("env", {})
        if not isinstance(value, Mapping):
            self.add_problem("env", f"is {value!r}, expected a map from names to values")
            return {}
        for name in value:
            if not isinstance(name, str) or not name or "=" in name:
                self.add_problem("env", f"has the name {name!r}, expected names of environment variables")
        return {str(name): self._text(f"env.{name}", entry) for name, entry in value.items()}

    def _output_specs(self) -> dict[str, TensorSpec]:
        if not self.case.outputs:
            names = self.case.descriptor.tensors.outputs
            self.problems.append(
                f"case {self.case.id}: the shapes of the outputs are not known, but a file has to be read; "
                f"add them under `shapes:`, as {', '.join(f'output{index}' for index in range(len(names)))}"
            )
            return {}
        return {f"output{index}": spec for index, spec in enumerate(self.case.outputs)}

    def _files(
        self, key: str, value: Any, specs: Mapping[str, TensorSpec], default: str, *, partly: bool = False
    ) -> tuple[TensorFile, ...]:
        """Return the file of every tensor in ``specs``. A tensor without an entry gets the ``default`` path, or no file
        if ``partly``."""
        entries: dict[str, Mapping[str, Any]] = {}
        for where, name, entry in self.entries(key, value):
            tensor = self.tensor(where, name, specs)
            if tensor is None:
                continue
            if tensor in entries:
                self.add_problem(where, f"names {name!r}, which has a file already")
            entries[tensor] = entry
        return tuple(
            self._file(key, tensor, spec, entries.get(tensor, {}), default)
            for tensor, spec in specs.items()
            if tensor in entries or not partly
        )

    def entries(self, key: str, value: Any) -> list[tuple[str, str, Mapping[str, Any]]]:
        """Return ``(location, tensor name, {path, dtype})`` for each entry of a list or map of files."""
        if value is None:
            return []
        if isinstance(value, Mapping):
            pairs = [(f"{key}.{name}", name, entry) for name, entry in value.items()]
        elif isinstance(value, (list, tuple)):
            pairs = [(f"{key}[{index}]", None, entry) for index, entry in enumerate(value)]
        else:
            self.add_problem(
                key, f"is {value!r}, expected a list of {{tensor, path, dtype}} or a map from names to paths"
            )
            return []
        entries: list[tuple[str, str, Mapping[str, Any]]] = []
        for where, name, entry in pairs:
            if name is not None and isinstance(entry, str):
                entries.append((where, str(name), {"path": entry}))
                continue
            if not isinstance(entry, Mapping):
                self.add_problem(
                    where, f"is {entry!r}, expected {'a path or ' if name else ''}a map with path and dtype"
                )
                continue
            self.unknown_keys(
                entry, ("path", "dtype") if name is not None else ("tensor", "path", "dtype"), inside=where
            )
            tensor = entry.get("tensor") if name is None else name
            if isinstance(tensor, str):
                entries.append((where, tensor, entry))
            else:
                self.add_problem(where, "has no tensor; name one, such as input0")
        return entries

    def tensor(self, where: str, name: str, specs: Mapping[str, TensorSpec] | None = None) -> str | None:
        """Return the positional name of a tensor (``input0``); None, with a problem, if it is unknown or not in
        ``specs``."""
        signature = self.case.descriptor.tensors
        try:
            side, index = signature.locate(name)
        except UnknownName as error:
            self.add_problem(where, f"names a tensor that {self.case.descriptor.name} does not have: {error}")
            return None
        tensor = f"{side}{index}"
        if specs and tensor not in specs:
            self.add_problem(where, f"names {name!r}, but the case has {', '.join(specs)} here")
        return tensor if specs is None or tensor in specs else None

    def _file(self, key: str, tensor: str, spec: TensorSpec, entry: Mapping[str, Any], default: str) -> TensorFile:
        where = f"{key}.{tensor}"
        path = self._text(f"{where}.path", entry.get("path", default.format(tensor)), self.case_tokens)
        kind = spec.dtype
        name = entry.get("dtype")
        if name is not None:
            try:
                kind = dtype(name) if isinstance(name, str) else kind
            except UnknownName as error:
                self.add_problem(f"{where}.dtype", f"is not known: {error}")
            if not isinstance(name, str):
                self.add_problem(f"{where}.dtype", f"is {name!r}, expected the name of a dtype")
        if key != "inputs" and kind is not spec.dtype:
            self.add_problem(
                f"{where}.dtype",
                f"is {kind}, but {self.case.descriptor.name} returns {spec.dtype} here; "
                "the dtype follows from the case's `dtypes:`",
            )
        return TensorFile(tensor=tensor, spec=spec, path=path, dtype=kind)

    def _golden(self, outputs: Sequence[TensorFile]) -> tuple[tuple[TensorFile, ...], tuple[TensorFile, ...]]:
        """Return the golden files to compare with and those to create; one list or map is for both."""
        value = self.section.get("golden")
        specs = {file.tensor: file.spec for file in outputs}
        if not isinstance(value, Mapping) or not set(value) & {"load", "dump"}:
            both = self._golden_files("golden", value, specs)
            return both, both
        self.unknown_keys(value, ("load", "dump"), inside="golden")
        load = self._golden_files("golden.load", value.get("load"), specs)
        return load, self._golden_files("golden.dump", value.get("dump"), specs)

    def _golden_files(self, key: str, value: Any, specs: Mapping[str, TensorSpec]) -> tuple[TensorFile, ...]:
        files = self._files(key, value, specs, "golden/{}.bin", partly=True)
        if files and len(files) != len(specs):
            self.add_problem(key, f"has {', '.join(file.tensor for file in files)}, expected every output")
        return files


def why_outside(case: TestCase, section: str) -> str | None:
    """Return why the case is outside of the section's ``promises``; None if it is inside, or without promises.

    A promised command depends on tokens and files only: attributes without a token must have their defaults, and no
    optional input may be given except those that the section names. A case without an input that a token names, or
    without the dimension of a token (``{shape0[1]}`` of a vector), is outside.
    """
    section_value: Any = case.backend_config.get(section, {})
    if not isinstance(section_value, Mapping) or "promises" not in section_value:
        return None
    reader = _Reader(case, section)
    capability, ignored = _read_promises(reader)
    files = [reader.tensor(where, name) for where, name, _ in reader.entries("inputs", reader.section.get("inputs"))]
    if reader.problems:
        return None  # `problems` of the driver reports them
    if outside := capability.lacks(case):
        return outside
    used = {*filter(None, files), *(token for text in _nested_texts(section_value) for token in tokens_of(text))}
    for attribute in case.descriptor.attributes:
        value = case.attributes.get(attribute.name, attribute.default)
        names = (attribute.name, *attribute.aliases)
        is_used = any(name in ignored or f"attr:{name}" in used for name in names)
        if not is_used and not attribute.is_default(value, case.inputs[0].spec.rank if case.inputs else 0):
            value = [*value] if isinstance(value, tuple) else value
            return f"the command takes no {{attr:{attribute.name}}}, which is {value!r} here"
    optional = {parameter.name for parameter in case.descriptor.tensors.inputs if parameter.optional}
    unused = [argument for argument in case.inputs if argument.name in optional and argument.path not in used]
    if unused and any(token.startswith("input") for token in used):
        return f"the command takes no {{{unused[0].path}}}, the optional {unused[0].name}"
    missing = sorted(token for token in used - {*case_tokens(case)} if _OF_A_SIZE.fullmatch(token))
    missing = [token for token in missing if token not in {argument.path for argument in case.inputs}]
    return f"the command takes {{{missing[0]}}}, which the case does not have" if missing else None


def _read_promises(reader: SectionReader) -> tuple[Capability, tuple[str, ...]]:
    """Return the capability in ``promises``, and the attributes that the program derives from the shapes."""
    promises = reader.section.get("promises", {})
    if not isinstance(promises, Mapping):
        reader.add_problem("promises", f"is {promises!r}, expected a map with {', '.join(_PROMISES)}")
        return Capability(), ()
    reader.unknown_keys(promises, _PROMISES, inside="promises")
    lists = {name: promises.get(name, ()) for name in ("dtypes", "ranks", "layouts", "ignores")}
    lists = {name: [value] if isinstance(value, (str, int)) else value for name, value in lists.items()}
    known = {"dtypes": dtype_names(), "layouts": LAYOUTS}
    for name, values in lists.items():
        kind = int if name == "ranks" else str
        if not isinstance(values, (list, tuple)) or not all(type(value) is kind for value in values):
            reader.add_problem(f"promises.{name}", f"is {promises[name]!r}, expected a list of {kind.__name__}")
            lists[name] = ()
        unknown = [value for value in lists[name] if name in known and value not in known[name]]
        for value in unknown:
            hint = did_you_mean(value, known[name], f"known: {', '.join(known[name])}")
            reader.add_problem(f"promises.{name}", f"has {value!r}; {hint}")
        lists[name] = () if unknown else lists[name]
    for name in ("broadcasts", "promotes", "refuses"):
        if not isinstance(promises.get(name, False), bool):
            reader.add_problem(f"promises.{name}", f"is {promises[name]!r}, expected true or false")
    capability = Capability(
        dtypes=tuple(lists["dtypes"]),
        ranks=tuple(lists["ranks"]),
        layouts=tuple(lists["layouts"]) or ("dense",),  # files are dense: another layout would be the same case again
        broadcasts=bool(promises.get("broadcasts", True)),
        promotes=bool(promises.get("promotes", True)),
        refuses=bool(promises.get("refuses", False)),
    )
    return capability, tuple(lists["ignores"])


def _nested_texts(value: Any) -> Iterator[str]:
    """Yield every string in nested maps and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _nested_texts(item)


def file_dtypes(files: Any) -> dict[str, str]:
    """Return the dtypes in a list or map of files, by tensor; without malformed entries (see :func:`read_config`)."""
    if isinstance(files, Mapping):
        files = [{"tensor": name, **entry} for name, entry in files.items() if isinstance(entry, Mapping)]
    if not isinstance(files, (list, tuple)):
        return {}
    pairs = ((entry.get("tensor"), entry.get("dtype")) for entry in files if isinstance(entry, Mapping))
    return {name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str)}


def case_tokens(case: TestCase) -> dict[str, str]:
    """Return the tokens that depend on the case only, with their values; paths may contain them, too."""
    kinds = [entry.name for entry in case.dtypes] or [spec.dtype.name for spec in case.outputs]
    shapes = {argument.path.removeprefix("input"): argument.spec.shape for argument in case.inputs}
    return {
        "dtype": kinds[0] if kinds else "",
        "dtypes": ",".join(kinds),
        **{f"shape{index}": format_shape(shape) for index, shape in shapes.items()},
        **{f"shape{index}[{dim}]": str(size) for index, shape in shapes.items() for dim, size in enumerate(shape)},
        **{f"rank{index}": str(len(shape)) for index, shape in shapes.items()},
        **{f"numel{index}": str(prod(shape)) for index, shape in shapes.items()},
        **{
            f"attr:{name}": _attribute_text(case.attributes.get(attribute.name, attribute.default))
            for attribute in case.descriptor.attributes
            for name in (attribute.name, *attribute.aliases)
        },
        "case": case.id,
        "chip": case.backend.chip or "",
        "seed": str(case.seed),
        "op": case.descriptor.name,
    }


def _attribute_text(value: Any) -> str:
    """Return an attribute as one word: 1 or 0 for a bool, "none" for None, a list joined with commas."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(_attribute_text, value))
    return str(int(value)) if isinstance(value, bool) else "none" if value is None else str(value)


def path_tokens(case: TestCase) -> dict[str, str]:
    """Return the tokens with the case name as part of a path: it may contain slashes and brackets."""
    tokens = case_tokens(case)
    return tokens | {"case": re.sub(r"[^\w.+=,-]+", "_", tokens["case"]).strip("._") or "case"}
