"""Registries of names, import paths, and plug-ins.

No other module of optest imports a module by a name that a user wrote. Every command line imports this module, so slow
imports (the metadata of packages) are inside the functions that need them.
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

# Optional packages; the name of the module is also the name for pip.
OPTIONAL = (
    *("torch", "triton", "jax", "onnx", "onnxruntime", "onnxscript", "openvino"),
    *("pyopencl", "safetensors", "pycparser", "ray", "jinja2"),
)


class Registry(Generic[Entry]):
    """Entries by name and alias. A string entry is an import path, loaded by the first :meth:`get`.

    ``kind`` is the word for one entry in messages ("operator", "backend").
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry | str] = {}
        self._aliases: dict[str, str] = {}

    def register(self, name: str, entry: Entry | str, *, aliases: Iterable[str] = (), replace: bool = False) -> None:
        """Add ``entry`` under ``name`` and ``aliases``; with ``replace`` it may replace an entry of the same name.

        Raises:
            UsageError: if a name is taken and ``replace`` is False.
        """
        names = (name, *aliases)
        taken = [key for key in names if self.canonical(key) not in (None, name) or (key == name and name in self)]
        if taken and not replace:
            raise UsageError(f"{self.kind} {taken[0]!r} is registered already; pass replace=True to override it")
        self._entries[name] = entry
        for alias in aliases:
            self._aliases[alias] = name

    def canonical(self, name: str) -> str | None:
        """Return the name that ``name`` is, or is an alias of, or None if it is not registered."""
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
    """Import and return the object ``module:attribute``, ``module.attribute`` or ``folder/file.py:attribute``.

    Return a ``path`` that is not a string unchanged.

    Raises:
        UsageError: if the text is no import path, the module or attribute does not exist, or a module of the same
            package is missing.
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
        raise UsageError(f"import path is {path!r}, expected 'package.module:name' or 'file.py:name'{hint}")
    loaded: Any = _import(module_name, path)
    for part in attribute.split("."):
        if not hasattr(loaded, part):
            public = [name for name in vars(loaded) if not name.startswith("_")]
            hint = did_you_mean(part, public, text="; did you mean {!r}?")
            raise UsageError(f"module {module_name!r} has no attribute {part!r}{hint}\n  import path: {path!r}")
        loaded = getattr(loaded, part)
    return loaded


def functions_of(module_name: str) -> list[str]:
    """Return the names of the top-level functions of a module or file, without importing it.

    The name most similar to that of the file comes first.
    """
    file = Path(file_of_module(module_name) or "")
    defined = re.findall(r"^def ([a-zA-Z]\w*)", file.read_text(), re.MULTILINE) if file.is_file() else []
    return sorted(defined, key=lambda name: name != nearest(file.stem, defined, least=0))


def _import(module_name: str, path: str) -> Any:
    """Import a module by name or ``.py`` file and return it; ``path`` is the import path that messages show.

    The folder of a file is added to ``sys.path``; a file that is already loaded is not loaded again.

    Raises:
        UsageError: if there is no such file or module, or a module of the same package is missing.
        Unavailable: if a package that the module imports is not installed.
    """
    if module_name.endswith(".py"):
        file = Path(module_name).resolve()
        if not file.is_file():
            hint = did_you_mean(
                file.name, (x.name for x in file.parent.glob("*.py") if x != file), text="; did you mean {}?"
            )
            fault = (
                f"{module_name} is a folder, expected a file" if file.is_dir() else f"there is no file {module_name}"
            )
            raise UsageError(f"{fault}{hint}\n  import path: {path!r}")
        # The file may import its neighbours, also later from within functions.
        if str(file.parent) not in sys.path:
            sys.path.insert(0, str(file.parent))
        return loaded_from(file) or load_file(file, name=f"{file.stem}_py" if file.stem in sys.modules else file.stem)
    try:
        with nullcontext() if _top(module_name) == "optest" else _loads_user_code():
            return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise UsageError(
                f"module {module_name!r} does not exist on the import path\n"
                f"  import path: {path!r}; is its folder on PYTHONPATH?"
            ) from None
        if _top(missing) in (_top(module_name), "optest"):
            raise UsageError(
                f"module {module_name!r} imports {missing!r}, but {_top(missing)} has no such module\n"
                f"  import path: {path!r}; correct the name, or reinstall {_top(missing)}"
            ) from None
        package = "protobuf" if _top(missing) == "google" else _top(missing)
        raise Unavailable(package if _top(module_name) == "optest" else path, f"pip install {package}") from None


@contextmanager
def _loads_user_code() -> Iterator[None]:
    """Write no bytecode within the block, and turn ``sys.exit`` into an ImportError."""
    # Bytecode is dated by the second: after a second edit in the same second Python would run the first one's.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    except SystemExit as error:
        # It would end optest with the exit status of a run without failures.
        message = f"sys.exit({error.code!r}) was called; put it under if __name__ == '__main__':"
        raise ImportError(message).with_traceback(error.__traceback__) from None
    finally:
        sys.dont_write_bytecode = before


def _top(module: str) -> str:
    return module.partition(".")[0]


def load_plugins(modules: Iterable[str]) -> None:
    """Import plug-in modules in order and call the ``register()`` that each defines, if any; load a module only once.

    Raises:
        UsageError: if a module does not exist, or its import or ``register()`` raises; with module, error and location.
        Unavailable: if a package that a module imports is not installed.
    """
    for module_name in modules:
        if module_name in _loaded_plugins:
            continue
        try:
            module = _import(module_name, module_name)
            register = getattr(module, "register", None)
            # Not a `register` that the module imported from elsewhere, such as `atexit.register`.
            if callable(register) and getattr(register, "__module__", module_name) == module_name:
                register()
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
    """Return up to three innermost frames of ``error`` as lines, without those of Python's import machinery."""
    frames = traceback.extract_tb(error.__traceback__)
    machinery = (__file__, importlib.__file__, contextlib.__file__)
    kept = [frame for frame in frames if not frame.filename.startswith("<frozen") and frame.filename not in machinery]
    lines = [f"\n  at {frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}" for frame in kept[-3:]]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append(f"\n  at {error.filename}:{error.lineno}: {(error.text or '').strip()}")
    return "".join(lines)


def load_extension(kind: str, path: str) -> Any:
    """Import an object of another package as :func:`load_object` does; ``kind`` is the word for it in messages.

    Raises:
        UsageError: as :func:`load_object`; also if the import raises any other exception.
        Unavailable: as :func:`load_object`.
    """
    try:
        return load_object(path)
    except (UsageError, Unavailable):
        raise
    except Exception as error:  # border: a package may raise anything while it loads
        where = _foreign_frames(error)
        is_package = "entry point" in kind or "-packages" in where
        repair = "repair or uninstall the package that provides it" if is_package else "correct the module at this line"
        remedy = "; ".join(_describe_outdated_packages()) or repair
        raise UsageError(
            f"{kind} ({path}) raised {type(error).__name__} when it was imported: {error}{where}\n  {remedy}"
        ) from error


def _describe_outdated_packages() -> Iterator[str]:
    """Yield a message for each installed package that is older than the minimum version in an extra of optest."""
    from importlib.metadata import PackageNotFoundError, requires

    def numbers(version: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", version)[:3]]

    try:
        requirements = requires("optest") or ()
    except PackageNotFoundError:
        return
    for name, least in re.findall(r"^([\w-]+)>=([\d.]+); extra", "\n".join(requirements), re.MULTILINE):
        installed = version_of(name)
        if installed and numbers(installed) < numbers(least):
            yield f"{name} is {installed}, expected {least} or later: pip install -U {name}"


def load_entry_points(group: str) -> list[tuple[str, str]]:
    """Return ``(name, import path)`` of every installed entry point of ``group``, without importing any."""
    from importlib.metadata import entry_points

    return [(point.name, point.value) for point in entry_points(group=group)]


def version_of(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def is_installed(module_name: str) -> bool:
    """Return whether a module can be imported, without importing it; a folder without ``__init__.py`` cannot."""
    if module_name in sys.modules:
        return sys.modules[module_name] is not None
    try:
        spec = importlib.util.find_spec(module_name)
        return spec is not None and spec.origin is not None
    except (ImportError, ValueError):
        return False


def file_of_module(module_name: str) -> str | None:
    """Return the file that a module would be loaded from, or None; return the path of a ``.py`` file unchanged."""
    if module_name.endswith(".py"):
        return module_name
    try:
        spec = importlib.util.find_spec(module_name)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec is not None and spec.has_location else None


def neighbours_of_module(module_name: str) -> list[tuple[str, Path]]:
    """Return name and file of every other loaded module in the same package, the same folder, or a package in it.

    An installed package has no neighbours.
    """
    file = file_of_module(module_name)
    # Installed packages change only with their version.
    if file is None or {"site-packages", "dist-packages"} & set(Path(file).parts):
        return []
    top = module_name.partition(".")[0]
    plugin = str(Path(file).absolute())
    folder = plugin.rpartition("/")[0]
    neighbours = []
    for name, module in sorted(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not path or path == plugin or name == module_name:
            continue
        first = name.partition(".")[0]
        is_near = first == top or path.rpartition("/")[0] == folder or path.startswith(f"{folder}/{first}/")
        if is_near and Path(path).is_file():
            neighbours.append((name, Path(path)))
    return neighbours


def files_of_plugin(module_name: str) -> Iterator[Path]:
    """Yield the files of a plug-in and its neighbours, their bytecode, and every path that Python would load instead.

    The last group are packages and compiled modules of these names anywhere on the import path; they may not exist.
    """
    if (file := file_of_module(module_name)) is None:
        return
    near = neighbours_of_module(module_name)
    sources = [Path(file), *(path for _, path in near)]
    cached = [Path(importlib.util.cache_from_source(str(path))) for path in sources if path.suffix == ".py"]
    # Only existing bytecode: workers write that of modules which the parent loaded under pytest's own cache name.
    yield from (*sources, *filter(Path.is_file, cached))
    endings = (*importlib.machinery.all_suffixes(), "/__init__.py")
    candidates = [f"{name.partition('.')[0]}{ending}" for name in (module_name, *dict(near)) for ending in endings]
    for folder in (str(Path(file).parent), *sys.path):
        yield from (Path(folder).absolute() / candidate for candidate in candidates)


def load_file(path: Path, *, name: str = "") -> ModuleType:
    """Execute a Python file and return its module, registered in ``sys.modules`` as ``name`` (default: the stem).

    A file in a package that uses relative imports is imported as a module of that package; the folder of the package is
    added to ``sys.path``. If the code raises, the earlier entry of ``sys.modules`` is restored.

    Raises:
        UsageError: if Python cannot load the file. Exceptions of its code are not caught.
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
        raise UsageError(f"{path} is not a Python file; its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    # Dataclasses look up their module there while it is executed.
    sys.modules[name] = module
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
    """Return the loaded module (or running program) whose file is ``path``, or None."""
    return next((x for x in list(sys.modules.values()) if getattr(x, "__file__", None) == str(path)), None)


class _StandInFinder:
    """Import finder for modules that are not installed; it takes their names from another module."""

    def __init__(self) -> None:
        self.modules: dict[str, tuple[str, Sequence[str]]] = {}

    def find_spec(self, name: str, path: Sequence[str] | None = None, _: object = None) -> Any:
        # `path` is set for a submodule of an installed package, which has no stand-in.
        has_stand_in = name in self.modules and not path
        return importlib.util.spec_from_loader(name, cast("Any", self), is_package=True) if has_stand_in else None

    def create_module(self, _: object) -> None:
        """Return None: Python creates the module."""

    def exec_module(self, module: ModuleType) -> None:
        source, names = self.modules[module.__name__]
        for name in names:
            setattr(module, name, load_object(f"{source}:{name}"))


_stand_ins = _StandInFinder()


class _ChangingLoader:
    """Wrapper of an import loader that applies ``change`` to the module after its execution."""

    # A wrapper, because one loader object may serve many modules.
    def __init__(self, loader: Any, change: Callable[[ModuleType], None]) -> None:
        self._loader, self._change = loader, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._change(module)


class _ChangingFinder:
    """Import finder, the first of all, that changes modules as soon as they are imported."""

    def __init__(self) -> None:
        self.changes: dict[str, Callable[[ModuleType], None]] = {}

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if name not in self.changes:
            return None
        specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, specs), None)
        if spec is not None:
            spec.loader = cast("Any", _ChangingLoader(spec.loader, self.changes[name]))
        return spec


_after_import = _ChangingFinder()


def change_after_import(module: str, change: Callable[[ModuleType], None]) -> None:
    """Call ``change`` with ``module`` as soon as it is imported, or now if it already is; a later call replaces it."""
    _after_import.changes[module] = change
    if cast("Any", _after_import) not in sys.meta_path:
        sys.meta_path.insert(0, cast("Any", _after_import))
    if module in sys.modules:
        change(sys.modules[module])


def stand_in_for(module: str, source: str, names: Sequence[str]) -> None:
    """Make ``from module import name`` take ``names`` from the module ``source``, unless ``module`` is installed."""
    _stand_ins.modules[module] = source, names
    # The last finder, so that an installed module wins.
    if _stand_ins not in sys.meta_path:
        sys.meta_path.append(cast("Any", _stand_ins))


def run_file(path: Path) -> None:
    """Run a Python file as ``python FILE`` does; exceptions of its code are not caught."""
    import runpy

    runpy.run_path(str(path), run_name="__main__")
