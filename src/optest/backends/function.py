"""Python functions as a backend: one function for each operator, of NumPy arrays or of torch tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from optest.backends import BackendDriver, Fault, Numerics, Reason
from optest.backends.arguments import at_their_places
from optest.backends.capabilities import LAYOUTS, Capability, layout_of
from optest.errors import Unavailable, UsageError
from optest.guests import Guest, Option
from optest.registry import is_installed, load_extension, load_object
from optest.spec import Check, OperatorDescriptor, TestCase, dtype_names

__all__ = ["GUEST", "FunctionBackend", "Kernel", "kernel", "kernel_of", "outputs_of"]

_ARRAYS = ("numpy", "torch")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Kernel:
    """A function and what it promises; a case outside of that is a declared gap.

    ``ignores`` are attributes that it sees from the shapes. ``arrays`` is what it takes: ``numpy`` or ``torch``.
    ``out`` are its parameters for outputs to write into, ``in_place`` the operator's inputs that it leaves them in.
    """

    operator: str
    function: Callable[..., Any]
    promised: Capability
    ignores: tuple[str, ...] = ()
    arrays: str = "numpy"
    numerics: Numerics = field(default_factory=Numerics)
    out: tuple[str, ...] = ()
    in_place: tuple[str, ...] = ()

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """By name; of a function that says nothing of itself, as some of C do, any number of any kind."""
        try:
            return inspect.signature(self.function).parameters
        except (TypeError, ValueError):
            return inspect.signature(lambda *_, **__: None).parameters

    def lacks(self, case: TestCase) -> str | None:
        """Why the case is none for this function, None if it is one."""
        if outside := self.promised.lacks(case):
            return f"{self.name}: {outside}"
        tensors, takes = self._tensors(case, [each.name for each in case.inputs]), self._takes(case)
        if inspect.Parameter.VAR_POSITIONAL not in self._kinds() and len(tensors) > takes:
            return f"{self.name} takes fewer tensors than the {len(tensors)} of the case"
        if why := self._cannot_write(case):
            return f"{self.name} {why}"
        usual = {each.name: each.default for each in case.descriptor.attributes if not each.is_required}
        for name, key in self._keywords(case):
            value = case.attributes[name]
            if not key and (name not in usual or value != usual[name]):  # it would assume the usual one
                return f"{self.name} takes no {name}, which is {value!r} here"
        return None

    def call(self, case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any] = ()) -> Any:
        """What the function returns for these tensors, in the operator's order, and the attributes that it takes."""
        keywords = {key: case.attributes[name] for name, key in self._keywords(case) if key}
        tensors, written = iter(self._tensors(case, inputs)), dict(zip(self.outputs(case), outputs, strict=False))
        first: list[Any] = []
        for name in [each.name for each in self.parameters.values() if each.kind in _POSITIONAL] if written else ():
            if name not in written and (tensor := next(tensors, self)) is self:
                break
            first.append(written.pop(name) if name in written else tensor)
        rest = list(tensors)
        names = [each.name for each in self.parameters.values() if each.kind in _POSITIONAL][len(first) :]
        before = next((place for place, name in enumerate(names) if name in keywords), len(rest))
        behind = [name for name in names[before:] if name not in keywords]  # as weight is behind normalized_shape
        by_name = dict(zip(behind, rest[before:], strict=False))
        rest[before : before + len(by_name)] = []
        return self.function(*first, *rest, **by_name, **keywords, **written)

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))

    def outputs(self, case: TestCase) -> tuple[str, ...]:
        """Its parameters for the outputs: those that it states, else those that have their names and no default."""
        described = case.descriptor
        taken = {each.name for each in described.tensors.inputs} | {each.name for each in described.attributes}
        return self.out or tuple(
            name
            for name in described.tensors.outputs
            if name not in taken and (own := self.parameters.get(name)) and own.default is own.empty
        )

    def _takes(self, case: TestCase) -> int:
        """How many of its parameters may be inputs."""
        out = self.outputs(case)
        return sum(each.kind in _POSITIONAL and each.name not in out for each in self.parameters.values())

    def _cannot_write(self, case: TestCase) -> str:
        """Why the outputs of the case cannot be written where the function writes them."""
        places = self.outputs(case) or self.in_place
        if places and case.outputs and len(places) != len(case.outputs):
            return f"writes {len(places)} outputs, and the case has {len(case.outputs)}"
        specs = {each.name: each.spec for each in case.inputs}
        for name, output in zip(self.in_place, case.outputs, strict=False):
            spec = specs.get(name)
            if (
                spec is None
                or (spec.shape, spec.dtype) != (output.shape, output.dtype)
                or layout_of(spec) == "overlapping"
            ):
                return f"leaves its result in {name}, which is no tensor of {output}"
        return ""

    def _kinds(self) -> list[Any]:
        return [each.kind for each in self.parameters.values()]

    def _tensors(self, case: TestCase, inputs: Sequence[Any]) -> list[Any]:
        """At their places, None for optional ones that are left out before others."""
        placed = at_their_places(case, inputs)
        while placed and placed[-1] is None:
            placed.pop()
        return placed

    def _keywords(self, case: TestCase) -> Iterator[tuple[str, str]]:
        """Each attribute that is not ignored, with the name that the function has for it, "" for none. One that is
        None is left out where the function has a default for it."""
        takes_all = inspect.Parameter.VAR_KEYWORD in self._kinds()
        for attribute in case.descriptor.attributes:
            names = (attribute.name, *attribute.aliases)
            if attribute.name not in case.attributes or any(name in self.ignores for name in names):
                continue
            own = next((name for name in names if name in self.parameters), attribute.name if takes_all else "")
            parameter = self.parameters.get(own)
            is_usual = parameter is not None and parameter.default is not inspect.Parameter.empty
            if case.attributes[attribute.name] is not None or not is_usual:
                yield attribute.name, own


_DECLARED: dict[str, Kernel] = {}
"""The last one that was declared for an operator."""
_KERNELS: list[Kernel] = []
"""All that were declared: a module may have several for one operator."""


def kernel(
    operator: str,
    *,
    dtypes: Sequence[str] = (),
    ranks: Sequence[int] = (),
    layouts: Sequence[str] = (),
    broadcasts: bool = True,
    ignores: Sequence[str] = (),
    refuses: bool = False,
    arrays: str = "",
    numerics: Numerics | None = None,
    out: Sequence[str] = (),
    in_place: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function below is an implementation of ``operator``, for ``--backend function``.

    It gets the operator's tensors in order and those of its attributes that it has a parameter for, and returns a
    tensor, or a tuple or dict of them. The promises are those of :class:`Capability`; cases outside of them are gaps.
    Without ``arrays`` an annotation such as ``torch.Tensor`` decides, else it is NumPy. ``numerics`` says how it
    computes, where that is not the way of the dtype: ``Numerics(operands="tf32")``.

    ``out`` names parameters for tensors that it writes the outputs into, in the operator's order; one that is called
    like an output of the operator needs no mention. ``in_place`` names inputs of the operator that it leaves its
    outputs in. What it returns does not count, then.

    Raises:
        UsageError: for a dtype or a layout that does not exist, or another word in ``arrays``.
    """
    if odd := [name for name in layouts if name not in LAYOUTS]:
        raise UsageError(f"kernel for {operator}: there is no layout {odd[0]!r}; known: {', '.join(LAYOUTS)}")
    unknown = [name for name in dtypes if name not in dtype_names()]
    if unknown:
        raise UsageError(f"kernel for {operator}: there is no dtype {unknown[0]!r}; known: {', '.join(dtype_names())}")
    if arrays and arrays not in _ARRAYS:
        raise UsageError(f"kernel for {operator}: arrays is {arrays!r}, but should be 'numpy' or 'torch'")

    promised = Capability(
        dtypes=tuple(dtypes), ranks=tuple(ranks), layouts=tuple(layouts), broadcasts=broadcasts, refuses=refuses
    )

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function):
            raise UsageError(f"kernel for {operator} is {function!r}, but should be a function")
        more: dict[str, Any] = {"numerics": numerics or Numerics(), "out": tuple(out), "in_place": tuple(in_place)}
        declared = Kernel(operator, function, promised, tuple(ignores), arrays or _arrays_of(function), **more)
        _DECLARED[operator] = declared
        _KERNELS.append(declared)
        return function

    return declare


def _arrays_of(function: Callable[..., Any]) -> str:
    """By its annotations; without any by the module that it belongs to, or that its own module imports."""
    annotations = getattr(function, "__annotations__", {}).values()
    if annotations:
        return "torch" if any("Tensor" in str(each) for each in annotations) else "numpy"
    used = {getattr(each, "__name__", "") for each in getattr(function, "__globals__", {}).values()}
    is_of_torch = str(getattr(function, "__module__", "")).partition(".")[0] == "torch"
    return "torch" if is_of_torch or ("torch" in used and "numpy" not in used) else "numpy"


def _stated(text: str) -> Kernel:
    """What ``[OPERATOR=]MODULE:NAME`` names: a declared kernel keeps what it promises.

    Raises:
        UsageError, Unavailable: if there is no such function.
    """
    operator, _, path = text.rpartition("=")
    function = load_extension("function", path)
    if not callable(function):
        raise UsageError(f"--function {text}: {path} is {function!r}, but should be a function")
    return kernel_of(function, operator, path.replace(":", ".").rpartition(".")[2])


def kernel_of(function: Callable[..., Any], operator: str = "", name: str = "") -> Kernel:
    """The kernel that a function is declared as, else one without promises for ``operator``, or that of its name:
    ``name``, which it may have in its module alone."""
    for declared in reversed(_KERNELS):
        if declared.function is function and operator in ("", declared.operator):
            return declared
    name = operator or name or str(getattr(function, "__name__", ""))
    return Kernel(name, function, Capability(refuses=False), arrays=_arrays_of(function))


class FunctionBackend(BackendDriver):
    """Calls the functions of ``--function``, of ``backend_config.function``, or those that are declared as kernels."""

    name = "function"
    kind = "cpu"
    options: tuple[str, ...] = ("function", "torch_device")
    arrays = ""
    """What every function gets, whatever it says of itself."""
    margin_bytes = 1 << 16  # a block of Triton's without its mask reaches as far as the block is large

    def __init__(self) -> None:
        self._named: dict[str, str] = {}
        self._kernels: dict[str, Kernel] = {}
        self._torch_device = ""
        self._tensor_calls: Any = None

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take ``function``: ``[OPERATOR=]MODULE:NAME``, one or several; and ``torch_device``, for torch tensors.

        Raises:
            UsageError, Unavailable: for one that cannot be imported, or if there is no such device.
        """
        if self._torch_device != (device := str(options.get("torch_device") or "")):
            self._torch_device, self._tensor_calls = device, None
            self._calls_of_torch()
        self._named = {}
        for text in options.get("function") or ():
            found = _stated(text)
            self._named[found.operator] = named = f"{found.operator}={text.rpartition('=')[2]}"
            self._kernels[named] = found

    def case_options(self) -> Mapping[str, Any]:
        return {name: text.rpartition("=")[2] for name, text in self._named.items()}

    def ready_for_check(self) -> str | None:
        if self._named or _DECLARED:
            return None
        return "no function is named\n  for example: optest check --function my_kernels:softmax"

    def lacks(self, descriptor: OperatorDescriptor) -> str | None:
        known = self._named or _DECLARED
        if any(name in known for name in (descriptor.name, *descriptor.aliases)):
            return None
        return f"not among the functions, which are for {', '.join(known)}"

    def device(self) -> str | None:
        return self._torch_device or None

    def problems(self, case: TestCase) -> Sequence[str]:
        stated: Any = case.backend_config.get(self.name, {})
        if isinstance(stated, Mapping) and all(isinstance(each, str) for each in stated.values()):
            return ()
        return (f"backend_config.{self.name} is {stated!r}, but should map operators to functions (MODULE:NAME)",)

    def unsupported(self, case: TestCase) -> str | None:
        found = self._kernel(case)
        return f"no function for {case.descriptor.name}" if found is None else found.lacks(case)

    def numerics_of(self, case: TestCase) -> Numerics:
        found = self._kernel(case)
        return self.numerics if found is None else found.numerics

    def runs_into(self, case: TestCase) -> bool:
        """Whether the function writes into outputs that it gets."""
        return bool((found := self._kernel(case)) and found.outputs(case))

    def writes_inputs(self, case: TestCase) -> Sequence[str]:
        """The inputs that the function leaves its outputs in."""
        return found.in_place if (found := self._kernel(case)) else ()

    def import_late(self) -> None:
        load_object("optest.backends.arrays:to_array")
        if any(map(self._of_torch, (*self._kernels.values(), *_DECLARED.values()))):
            load_object("optest.torch.driver:TensorCalls")  # whose device is for the fork to open

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any] | Mapping[str, Any]:
        """Return what the function for the case's operator returns or leaves in its inputs, as arrays.

        Raises:
            Fault: UNSUPPORTED where it raises NotImplementedError.
            Unavailable: for a function of torch tensors without torch.
        """
        if self.runs_into(case):
            return super().run(case, inputs)
        returned, in_place = self._called(case, inputs), self.writes_inputs(case)
        if in_place:
            by_name = {argument.name: array for argument, array in zip(case.inputs, inputs, strict=True)}
            return [by_name[name].copy() for name in in_place]
        to_array = load_object("optest.backends.arrays:to_array")  # imports NumPy
        outputs = {name: to_array(each) for name, each in outputs_of(returned)}
        return outputs if isinstance(returned, Mapping) else list(outputs.values())

    def run_into(self, case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Have the function write into ``outputs``; as :meth:`run`."""
        self._called(case, inputs, outputs)

    def checks(self, case: TestCase) -> Sequence[Check]:
        found = self._kernel(case)
        return self._tensor_calls.checks() if found and self._tensor_calls and self._of_torch(found) else ()

    def _called(self, case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any] = ()) -> Any:
        """What the function returns, tensors of torch as arrays."""
        found = self._kernel(case)
        if found is None:
            raise Fault(Reason.UNSUPPORTED, f"no function for {case.descriptor.name}")

        def call(tensors: Sequence[Any], written: Sequence[Any] = ()) -> Any:
            try:
                return found.call(case, tensors, written)
            except NotImplementedError as error:
                raise Fault(Reason.UNSUPPORTED, f"{found.name}: {str(error) or 'NotImplementedError'}") from None

        if not self._of_torch(found):
            return call(inputs, outputs)
        described = case.descriptor
        calls = self._calls_of_torch()
        return calls.outputs(call, inputs, described.tensors.outputs, outputs, may_seed=described.is_random)

    def _of_torch(self, found: Kernel) -> bool:
        return (self.arrays or found.arrays) == "torch"

    def _calls_of_torch(self) -> Any:
        """Raises ``Unavailable`` without torch, or without the device."""
        if self._tensor_calls is None:
            if not is_installed("torch"):
                raise Unavailable("torch", "the function takes torch tensors; pip install torch")
            device = load_object("optest.torch.devices:open_device")(self._torch_device or "cpu")
            self._tensor_calls = load_object("optest.torch.driver:TensorCalls")(device)
        return self._tensor_calls

    def _kernel(self, case: TestCase) -> Kernel | None:
        """The one that the case names, else the declared one."""
        stated = case.backend_config.get(self.name, {})
        for name in (case.descriptor.name, *case.descriptor.aliases):
            if name in stated:
                text = f"{name}={stated[name]}"
                if text not in self._kernels:
                    self._kernels[text] = _stated(text)
                return self._kernels[text]
            if not stated and name in _DECLARED:
                return _DECLARED[name]
        return None


def outputs_of(returned: Any) -> list[tuple[Any, Any]]:
    """The outputs that a function returns, each with its name or place."""
    if isinstance(returned, Mapping):
        return list(returned.items())
    return list(enumerate(returned if isinstance(returned, (tuple, list)) else (returned,)))


GUEST = Guest(
    options=(
        Option(
            name="function",
            common=True,
            repeat=True,
            repro=True,
            in_trends=True,
            group="Backend",
            metavar="[OP=]MODULE:NAME",
            commands=("run", "list", "check"),
            help="Python function to ask, for the operator of its name or for OP. Repeatable.",
        ),
    ),
    backend="function",
)
