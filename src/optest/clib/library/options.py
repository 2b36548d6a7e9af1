"""The command line's options for a C library, as the ``backend_config.ffi`` that every case then holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optest.clib.library.config import is_shared_object, located
from optest.clib.library.mapping import LibraryMapping
from optest.clib.library.mapping_file import is_file_name, mapping_path, read_mapping
from optest.errors import Unavailable, UsageError
from optest.settings import infini_root

__all__ = ["NAMES", "config_of_options", "mapping_of_options", "require_installed"]

NAMES = ("library", "headers", "mapping", "device", "guard", "probes", "threads", "sanitizer")


def config_of_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """What is given, with paths that mean the same from every folder.

    Raises:
        UsageError: for threads that are no numbers.
    """
    readers = {"library": _paths, "headers": _paths, "mapping": _mapping, "threads": _threads}
    given = {name: options[name] for name in NAMES if options.get(name)}
    return {name: readers[name](value) if name in readers else value for name, value in given.items()}


def mapping_of_options(config: Mapping[str, Any]) -> LibraryMapping | None:
    """The mapping that the options name, None if they name none.

    Raises:
        UsageError: for one that is not there or cannot be read.
    """
    name = config.get("mapping")
    return None if name is None else read_mapping(mapping_path(name, "").absolute())


def require_installed(config: Mapping[str, Any], mapping: LibraryMapping) -> None:
    """Look for the library's files without loading them: what loading does is the worker's business.

    Raises:
        Unavailable: naming the file, and how the library is named.
    """
    library = config.get("library")
    if isinstance(library, str) and not is_shared_object(library):
        if not Path(library).is_dir():
            remedy = "there is no such folder; --library names where the library is installed, or its shared objects"
            raise Unavailable(f"library {library}", remedy)
    elif library is None and not all(map(is_shared_object, mapping.library)):  # those are the system loader's
        root = infini_root()
        if not root.is_dir():
            remedy = f"neither --library nor INFINI_ROOT is given, and there is no {root}"
            raise Unavailable(f"library {mapping.name}", remedy)
    for each in _listed(library or ()):
        if Path(each).is_absolute() and is_shared_object(each) and not Path(each).is_file():
            raise Unavailable(f"library {each}", "there is no such file; --library names it, or its folder")
    for each in _listed(config.get("headers", ())):
        if not Path(each).exists():
            raise Unavailable(f"headers {each}", "there is no such folder or file; --headers names them")


def _listed(value: str | Sequence[str]) -> Sequence[str]:
    return (value,) if isinstance(value, str) else value


def _paths(value: Any) -> str | list[str]:
    paths = [located(each) for each in _listed(value)]
    return paths[0] if len(paths) == 1 else paths


def _mapping(name: str) -> str:
    return str(Path(name).absolute()) if is_file_name(name) else name


def _threads(text: Any) -> list[int]:
    words = str(text).split(",") if not isinstance(text, (list, tuple)) else [str(each) for each in text]
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"--threads is {text}, but should be numbers such as 1,2")
    return [int(word) for word in words]
