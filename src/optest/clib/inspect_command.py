"""``optest ffi inspect``: the report on a library, and with ``--write`` a mapping to start from."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from optest.clib.library.mapping_file import read_mapping
from optest.clib.library.sketch import Sketch, sketch
from optest.clib.library_report import LibraryReport, as_text, inspect
from optest.clib.library_report import as_json as report_as_json
from optest.errors import InternalError, UsageError
from optest.guests import CommandContext
from optest.operators import operators

__all__ = ["WrittenMapping", "inspect_command", "require_writable", "write_mapping"]

_SHOWN = 3


def inspect_command(
    context: CommandContext,
    *,
    library: Sequence[str],
    headers: Sequence[str],
    mapping: str,
    as_json: bool,
    signatures: bool,
    write: str,
    force: bool,
) -> int:
    """What the command line asks for, as :data:`optest.clib.guest.GUEST` declares it.

    Raises:
        UsageError, Unavailable: as :func:`optest.clib.library_report.inspect` and :func:`write_mapping`.
    """
    if force and not write:
        raise UsageError("--force goes with --write")
    if write:
        require_writable(write, mapping=mapping, force=force)
    report = inspect(library, headers, mapping)
    if as_json:
        context.echo(report_as_json(report))
    else:
        for line in as_text(report, signatures=signatures):
            context.echo(line)
    if not write:
        return report.exit_status
    written = write_mapping(report, write, libraries=library, headers=headers, force=force)
    for line in written.lines():
        context.echo(line, err=as_json)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenMapping:
    """The file and what is in it; ``command`` are the options that name the library and its headers."""

    path: str
    sketch: Sketch
    command: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """What was written, and what comes next."""
        made = self.sketch
        yield ""
        guessed = f"{_counted(made.guesses, 'guess', 'es')} in it" if made.guesses else "nothing guessed"
        yield f"{self.path}: {_counted(len(made.operators), 'operator')}, {guessed}"
        if made.unplaced:
            told = _counted(len(made.unplaced), "function")
            yield f"  {told} with the name of an operator could not be placed; the file says why"
        first = "look at every line of it that says `guess`, and " if made.guesses else ""
        yield f"next: {first}state what no header says (`in_place`, `dtypes`, `refuses`); then"
        library, headers = self.command[: -2 * self._headers], self.command[-2 * self._headers :]
        words = [shlex.join(part) for part in (library, headers)]
        yield f"  optest ffi inspect {words[0]} {words[1]} --mapping {shlex.quote(self.path)}"

    @property
    def _headers(self) -> int:
        return self.command.count("--headers")


def require_writable(path: str, *, mapping: str, force: bool) -> None:
    """Refuse what cannot be written before anything is read.

    Raises:
        UsageError: for a file that is there, a name that no mapping can have, and a mapping that is stated already.
    """
    if mapping:
        raise UsageError("--write makes a mapping, and --mapping states one; name one of them")
    file = Path(path)
    if file.suffix not in (".yaml", ".yml"):
        raise UsageError(f"--write is {path}, but should be a file that ends in .yaml")
    if not file.parent.is_dir():
        raise UsageError(f"--write is {path}, but there is no folder {file.parent}")
    if file.is_dir():
        raise UsageError(f"--write is {path}, which is a folder")
    if file.exists() and not force:
        raise UsageError(f"{path} is there already, and nothing was written; --force writes over it")


def write_mapping(
    report: LibraryReport, path: str, *, libraries: Sequence[str], headers: Sequence[str], force: bool = False
) -> WrittenMapping:
    """Write what names and types let one guess; what is written can be read as a mapping.

    Raises:
        UsageError: if no function was recognised, or the file cannot be written.
    """
    known = [operators.get(name) for name in operators.names()]
    made = sketch(_name_of(libraries[0]), [*map(_as_stated, libraries)], report.header, report.inspection, known)
    if not made.operators:
        raise UsageError(_nothing_in(made))
    _write(Path(path), made.text, force=force)
    command = (*libraries, *(word for each in headers for word in ("--headers", each)))
    return WrittenMapping(path=path, sketch=made, command=command)


_SUFFIX = re.compile(r"\.(?:so|dylib|dll)(?:\.[\d.]+)?$")


def _name_of(library: str) -> str:
    return re.sub(r"\W", "_", _SUFFIX.sub("", Path(library).name).removeprefix("lib")) or "mine"


def _as_stated(library: str) -> str:
    """A name that is found in the folder that ``--library`` states; one of the system loader's stays a file's name."""
    file = Path(library).name
    stem = file.removeprefix("lib").removesuffix(".so")
    return stem if "/" in library and file == f"lib{stem}.so" and stem else file


def _nothing_in(made: Sketch) -> str:
    said = "no function has the name and the arguments of an operator of optest; nothing was written"
    reasons = [f"\n  {function}: {why}" for function, why in list(made.unplaced.items())[:_SHOWN]]
    return (
        said
        + "".join(reasons)
        + "\n  `optest list operators` has the names; docs/c-libraries/mapping.md says how a mapping is written"
    )


def _write(path: Path, text: str, *, force: bool) -> None:
    """What is written is read elsewhere first."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / path.name
        draft.write_text(text, encoding="utf-8")
        try:
            read_mapping(draft)
        except UsageError as error:
            raise InternalError(f"the mapping that was guessed cannot be read: {error}") from None
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already, and nothing was written; --force writes over it") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _counted(count: int, word: str, ending: str = "s") -> str:
    return f"{count} {word}{'' if count == 1 else ending}"
