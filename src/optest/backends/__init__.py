"""The driver protocol, and the manager that finds drivers by name or kind and imports them on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from optest.backends.abilities import ExtraOutput, PreparedCall, Script, ScriptInput, WritesOutputs
from optest.backends.capabilities import Capability
from optest.backends.command_abilities import HasVariants, compared_variants
from optest.errors import Unavailable, UnknownName, UsageError, did_you_mean
from optest.registry import Registry, load_extension
from optest.spec import DTYPES, BackendTarget, Check, Fault, Numerics, Reason, TestCase, Verdict

__all__ = [
    "BackendDriver",
    "BackendManager",
    "Capability",
    "ExtraOutput",
    "Fault",
    "FurtherAnswer",
    "Numerics",
    "PreparedCall",
    "Reason",
    "Script",
    "ScriptInput",
    "backend_manager",
    "declared_numerics",
]

FurtherAnswer = ExtraOutput  # the name until version 1


class BackendDriver:
    """Executes one case on one kind of device.

    A driver sets ``kind`` (``cpu``, ``gpu``, ``npu`` …), ``name`` and ``chips``, and implements :meth:`run`
    or ``run_into``. Empty ``chips`` accept no chip, ``("*",)`` any. All other members have defaults.
    :mod:`optest.backends.abilities` has the methods whose presence alone changes what optest does (timed calls,
    scripts, variants …).

    If no outputs can be computed, raise :class:`Fault` with a :class:`Reason` (``UNSUPPORTED``, ``COMPILE``,
    ``OUT_OF_MEMORY``, ``DEVICE_LOST`` …). Any other exception becomes ``RAISED``.
    """

    api: ClassVar[int] = 1
    kind: str = "cpu"
    name: str = ""
    chips: tuple[str, ...] = ()
    numerics: Numerics = Numerics()
    isolated: bool = True
    """Run in a worker process by default."""
    is_reference: bool = False
    """The driver runs the references themselves, so its passes are no evidence about a kernel."""
    guards_memory: bool = False
    """The driver is part of optest, gets the inputs without a copy and leaves them unchanged. It copies and guards them
    for foreign code, and returns arrays of its own."""
    reads_inputs: bool = True
    """Kernels may read outside of the arrays that :meth:`run` gets, so that a second call with other numbers there is
    useful. False for a driver that copies its inputs elsewhere."""
    margin_bytes: int = 1 << 12
    """Bytes of guard memory on each side of an input and output."""
    keeps_deadline: bool = False
    """The driver ends :meth:`run` itself after ``case.timeout_s``."""
    runs_programs: bool = False
    """A check needs ``--config`` with the programs that the driver runs."""
    options: Sequence[str] = ()
    """Command-line options that :meth:`configure` accepts."""

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any] | Mapping[str, Any]:  # noqa: ARG002
        """Return the outputs in order, or by name. ``inputs`` are NumPy arrays in the case's dtypes and layouts.

        It must not write into ``inputs`` unless the case allows it, nor into outputs that it returned before. Raise
        ``Fault`` with UNSUPPORTED unless a subclass overrides it.
        A driver that writes into buffers of optest defines ``run_into(case, inputs, outputs)`` instead.
        """
        raise Fault(
            Reason.UNSUPPORTED,
            f"backend {self.name} writes into buffers of optest, but the shapes of the outputs are not known; "
            "add them under `shapes:`",
        )

    def numerics_of(self, case: TestCase) -> Numerics:  # noqa: ARG002 - part of the protocol
        """Return the declared arithmetic of the implementation that runs ``case``."""
        return self.numerics

    def accepts_chip(self, chip: str) -> bool:
        return "*" in self.chips or chip in self.chips

    def unsupported(self, case: TestCase) -> str | None:  # noqa: ARG002 - part of the protocol
        """Return why this driver cannot run ``case``, or None; such a case is skipped as UNSUPPORTED."""
        return None

    def checks(self, case: TestCase) -> Sequence[Check]:  # noqa: ARG002 - part of the protocol
        """Return the checks other than of values that the last run of ``case`` did, for the report."""
        return ()

    def device(self) -> str | None:
        """Return the device that computes the outputs (``cpu``, ``cuda:0``), for the report."""
        return None

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the software that computes the outputs, for the report."""
        return {}

    # One execution

    def runs_into(self, case: TestCase) -> bool:  # noqa: ARG002 - part of the protocol
        """Return whether a driver with ``run_into`` writes the outputs of ``case`` into buffers of optest."""
        return True

    def writes_inputs(self, case: TestCase) -> Sequence[str]:  # noqa: ARG002 - part of the protocol
        """Return the names of inputs that a call may change in addition to those that the operator mutates."""
        return ()

    def golden(self, case: TestCase) -> Sequence[Any] | None:  # noqa: ARG002 - part of the protocol
        """Return the stored expected outputs for exactly this case, in order; None to run the reference.

        They precede those of the generator and the reference. Raise :class:`Fault` if they are stale or invalid.
        """
        return None

    def compile_s(self) -> float | None:
        """Return the seconds of the last run spent in a compiler, which its run time excludes; None if unknown."""
        return None

    def further(self, case: TestCase) -> Sequence[ExtraOutput]:  # noqa: ARG002 - part of the protocol
        """Return the additional outputs with other bits from the last run of ``case``; each is compared, too."""
        return ()

    def own_verdict(self, case: TestCase) -> Verdict | None:  # noqa: ARG002 - part of the protocol
        """Return the verdict of a test that compares by itself, after it ran ``case``; None for other cases.

        It counts if optest has no expected outputs; a pass has ``Evidence.EXTERNAL_REPORT``.
        """
        return None

    # Workers and runs

    def configure(self, options: Mapping[str, Any]) -> None:
        """Set options of the command line (``torch_device``, ``threads``) before the first case."""

    def import_late(self) -> None:
        """Import the modules that :meth:`run` needs before forks do. Call no user code, open no device; may raise."""

    def environment(self, cases: Sequence[TestCase]) -> Mapping[str, str]:  # noqa: ARG002 - part of the protocol
        """Return variables that a worker needs from its start to run ``cases``; the user's environment has priority."""
        return {}

    def files_of(self, cases: Sequence[TestCase]) -> Sequence[Path]:  # noqa: ARG002 - part of the protocol
        """Return files that results depend on but no case names: a run is resumed only if all of them are unchanged."""
        return ()

    def end_run(self, folder: Path) -> None:
        """Collect the files that the cases of a run wrote; ``folder`` is the run's. Called once after the run, in the
        process that started its workers."""

    # Commands and reports

    def dtypes_of(self, options: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG002 - part of the protocol
        """Return the dtypes by tensor name that a case's options for this driver set, for cases without dtypes."""
        return {}

    def ready_for_check(self) -> str | None:
        """Return why nothing can be checked yet, such as a missing option, as a message for the user; else None."""
        return None

    def named_operators(self) -> Mapping[str, str]:
        """Return the operators that the user named for this driver, with the name of the function for each."""
        return {}

    def command_line(self, case: TestCase) -> Sequence[str] | None:  # noqa: ARG002 - part of the protocol
        """Return the arguments of ``optest`` that run ``case`` again; None if the operator's flags can."""
        return None

    def expectations(self) -> str | None:
        """Return the path of the expected differences of this driver on its device, for `optest check`; or None."""
        return None

    def expectations_of_samples(self) -> str | None:
        """Return the path of the expected differences for `optest run --source`, whose cases are framework calls."""
        return None

    def declares(self, operators: Sequence[str]) -> tuple[int, Sequence[str]] | None:  # noqa: ARG002
        """Return the number of the backend's operators, and which of ``operators`` it lacks; None if unknown."""
        return None

    def doctor(self) -> Sequence[str]:
        """Return facts for ``optest doctor``: devices, versions. Raise ``Unavailable`` if the driver cannot run."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Builtin:
    """Properties of a built-in driver that are known before it is imported; ``by_name_only`` excludes it from kinds."""

    name: str
    path: str
    kind: str
    by_name_only: bool = False


_BUILTINS = (
    _Builtin(name="numpy", path="optest.backends.numpy_reference:NumpyBackend", kind="cpu"),
    _Builtin(name="stub", path="optest.backends.numpy_reference:StubBackend", kind="stub", by_name_only=True),
    _Builtin(name="torch", path="optest.torch.eager:TorchBackend", kind="torch"),
    _Builtin(name="triton", path="optest.torch.triton_kernels:TritonBackend", kind="triton", by_name_only=True),
    _Builtin(name="jax", path="optest.jax.backend:JaxBackend", kind="jax"),
    _Builtin(name="onnxruntime", path="optest.onnx.runtime:OnnxRuntimeBackend", kind="onnx"),
    _Builtin(name="onnx-reference", path="optest.onnx.reference:OnnxReferenceBackend", kind="onnx"),
    _Builtin(name="openvino", path="optest.onnx.openvino:OpenVinoBackend", kind="onnx"),
    _Builtin(name="ascend", path="optest.backends.command:AscendBackendDriver", kind="npu"),
    _Builtin(name="opencl", path="optest.backends.opencl:OpenClBackend", kind="opencl"),
    _Builtin(name="command", path="optest.backends.command:CommandBackendDriver", kind="command"),
    _Builtin(name="function", path="optest.backends.function:FunctionBackend", kind="cpu", by_name_only=True),
    _Builtin(name="scene", path="optest.scenes.driver:SceneDriver", kind="scene", by_name_only=True),
    _Builtin(name="model", path="optest.models.driver:ModelDriver", kind="model", by_name_only=True),
    _Builtin(name="ffi", path="optest.clib.library.driver:FfiBackend", kind="cpu", by_name_only=True),
)


class BackendManager:
    """Drivers by name; a kind selects the one driver of that kind, a user's before a built-in."""

    def __init__(self, builtins: Sequence[_Builtin] = ()) -> None:
        self._registry: Registry[BackendDriver] = Registry("backend")
        self._factories: set[str] = set()
        self._factory_names: dict[str, str] = {}
        self._built_in = {builtin.name for builtin in builtins}
        self._lazy: dict[str, str | Callable[[], BackendDriver]] = {builtin.name: builtin.path for builtin in builtins}
        self._kinds = {builtin.name: builtin.kind for builtin in builtins}
        self._by_name_only = {builtin.name for builtin in builtins if builtin.by_name_only}

    def register(self, driver: BackendDriver, *, replace: bool = False) -> BackendDriver:
        """Register a driver and return it; raise UsageError if it is invalid or its name is taken."""
        _require_valid_driver(driver)
        if driver.name in self._lazy:
            if not replace:
                raise UsageError(f"backend {driver.name!r} is registered already; pass replace=True to override it")
            del self._lazy[driver.name]
        self._registry.register(driver.name, driver, replace=replace)
        self._kinds[driver.name] = driver.kind
        self._built_in.discard(driver.name)
        return driver

    def register_path(self, name: str, path: str) -> None:
        """Register ``module:attribute``, a driver to import on first use; raise UsageError if the name is taken."""
        if name in self._lazy or name in self._registry:
            raise UsageError(f"backend {name!r} is registered already")
        self._lazy[name] = path

    def register_factory(self, name: str, factory: Callable[[], BackendDriver]) -> None:
        """Register a function that creates a driver on first use; both ``name`` and the driver's name select it.

        It replaces an earlier factory of that name, since a module may be imported again.

        Raises:
            UsageError: if another backend has the name.
        """
        if not callable(self._lazy.get(name, factory)) or (name in self._registry and name not in self._factories):
            raise UsageError(f"backend {name!r} is registered already; give the suite another name")
        self._factories.add(name)
        self._lazy[name] = factory

    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._lazy, *self._registry.names())))

    def get(self, name: str) -> BackendDriver:
        """Return the driver called ``name``; import or create it if necessary.

        Raises:
            UnknownName: with the nearest known name.
            Unavailable: if it needs a package that is not installed.
            UsageError: if the object under the name is no valid driver of that name.
        """
        self._create_pending_drivers(name)
        if name in self._factories & self._lazy.keys():
            return self._create_driver(name)
        if name in self._lazy:
            path = str(self._lazy[name])
            try:
                loaded = load_extension(f"backend {name!r}", path)
            except Unavailable as error:
                raise Unavailable(f"backend {name}", error.remedy) from None
            driver = loaded() if isinstance(loaded, type) else loaded
            _require_valid_driver(driver)
            if driver.name != name:
                raise UsageError(f"backend {name!r} is registered for a driver whose name is {driver.name!r}")
            del self._lazy[name]
            self._registry.register(name, driver)
            self._kinds[name] = driver.kind
        if name not in self._registry:
            raise UnknownName("backend", name, self.names())
        return self._registry.get(name)

    def _create_pending_drivers(self, name: str) -> None:
        """Create the drivers of all factories if ``name`` is unknown: it may be the name of one of these drivers."""
        if name not in self._lazy and name not in self._registry:
            for factory in sorted(self._factories & self._lazy.keys()):
                self._create_driver(factory)

    def _create_driver(self, name: str) -> BackendDriver:
        """Call a factory, register its driver under both names and return it; raise UsageError if it is invalid."""
        factory = self._lazy[name]
        assert callable(factory)
        driver = factory()
        _require_valid_driver(driver)
        is_taken = driver.name in self.names() and self._factory_names.get(driver.name) != name
        is_shipped = driver.name in self._built_in and type(driver) is type(self.get(driver.name))
        if driver.name != name and is_taken and not is_shipped:
            raise UsageError(
                f"suite {name!r} tests a driver called {driver.name!r}, and so does another registered suite\n"
                "  it is ambiguous which of them to run: give them different names"
            )
        self._factory_names[driver.name] = name
        del self._lazy[name]
        for alias in (name, driver.name):
            self._registry.register(alias, driver, replace=True)
            self._kinds[alias] = driver.kind
        return driver

    def kind_of(self, name: str) -> str:
        """Return the kind of a backend, without importing a built-in one."""
        return self._kinds.get(name) or self.get(name).kind

    def source_of(self, name: str) -> str:
        """Return ``built in``, or the module of the driver's class."""
        return "built in" if name in self._built_in else type(self.get(name)).__module__

    def drivers(self) -> tuple[BackendDriver, ...]:
        """Import and return every driver; raise ``Unavailable`` for the first one that is not installed."""
        return tuple(self.get(name) for name in self.names())

    def select(self, name: str, chip: str | None = None) -> BackendDriver:
        """Return the driver for a name or kind (``ascend`` or ``npu``) that accepts ``chip``; a user's before ours.

        Raises:
            UnknownName: for an unknown backend or chip, listing the known ones.
            UsageError: if several drivers of a kind accept it.
            Unavailable: if the driver needs a package that is not installed.
        """
        self._create_pending_drivers(name)
        drivers = [self.get(name)] if name in self.names() else self._of_kind(name)
        candidates = [driver for driver in drivers if chip is None or driver.accepts_chip(chip)]
        candidates = [driver for driver in candidates if driver.name not in self._built_in] or candidates
        if not candidates:
            known = [chip for driver in drivers for chip in driver.chips]
            raise UnknownName(f"chip of backend {name}", chip or "", known or ("(it takes no chip)",))
        if len(candidates) > 1:
            listed = ", ".join(driver.name for driver in candidates)
            raise UsageError(f"backend kind {name!r} is {listed}; name one of them")
        return candidates[0]

    def _of_kind(self, kind: str) -> list[BackendDriver]:
        """Return all drivers of ``kind``, without those that are selected by name only; raise UnknownName if none."""
        for name in self.names():
            if name not in self._kinds:  # registered by path: its kind is known once it is imported
                with suppress(Unavailable):  # a missing framework does not concern the other backends
                    self.get(name)
        names = [name for name, of_kind in self._kinds.items() if of_kind == kind and name not in self._by_name_only]
        if not names:
            kinds = {of_kind for name, of_kind in self._kinds.items() if name not in self._by_name_only}
            raise UnknownName("backend", kind, (*self.names(), *sorted(kinds)))
        return [self.get(name) for name in names]

    def target(self, driver: BackendDriver, chip: str | None = None, variant: str | None = None) -> BackendTarget:
        """Return the target of a driver; without ``variant`` its last compared variant, else its compiler or None."""
        known = driver.variants if isinstance(driver, HasVariants) else ()
        if variant is not None and variant not in known:
            hint = "for your compiler use --compile-backend NAME" * (driver.name == "torch")
            raise UnknownName(f"variant of backend {driver.name}", variant, known or ("(no variant)",), hint=hint)
        chosen = variant or next(iter(compared_variants(driver)[-1:]), getattr(driver, "compiler", None))
        return BackendTarget(name=driver.name, kind=driver.kind, chip=chip, device=driver.device(), variant=chosen)


def _require_valid_driver(driver: object) -> None:
    """Raise UsageError for an attribute that would otherwise cause a wrong selection or a late, unclear error."""
    if not isinstance(driver, BackendDriver):
        actual = f"the class {driver.__name__}" if isinstance(driver, type) else f"a {type(driver).__name__}"
        raise UsageError(f"backend is {actual}, expected an instance of a class derived from BackendDriver")
    title = type(driver).__name__
    if not driver.name:
        raise UsageError(f"backend driver {title} has no name; set the class attribute `name`")
    if driver.api != 1:
        raise UsageError(f"backend {driver.name} has api = {driver.api}, expected 1")
    if not driver.kind:
        raise UsageError(f"backend {driver.name} has no kind; set the class attribute `kind`, such as 'gpu'")
    if not isinstance(driver.chips, (tuple, list)):  # ("a100") is a string, and "a" would be in it
        raise UsageError(f"backend {driver.name} has chips = {driver.chips!r}, expected a tuple of names")
    if not isinstance(driver.numerics, Numerics):
        raise UsageError(f"backend {driver.name} has numerics = {driver.numerics!r}, expected Numerics(…)")
    if wrong := wrong_numerics(asdict(driver.numerics)):
        raise UsageError(f"backend {driver.name} has {wrong}")
    if type(driver).run is BackendDriver.run and not isinstance(driver, WritesOutputs):
        raise UsageError(f"backend {driver.name} has neither `run` nor `run_into`")


def declared_numerics(driver: BackendDriver, case: TestCase) -> Numerics:
    """Return the arithmetic that ``driver`` declares for ``case``; its kind sets a missing processor."""
    numerics = driver.numerics_of(case)
    return numerics if numerics.processor is not None else _with_processor(numerics, driver.kind == "cpu")


@cache  # one object per declaration, since laws are cached by it
def _with_processor(numerics: Numerics, is_cpu: bool) -> Numerics:
    return replace(numerics, processor="cpu" if is_cpu else "accelerator")


_FLOATS = tuple(entry.name for entry in DTYPES if entry.is_float)
_CHOICES: dict[str, tuple[str | bool | None, ...]] = {
    "operands": ("float32", "tf32", "bfloat16", "float16"),
    "accumulator": (None, *_FLOATS),
    "denormals": ("preserve", "flush"),
    "overflow": ("infinity", "saturate"),
    "processor": (None, "cpu", "accelerator"),
    "accumulator_truncates": (False, True),
    "direct": (False, True),
    "invariant": (False, True),
}


def wrong_numerics(fields: Mapping[str, Any]) -> str | None:
    """Describe the first unknown field or value of :class:`Numerics`, None if all are valid."""
    # A misspelt value would otherwise select other tolerances silently.
    for name, value in fields.items():
        if name not in _CHOICES:
            hint = did_you_mean(name, _CHOICES, f"known: {', '.join(_CHOICES)}")
            return f"numerics.{name}, which is no field of numerics; {hint}"
        if value not in _CHOICES[name]:
            return f"numerics.{name} = {value!r}, expected one of {', '.join(map(repr, _CHOICES[name]))}"
    return None


backend_manager = BackendManager(_BUILTINS)
