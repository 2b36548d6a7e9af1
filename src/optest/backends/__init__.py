"""Who makes the actual outputs: the driver protocol and the manager that finds a driver by name or kind.

No driver is imported before it is asked for; the stub is found by its name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, ClassVar

from optest.backends.abilities import FurtherAnswer, PreparedCall, Script, ScriptInput, WritesOutputs
from optest.backends.capabilities import Capability
from optest.backends.command_abilities import HasVariants, compared_variants
from optest.errors import Unavailable, UnknownName, UsageError, did_you_mean
from optest.registry import Registry, load_extension
from optest.spec import (
    DTYPES,
    BackendTarget,
    Check,
    Fault,
    Numerics,
    Reason,
    TestCase,
)

__all__ = [
    "BackendDriver",
    "BackendManager",
    "Capability",
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


class BackendDriver:
    """Executes one case on one kind of device.

    A driver sets ``kind`` (``cpu``, ``gpu``, ``npu`` …), ``name`` and ``chips``, and implements :meth:`run`
    or ``run_into``. With ``chips`` empty no chip can be asked for; ``("*",)`` takes any. What it may be able to do
    beside that (timed calls, scripts, options …) stands in :mod:`optest.backends.abilities`.

    To say why no outputs could be made, raise :class:`Fault` with a :class:`Reason` (``UNSUPPORTED``,
    ``COMPILE``, ``OUT_OF_MEMORY``, ``DEVICE_LOST`` …). Anything else that is raised becomes ``RAISED``.
    """

    api: ClassVar[int] = 1
    kind: str = "cpu"
    name: str = ""
    chips: tuple[str, ...] = ()
    numerics: Numerics = Numerics()
    isolated: bool = True
    """Run in a worker process unless the user says otherwise."""
    is_reference: bool = False
    """The driver answers with the references themselves, so that its passes say nothing of a kernel."""

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any] | Mapping[str, Any]:  # noqa: ARG002
        """Return the outputs in order, or by name. ``inputs`` are NumPy arrays in the case's dtypes and layouts.

        A driver that writes into buffers that optest owns defines ``run_into(case, inputs, outputs)`` in its place.
        """
        raise Fault(
            Reason.UNSUPPORTED,
            f"backend {self.name} writes into buffers of optest, but the shapes of the outputs are not known; "
            "state them under `shapes:`",
        )

    def numerics_of(self, case: TestCase) -> Numerics:  # noqa: ARG002 - part of the protocol
        """What is declared of the arithmetic that answers ``case``."""
        return self.numerics

    def accepts_chip(self, chip: str) -> bool:
        return "*" in self.chips or chip in self.chips

    def unsupported(self, case: TestCase) -> str | None:  # noqa: ARG002 - part of the protocol
        """Why this driver cannot run ``case``, or None; such a case is skipped as UNSUPPORTED."""
        return None

    def checks(self, case: TestCase) -> Sequence[Check]:  # noqa: ARG002 - part of the protocol
        """What this driver looked at, beside the values, while it last ran ``case``; for the report."""
        return ()

    def device(self) -> str | None:
        """The device that outputs come from, for the report: ``cpu``, ``cuda:0``."""
        return None

    def versions(self) -> Mapping[str, str]:
        """Versions of what computes the outputs, for the report."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Builtin:
    """What has to be known of a built-in driver before it is imported."""

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
        self._made_by: dict[str, str] = {}
        self._own = {each.name for each in builtins}
        self._lazy: dict[str, str | Callable[[], BackendDriver]] = {each.name: each.path for each in builtins}
        self._kinds = {each.name: each.kind for each in builtins}
        self._by_name_only = {each.name for each in builtins if each.by_name_only}

    def register(self, driver: BackendDriver, *, replace: bool = False) -> BackendDriver:
        """Add a driver instance and return it.

        Raises:
            UsageError: for something that is no driver or has a defect, or if the name is taken.
        """
        _require_sound(driver)
        if driver.name in self._lazy:
            if not replace:
                raise UsageError(f"backend {driver.name!r} is registered already; pass replace=True to override it")
            del self._lazy[driver.name]
        self._registry.register(driver.name, driver, replace=replace)
        self._kinds[driver.name] = driver.kind
        self._own.discard(driver.name)
        return driver

    def register_path(self, name: str, path: str) -> None:
        """Add a driver that is imported when it is asked for: a class or an instance at ``module:attribute``.

        Raises:
            UsageError: if the name is taken.
        """
        if name in self._lazy or name in self._registry:
            raise UsageError(f"backend {name!r} is registered already")
        self._lazy[name] = path

    def register_factory(self, name: str, factory: Callable[[], BackendDriver]) -> None:
        """Add a function that makes a driver when it is asked for, by ``name`` or by the driver's own name; in place of
        an earlier function of that name, as of a module that is imported again.

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
        """Return the driver called ``name``.

        Raises:
            UnknownName: with the nearest known name.
            Unavailable: if it needs a package that is not installed.
            UsageError: if what is found under the name is no sound driver of that name.
        """
        self._make_for(name)
        if name in self._factories & self._lazy.keys():
            return self._make(name)
        if name in self._lazy:
            path = str(self._lazy[name])
            try:
                loaded = load_extension(f"backend {name!r}", path)
            except Unavailable as error:
                raise Unavailable(f"backend {name}", error.remedy) from None
            driver = loaded() if isinstance(loaded, type) else loaded
            _require_sound(driver)
            if driver.name != name:
                raise UsageError(f"backend {name!r} is registered for a driver that calls itself {driver.name!r}")
            del self._lazy[name]
            self._registry.register(name, driver)
            self._kinds[name] = driver.kind
        if name not in self._registry:
            raise UnknownName("backend", name, self.names())
        return self._registry.get(name)

    def _make_for(self, name: str) -> None:
        """Make the drivers of all factories if nobody has ``name``, which one of them may have for its own."""
        if name not in self._lazy and name not in self._registry:
            for each in sorted(self._factories & self._lazy.keys()):
                self._make(each)

    def _make(self, name: str) -> BackendDriver:
        """The driver of a factory, known by the factory's name and by its own.

        Raises:
            UsageError: if it makes none that is sound, or one of a name that is taken.
        """
        factory = self._lazy[name]
        assert callable(factory)
        driver = factory()
        _require_sound(driver)
        of_others = driver.name in self.names() and self._made_by.get(driver.name) != name
        is_shipped = driver.name in self._own and type(driver) is type(self.get(driver.name))
        if driver.name != name and of_others and not is_shipped:
            raise UsageError(
                f"suite {name!r} tests a driver called {driver.name!r}, and so is another one that is registered\n"
                "  which of the two runs would be a guess: give them different names"
            )
        self._made_by[driver.name] = name
        del self._lazy[name]
        for each in (name, driver.name):
            self._registry.register(each, driver, replace=True)
            self._kinds[each] = driver.kind
        return driver

    def kind_of(self, name: str) -> str:
        """The kind of a backend, without importing a built-in one."""
        return self._kinds.get(name) or self.get(name).kind

    def source_of(self, name: str) -> str:
        """``built in``, or the module of the driver."""
        return "built in" if name in self._own else type(self.get(name)).__module__

    def drivers(self) -> tuple[BackendDriver, ...]:
        """Every driver, imported. Raises ``Unavailable`` for the first that cannot be."""
        return tuple(self.get(name) for name in self.names())

    def select(self, name: str, chip: str | None = None) -> BackendDriver:
        """Return the driver for a name or kind (``ascend`` or ``npu``) that has ``chip``.

        Raises:
            UnknownName: for an unknown backend or chip, listing the known ones.
            UsageError: if several drivers of a kind would do.
            Unavailable: if the driver needs a package that is not installed.
        """
        self._make_for(name)
        drivers = [self.get(name)] if name in self.names() else self._of_kind(name)
        able = [driver for driver in drivers if chip is None or driver.accepts_chip(chip)]
        able = [driver for driver in able if driver.name not in self._own] or able
        if not able:
            known = [each for driver in drivers for each in driver.chips]
            raise UnknownName(f"chip of backend {name}", chip or "", known or ("(it takes no chip)",))
        if len(able) > 1:
            listed = ", ".join(driver.name for driver in able)
            raise UsageError(f"backend kind {name!r} is {listed}; name one of them")
        return able[0]

    def _of_kind(self, kind: str) -> list[BackendDriver]:
        """Every driver of ``kind`` that may be chosen by it."""
        for name in self.names():
            if name not in self._kinds:  # registered by path, so its kind is known when it is loaded
                with suppress(Unavailable):  # a framework that is missing here is no matter of the other backends
                    self.get(name)
        names = [name for name, each in self._kinds.items() if each == kind and name not in self._by_name_only]
        if not names:
            kinds = {each for name, each in self._kinds.items() if name not in self._by_name_only}
            raise UnknownName("backend", kind, (*self.names(), *sorted(kinds)))
        return [self.get(name) for name in names]

    def target(self, driver: BackendDriver, chip: str | None = None, variant: str | None = None) -> BackendTarget:
        """Return the target of a driver; without a variant its compiler, or its default if its variants are compared.

        Raises:
            UnknownName: for a variant that it does not have.
        """
        known = driver.variants if isinstance(driver, HasVariants) else ()
        if variant is not None and variant not in known:
            hint = "a compiler of your own: --compile-backend NAME" * (driver.name == "torch")
            raise UnknownName(f"variant of backend {driver.name}", variant, known or ("(it has none)",), hint=hint)
        chosen = variant or next(iter(compared_variants(driver)[-1:]), getattr(driver, "compiler", None))
        return BackendTarget(name=driver.name, kind=driver.kind, chip=chip, device=driver.device(), variant=chosen)


def _require_sound(driver: object) -> None:
    """Raise UsageError for what would otherwise show up as a wrong choice or a strange error much later."""
    if not isinstance(driver, BackendDriver):
        what = f"the class {driver.__name__}" if isinstance(driver, type) else f"a {type(driver).__name__}"
        raise UsageError(f"backend is {what}, expected an instance of a class derived from BackendDriver")
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
    """What ``driver`` declares of the arithmetic that answers ``case``, its processor by its kind if it states none."""
    stated = driver.numerics_of(case)
    return stated if stated.processor is not None else _with_processor(stated, driver.kind == "cpu")


@cache
def _with_processor(stated: Numerics, is_cpu: bool) -> Numerics:
    """The same object for the same declaration, since laws are remembered for it."""
    return replace(stated, processor="cpu" if is_cpu else "accelerator")


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


def wrong_numerics(stated: Mapping[str, Any]) -> str | None:
    """What is wrong with stated fields of :class:`Numerics`, the first in words: a slip would decide verdicts."""
    for name, value in stated.items():
        if name not in _CHOICES:
            hint = did_you_mean(name, _CHOICES, f"known: {', '.join(_CHOICES)}")
            return f"numerics.{name}, which is none; {hint}"
        if value not in _CHOICES[name]:
            return f"numerics.{name} = {value!r}, expected one of {', '.join(map(repr, _CHOICES[name]))}"
    return None


backend_manager = BackendManager(_BUILTINS)
