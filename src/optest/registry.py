"""Names to objects: registries that load what they hold when it is asked for, import strings, plug-ins.

It owns ``importlib``: nothing else in optest imports a module by a name that a user wrote. Every command line imports
this module, so that what takes long to import (the metadata of packages) is imported where it is used.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import itertools
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from optest.errors import Unavailable, UnknownName, UsageError, did_you_mean, listed_names, nearest

Entry = TypeVar("Entry")

OPTIONAL = (
    *("torch", "triton", "jax", "onnx", "onnxruntime", "onnxscript", "openvino"),
    *("pyopencl", "safetensors", "pycparser", "ray", "jinja2"),
)
"""Packages that optest can do without, each under the name of its module, which is also what pip installs."""


class Registry(Generic[Entry]):
    """What is known under which name. A string entry is an import path, loaded at the first use.

    ``kind`` is the word for one entry in messages ("operator", "backend").
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry | str] = {}
        self._aliases: dict[str, str] = {}

    def register(self, name: str, entry: Entry | str, *, aliases: Iterable[str] = (), replace: bool = False) -> None:
        """Add ``entry``; ``replace`` takes the place of one with the same name or alias.

        Raises:
            UsageError: if a name is taken and ``replace`` is False.
        """
        names = (name, *aliases)
        taken = [each for each in names if self.canonical(each) not in (None, name) or (each == name and name in self)]
        if taken and not replace:
            raise UsageError(f"{self.kind} {taken[0]!r} is registered already; pass replace=True to override it")
        self._entries[name] = entry
        for alias in aliases:
            self._aliases[alias] = name

    def canonical(self, name: str) -> str | None:
        """The name under which ``name`` or its alias is registered, or None."""
        if name in self._entries:
            return name
        return self._aliases.get(name)

    def get(self, name: str) -> Entry:
        """Return the entry called ``name``.

        Raises:
            UnknownName: with the nearest known name.
            Unavailable: if the module that holds it needs a package that is not installed.
        """
        canonical = self.canonical(name)
        if canonical is None:
            raise UnknownName(self.kind, name, self.names(), aliases=self._aliases)
        entry = self._entries[canonical]
        if isinstance(entry, str):
            entry = cast("Entry", load_object(entry))
            self._entries[canonical] = entry
        return entry

    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def aliases(self) -> tuple[str, ...]:
        return tuple(self._aliases)

    def __contains__(self, name: str) -> bool:
        return self.canonical(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def load_object(path: Any) -> Any:
    """Import the object ``module:attribute``, ``module.attribute`` or ``folder/file.py:attribute``; return a path that
    is no text unchanged.

    Raises:
        UsageError: if the text is no path, the module or attribute does not exist, or its own package lacks a part.
        Unavailable: if the module exists but needs a package that is not installed.
    """
    if not isinstance(path, str):
        return path
    module_name, colon, attribute = path.partition(":")
    if not colon and not path.endswith(".py"):
        module_name, _, attribute = path.rpartition(".")
    if path.endswith(")"):
        how = f"assign it to a name in its file, for example instance = {path.partition(':')[2] or path}, and use that"
        raise UsageError(f"import path is {path!r}, expected a name, not a call\n  {how}")
    if not module_name or not attribute:
        defined = functions_of(path := path.rstrip(":"))
        hint = f"; did you mean {path}:{defined[0]}?\n  functions: {listed_names(defined)}" if defined else ""
        raise UsageError(f"import path is {path!r}, but should be 'package.module:name' or 'file.py:name'{hint}")
    found: Any = _import(module_name, path)
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [name for name in vars(found) if not name.startswith("_")]
            hint = did_you_mean(part, public, text="; did you mean {!r}?")
            raise UsageError(f"module {module_name!r} has no attribute {part!r}{hint}\n  wanted by {path!r}")
        found = getattr(found, part)
    return found


def functions_of(module_name: str) -> list[str]:
    """Return the functions that a module or a file defines, without importing it; the likeliest one comes first."""
    file = Path(file_of_module(module_name) or "")
    defined = re.findall(r"^def ([a-zA-Z]\w*)", file.read_text(), re.MULTILINE) if file.is_file() else []
    return sorted(defined, key=lambda each: each != nearest(file.stem, defined, least=0))


def _import(module_name: str, path: str) -> Any:
    if module_name.endswith(".py"):
        file = Path(module_name).resolve()
        if not file.is_file():
            hint = did_you_mean(
                file.name, (x.name for x in file.parent.glob("*.py") if x != file), text="; did you mean {}?"
            )
            what = f"{module_name} is a folder, expected a file" if file.is_dir() else f"there is no file {module_name}"
            raise UsageError(f"{what}{hint}\n  wanted by {path!r}")
        if str(file.parent) not in sys.path:
            sys.path.insert(0, str(file.parent))  # files next to it can be imported, also later
        return loaded_from(file) or load_file(file, name=f"{file.stem}_py" if file.stem in sys.modules else file.stem)
    try:
        with nullcontext() if _top(module_name) == "optest" else _loads_user_code():
            return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise UsageError(
                f"module {module_name!r} does not exist on the import path\n"
                f"  wanted by {path!r}; is its folder on PYTHONPATH?"
            ) from None
        if _top(missing) in (_top(module_name), "optest"):
            raise UsageError(
                f"module {module_name!r} needs {missing!r}, which {_top(missing)} does not have\n"
                f"  wanted by {path!r}; is the name right, and {_top(missing)} installed as a whole?"
            ) from None
        package = "protobuf" if _top(missing) == "google" else _top(missing)
        raise Unavailable(package if _top(module_name) == "optest" else path, f"pip install {package}") from None


@contextmanager
def _loads_user_code() -> Iterator[None]:
    """Keep no bytecode of what the user edits: a second edit within one second would run that of the first.

    ``sys.exit`` is an error there: it would end optest, with the status of a run in which nothing failed.
    """
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    except SystemExit as error:
        message = f"sys.exit({error.code!r}) was called; put it under if __name__ == '__main__':"
        raise ImportError(message).with_traceback(error.__traceback__) from None
    finally:
        sys.dont_write_bytecode = before


def _top(module: str) -> str:
    return module.partition(".")[0]


def load_plugins(modules: Iterable[str]) -> None:
    """Import plug-in modules in order and call the ``register()`` that they define, if any; a module loads once.

    Raises:
        UsageError: naming the module and the error that its import raised.
    """
    for module_name in modules:
        if module_name in _loaded_plugins:
            continue
        try:
            module = _import(module_name, module_name)
            register = getattr(module, "register", None)
            if callable(register) and getattr(register, "__module__", module_name) == module_name:
                register()  # its own, not one that it imported to call it
        except (UsageError, Unavailable):
            raise
        except Exception as error:  # border: a plug-in may raise anything while it loads
            where = _foreign_frames(error)
            raise UsageError(f"plug-in {module_name!r} raised {type(error).__name__}: {error}{where}") from error
        _loaded_plugins.add(module_name)


_loaded_plugins: set[str] = set()


def is_loaded_plugin(module_name: str) -> bool:
    return module_name in _loaded_plugins


def _foreign_frames(error: BaseException) -> str:
    """The last frames of the plug-in's own code, for a message; Python's import machinery is left out."""
    frames = traceback.extract_tb(error.__traceback__)
    machinery = (__file__, importlib.__file__, contextlib.__file__)
    own = [frame for frame in frames if not frame.filename.startswith("<frozen") and frame.filename not in machinery]
    shown = [f"\n  at {frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}" for frame in own[-3:]]
    if isinstance(error, SyntaxError) and error.filename:
        shown.append(f"\n  at {error.filename}:{error.lineno}: {(error.text or '').strip()}")
    return "".join(shown)


def load_extension(what: str, path: str) -> Any:
    """:func:`load_object` for what a package outside optest brings; ``what`` is the word for it in messages.

    Raises:
        UsageError, Unavailable: as :func:`load_object`; also if the import raises anything else.
    """
    try:
        return load_object(path)
    except (UsageError, Unavailable):
        raise
    except Exception as error:  # border: a package may raise anything while it loads
        where = _foreign_frames(error)
        is_package = "entry point" in what or "-packages" in where
        repair = "repair or uninstall the package that brings it" if is_package else "the module itself raised it there"
        remedy = "; ".join(_outdated()) or repair
        raise UsageError(
            f"{what} ({path}) raised {type(error).__name__} when it was imported: {error}{where}\n  {remedy}"
        ) from error


def _outdated() -> Iterator[str]:
    """A sentence for each installed package that is older than what an extra of optest asks for."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        stated = requires("optest") or ()
    except PackageNotFoundError:
        return
    for name, least in re.findall(r"^([\w-]+)>=([\d.]+); extra", "\n".join(stated), re.MULTILINE):
        found = version_of(name)
        if found and _numbers(found) < _numbers(least):
            yield f"{name} is {found}, but should be {least} or later: pip install -U {name}"


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def load_entry_points(group: str) -> list[tuple[str, str]]:
    """Return ``(name, import path)`` of every installed entry point of ``group``, without importing any."""
    from importlib.metadata import entry_points

    return [(point.name, point.value) for point in entry_points(group=group)]


def version_of(distribution: str) -> str | None:
    """The installed version of a distribution, None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def is_installed(module_name: str) -> bool:
    """Return whether a module can be imported, without importing it; a folder without ``__init__.py`` is none."""
    if module_name in sys.modules:
        return sys.modules[module_name] is not None
    try:
        spec = importlib.util.find_spec(module_name)
        return spec is not None and spec.origin is not None
    except (ImportError, ValueError):
        return False


def file_of_module(module_name: str) -> str | None:
    """Return the file that a module is loaded from, None if there is none; return the path of a file unchanged."""
    if module_name.endswith(".py"):
        return module_name
    try:
        found = importlib.util.find_spec(module_name)
    except (ImportError, ValueError):
        return None
    return found.origin if found is not None and found.has_location else None


def neighbours_of_module(module_name: str) -> list[tuple[str, Path]]:
    """Name and file of every other loaded module of the same package, of the same folder or of a package in that.

    What lies in a folder of installed packages has no neighbours: it came with a version.
    """
    file = file_of_module(module_name)
    if file is None or {"site-packages", "dist-packages"} & set(Path(file).parts):
        return []
    top = module_name.partition(".")[0]
    plugin = str(Path(file).absolute())
    folder = plugin.rpartition("/")[0]
    found = []
    for name, module in sorted(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not path or path == plugin or name == module_name:
            continue
        first = name.partition(".")[0]
        is_near = first == top or path.rpartition("/")[0] == folder or path.startswith(f"{folder}/{first}/")
        if is_near and Path(path).is_file():
            found.append((name, Path(path)))
    return found


def files_of_plugin(module_name: str) -> Iterator[Path]:
    """Yield the files of a plug-in and its neighbours, their bytecode, and each file that would be loaded instead.

    The last may not exist: packages, compiled modules and, anywhere on the import path, any of these names.
    """
    if (file := file_of_module(module_name)) is None:
        return
    near = neighbours_of_module(module_name)
    sources = [Path(file), *(path for _, path in near)]
    cached = [Path(importlib.util.cache_from_source(str(each))) for each in sources if each.suffix == ".py"]
    # Workers write the bytecode of modules that pytest has loaded with its own.
    yield from (*sources, *filter(Path.is_file, cached))
    endings = (*importlib.machinery.all_suffixes(), "/__init__.py")
    others = [f"{name.partition('.')[0]}{ending}" for name in (module_name, *dict(near)) for ending in endings]
    for folder in (str(Path(file).parent), *sys.path):
        yield from (Path(folder).absolute() / other for other in others)


def load_file(path: Path, *, name: str = "") -> ModuleType:
    """Import a Python file by its path, under its own stem or ``name``, or as the module of its package if it imports
    others of that by relative names; files beside it can be imported while it loads.

    Raises:
        UsageError: if the file is none that Python can load. Whatever its code raises passes.
    """
    parents = [*itertools.takewhile(lambda folder: (folder / "__init__.py").is_file(), path.resolve().parents)]
    if parents and re.search(r"^\s*from \.", path.read_text("utf-8", "replace"), re.MULTILINE):
        root = parents[-1].parent
        sys.path.insert(0, str(root))
        with _loads_user_code():
            return importlib.import_module(".".join(path.resolve().relative_to(root).with_suffix("").parts))
    name = name or path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no file of Python")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        with _loads_user_code():
            spec.loader.exec_module(module)
    except BaseException:
        if before is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = before
        raise
    return module


def loaded_from(path: Path) -> ModuleType | None:
    """The module that was imported from this file already, or runs as a program; None if there is none."""
    return next((each for each in list(sys.modules.values()) if getattr(each, "__file__", None) == str(path)), None)


class _StandIns:
    """The last finder that Python asks: modules that are not installed, with what another package has for them."""

    def __init__(self) -> None:
        self.modules: dict[str, tuple[str, Sequence[str]]] = {}

    def find_spec(self, name: str, path: Sequence[str] | None = None, _: object = None) -> Any:
        is_mine = name in self.modules and not path  # an installed package has a path, and no module of ours
        return importlib.util.spec_from_loader(name, cast("Any", self), is_package=True) if is_mine else None

    def create_module(self, _: object) -> None:
        """Python makes it."""

    def exec_module(self, module: ModuleType) -> None:
        source, names = self.modules[module.__name__]
        for name in names:
            setattr(module, name, load_object(f"{source}:{name}"))


_stand_ins = _StandIns()


class _ChangingLoader:
    """The loader of another finder, which may be shared by many modules, with a change of the module after it."""

    def __init__(self, loader: Any, change: Callable[[ModuleType], None]) -> None:
        self._loader, self._change = loader, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._change(module)


class _AfterImport:
    """Finder that comes before all others and changes modules as soon as they are imported."""

    def __init__(self) -> None:
        self.changes: dict[str, Callable[[ModuleType], None]] = {}

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if name not in self.changes:
            return None
        specs = (each.find_spec(name, path, target) for each in sys.meta_path if each is not self)
        spec = next(filter(None, specs), None)
        if spec is not None:
            spec.loader = cast("Any", _ChangingLoader(spec.loader, self.changes[name]))
        return spec


_after_import = _AfterImport()


def change_after_import(module: str, change: Callable[[ModuleType], None]) -> None:
    """Call ``change`` with a module as soon as it is imported, or now if it already is."""
    _after_import.changes[module] = change
    if cast("Any", _after_import) not in sys.meta_path:
        sys.meta_path.insert(0, cast("Any", _after_import))
    if module in sys.modules:
        change(sys.modules[module])


def stand_in_for(module: str, source: str, names: Sequence[str]) -> None:
    """Let ``from module import name`` find the names of the module ``source``, unless ``module`` is installed."""
    _stand_ins.modules[module] = source, names
    if _stand_ins not in sys.meta_path:
        sys.meta_path.append(cast("Any", _stand_ins))


def run_file(path: Path) -> None:
    """Run a Python file as ``python FILE`` does. Whatever its code raises passes."""
    import runpy

    runpy.run_path(str(path), run_name="__main__")
