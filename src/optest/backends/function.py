"""Python functions as a backend: one function for each operator, on arrays of NumPy, torch or JAX."""

from __future__ import annotations

import dis
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from optest.backends import BackendDriver, Fault, Numerics, Reason
from optest.backends.arguments import Schema, bind_arguments, convert_value, names_of
from optest.backends.capabilities import Capability, layout_of
from optest.errors import Unavailable, UnknownName, UsageError, did_you_mean
from optest.registry import is_installed, load_extension, load_object
from optest.spec import Check, CheckState, OperatorDescriptor, TestCase, dtype

ARRAYS = ("numpy", "torch", "jax")


@dataclass(frozen=True)
class Kernel:
    """A function with its promises; cases outside of them are skipped as unsupported.

    ``ignores`` are attributes that it derives from the shapes. ``arrays`` is one of ``ARRAYS``, "" to detect it.
    ``out`` are its parameters for outputs to write into, ``in_place`` the inputs that it leaves outputs in.
    """

    operator: str
    function: Callable[..., Any]
    promised: Capability
    ignores: tuple[str, ...] = ()
    arrays: str = ""
    numerics: Numerics | None = None
    out: tuple[str, ...] = ()
    in_place: tuple[str, ...] = ()

    @cached_property
    def signatures(self) -> Sequence[inspect.Signature]:
        """Signature of the function, or one for each overload of a C++ function of torch."""
        try:
            signature = inspect.signature(self.function)
            takes_anything = all(x.kind in (x.VAR_POSITIONAL, x.VAR_KEYWORD) for x in signature.parameters.values())
            return (inspect.signature(_forward_of(self.function)) if takes_anything else signature,)
        except (TypeError, ValueError):
            is_of_torch = str(getattr(self.function, "__module__", "")).partition(".")[0] == "torch"
            overloads = load_object("optest.torch.calls.binding:overloads_of")(self.function) if is_of_torch else ()
            return overloads or (inspect.signature(lambda *_, **__: None),)

    @cached_property
    def takes(self) -> str:
        """Library of the arrays that the function takes: declared, or detected in its code and module."""
        return self.arrays or arrays_of(self.function)

    def lacks(self, case: TestCase) -> str | None:
        """Return why the function cannot run the case, None if it can."""
        if outside := self.promised.lacks(case):
            return f"{self.name}: {outside}"
        _, bound = self._binding(case)
        why = bound if isinstance(bound, str) else self.cannot_write(case)
        return f"{self.name} {why}" if why else None

    def call(self, case: TestCase, arrays: str, inputs: Sequence[Any], outputs: Sequence[Any] = ()) -> Any:
        """Call the function with the tensors and attributes that it takes; ``arrays`` selects the type of dtypes.

        Raises:
            Fault: UNSUPPORTED for a case that it cannot run, for NotImplementedError, for an error after an attribute
                whose value has another form than the parameter's default, and for RuntimeError of a torch function,
                which may support fewer dtypes than the operator.
        """
        signature, bound = self._binding(case)
        if isinstance(bound, str):
            raise Fault(Reason.UNSUPPORTED, f"{self.name} {bound}")
        values = dict(zip(self.outputs(case), outputs, strict=False))
        for name, source in bound.items():
            if isinstance(source, str):
                values[name] = _value_of(case, source, arrays, signature.parameters[name])
            elif isinstance(source, tuple):
                values[name] = {attribute: _value_of(case, attribute, arrays) for attribute in source}
            elif isinstance(source, list):
                values[name] = [None if index is None else inputs[index] for index in source]
            else:
                values[name] = None if source is None else inputs[source]
        call = inspect.BoundArguments(signature, values)
        attributes = {name: case.descriptor.attribute(x) for name, x in bound.items() if isinstance(x, str)}
        taken = {
            name: convert_value(case, attribute, signature.parameters[name]) for name, attribute in attributes.items()
        }
        misfits = [f"{name} of {value!r}" for name, (value, has_form) in taken.items() if not has_form]
        try:
            return self.function(*call.args, **call.kwargs)
        except (TypeError, ValueError, IndexError) as error:
            if not misfits:
                raise
            # By its default it takes values of another form only; if it accepts this one, its outputs are compared.
            raise Fault(Reason.UNSUPPORTED, f"{self.name} takes no {' and no '.join(misfits)}: {error}") from None
        except NotImplementedError as error:
            raise Fault(Reason.UNSUPPORTED, f"{self.name}: {str(error) or 'NotImplementedError'}") from None
        except RuntimeError as error:
            module = sys.modules.get(str(getattr(self.function, "__module__", "")))
            is_of_torch = _framework(self.function) == "torch" and getattr(module, self.name, None) is self.function
            if type(error) is not RuntimeError or not is_of_torch:  # a subclass may report a lack of memory
                raise
            raise Fault(Reason.UNSUPPORTED, f"torch's {self.name} rejects it: {error}".partition("\n")[0]) from None

    def by_position(self, case: TestCase) -> list[str]:
        """Return the inputs that are passed by order to parameters of other names, each as "ids is weight"."""
        named = self._input_parameters(case)
        return [f"{parameter} is {name}" for name, parameter in named.items() if parameter not in names_of(name)]

    def _input_parameters(self, case: TestCase) -> dict[str, str]:
        """Return the parameter of each input that has one for itself, by the input's name."""
        _, bound = self._binding(case)
        indices = {} if isinstance(bound, str) else {name: x for name, x in bound.items() if isinstance(x, int)}
        return {case.inputs[index].name: parameter for parameter, index in indices.items()}

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))

    def outputs(self, case: TestCase) -> tuple[str, ...]:
        """Return the parameters for outputs: the declared ones, else those with names of outputs and without a default
        if enough parameters are left for the inputs."""
        descriptor, parameters = case.descriptor, self.signatures[0].parameters
        taken = {x.name for x in descriptor.tensors.inputs} | {x.name for x in descriptor.attributes}
        names = self.out or tuple(
            name
            for name in descriptor.tensors.outputs
            if name not in taken and (parameter := parameters.get(name)) and parameter.default is parameter.empty
        )
        if not names or self.out:
            return names
        optional: list[Any] = [*descriptor.attributes, *(x for x in descriptor.tensors.inputs if x.optional)]
        known = {name for x in optional for name in names_of(x.name, getattr(x, "aliases", ()))}
        rest = [parameter for name, parameter in parameters.items() if name not in (*names, *known)]
        is_room = len(rest) >= descriptor.tensors.required_inputs
        return names if is_room or any(x.kind is x.VAR_POSITIONAL for x in rest) else ()

    def _binding(self, case: TestCase) -> tuple[inspect.Signature, dict[str, Any] | str]:
        """Return the first signature that accepts the case, with its arguments; else the last one, with the reason."""
        bound: dict[str, Any] | str = ""
        for signature in self.signatures:
            bound = bind_arguments(case, signature.parameters, self.outputs(case), self.ignores)
            if not isinstance(bound, str):
                break
        return signature, bound

    def inputs_written(self, case: TestCase) -> Sequence[str]:
        """Return the inputs that the function leaves its outputs in; ``in_place`` may name parameters instead."""
        bound = self._binding(case)[1] if self.in_place else ""
        indices: Any = {} if isinstance(bound, str) else bound
        return [case.inputs[x].name if type(x := indices.get(name)) is int else name for name in self.in_place]

    def decorator(self, case: TestCase, changed: Sequence[str]) -> str:
        """Return the decorator line for a function that leaves its outputs in the ``changed`` inputs; if these are
        fewer than the outputs, in other inputs of an output's shape and dtype, too."""
        kinds = {(output.shape, output.dtype) for output in case.outputs}
        rest = [argument.name for argument in case.inputs if (argument.spec.shape, argument.spec.dtype) in kinds]
        inputs = list(dict.fromkeys([*changed, *rest]))[: len(case.outputs) or len(changed)]
        names = tuple(self._input_parameters(case).get(name, name) for name in inputs)
        return f'@optest.kernel("{case.descriptor.name}", in_place={names})'.replace("'", '"')

    def cannot_write(self, case: TestCase) -> str:
        """Return why the function cannot write the outputs of the case into its parameters, "" if it can."""
        targets = self.outputs(case) or self.in_place
        if targets and case.outputs and len(targets) != len(case.outputs):
            names = ", ".join(case.descriptor.tensors.output_names(len(case.outputs)) or ())
            how = "name one for each in out=(…)" if self.out else self.decorator(case, self.inputs_written(case))
            return f"writes {len(targets)}, not {len(case.outputs)} outputs ({names}): {how}"
        specs = {argument.name: argument.spec for argument in case.inputs}
        for name, output in zip(self.inputs_written(case), case.outputs, strict=False):
            spec = specs.get(name)
            kind = (output.shape, output.dtype)
            if spec is None or (spec.shape, spec.dtype) != kind or layout_of(spec) == "overlapping":
                return f"leaves its result in {name}, which is no tensor of {output}"
        return ""


def _forward_of(function: Any) -> Any:
    """Return the ``forward`` that a module or autograd function of torch runs, also behind decorators and partials;
    any other callable unchanged."""
    function = inspect.unwrap(function)
    if isinstance(function, functools.partial):
        return functools.partial(_forward_of(function.func), *function.args, **function.keywords)
    target = getattr(function, "_orig_mod", getattr(function, "__self__", function))  # of a compiled module, a method
    forward = getattr(target, "forward", function)
    return functools.partial(forward, None) if isinstance(target, type) and forward is not function else forward


def _value_of(case: TestCase, attribute: str, arrays: str, parameter: inspect.Parameter | None = None) -> Any:
    """Return an attribute's value as the function gets it. The name of a dtype becomes a dtype of torch or NumPy.

    A whole number becomes an int if the schema of ``parameter`` takes any: torch rejects 1.0 next to integer tensors.

    Raises:
        Fault: UNSUPPORTED for a dtype that torch does not have.
    """
    descriptor = case.descriptor.attribute(attribute)
    value = convert_value(case, descriptor, parameter)[0] if parameter else case.attributes[attribute]
    if value is None and descriptor.implied:
        return descriptor.implied(case.inputs[0].spec)
    kind = parameter.annotation if parameter else ""
    if isinstance(value, float) and value.is_integer() and isinstance(kind, Schema) and "number" in kind:
        return int(value)
    if not isinstance(value, str) or "dtype" not in descriptor.type:
        return value
    if arrays != "torch":
        return load_object("optest.numerics:numpy_dtype")(dtype(value))
    try:
        return load_object("optest.torch.tensors:torch_dtype")(dtype(value))
    except ValueError as error:
        raise Fault(Reason.UNSUPPORTED, str(error)) from None


# The latest kernel of each operator, and all of them: a module may declare several for one operator.
_DECLARED: dict[str, Kernel] = {}
_KERNELS: list[Kernel] = []


def kernel(
    operator: str,
    *,
    dtypes: Sequence[str] = (),
    ranks: Sequence[int] = (),
    layouts: Sequence[str] = (),
    broadcasts: bool = True,
    promotes: bool = True,
    ignores: Sequence[str] = (),
    refuses: bool = False,
    arrays: str = "",
    numerics: Numerics | None = None,
    out: Sequence[str] = (),
    in_place: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that declares a function as an implementation of ``operator``, for ``--backend function``.

    The function gets the operator's tensors in order and the attributes that it has a parameter for. It returns a
    tensor, or a tuple or dict of tensors. The promises are those of :class:`Capability`; cases outside of them are
    skipped. Without ``arrays`` (``numpy``, ``torch`` or ``jax``) the library is detected from its annotations, code and
    imports. ``numerics`` describes arithmetic other than the dtype's: ``Numerics(operands="tf32")``.

    ``out`` names parameters for tensors that it writes the outputs into, in the operator's order; a parameter with the
    name of an output is detected. ``in_place`` names inputs of the operator, or their parameters, that it leaves its
    outputs in. Its return value is ignored in both cases. A second decorator for the same operator adds to the first.

    Raises:
        UsageError: for an unknown dtype, layout or library, or a parameter that ``ignores`` names.
    """
    if arrays and arrays not in ARRAYS:
        raise UsageError(f"kernel for {operator}: arrays is {arrays!r}, expected one of {', '.join(ARRAYS)}")

    tensors: dict[str, Any] = {"dtypes": tuple(dtypes), "ranks": tuple(ranks), "layouts": tuple(layouts)}
    capability = Capability(**tensors, broadcasts=broadcasts, promotes=promotes, refuses=refuses)

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        _require_function(function, f"kernel for {operator}")
        earlier = kernel_of(function, operator)
        promised = Capability(
            dtypes=capability.dtypes or earlier.promised.dtypes,
            ranks=capability.ranks or earlier.promised.ranks,
            layouts=capability.layouts or earlier.promised.layouts,
            broadcasts=broadcasts and earlier.promised.broadcasts,
            promotes=promotes and earlier.promised.promotes,
            refuses=refuses or earlier.promised.refuses,
        )
        declared = Kernel(
            operator,
            function,
            promised,
            (*ignores, *earlier.ignores),
            arrays or earlier.arrays,
            numerics=numerics or earlier.numerics,
            out=tuple(out) or earlier.out,
            in_place=tuple(in_place) or earlier.in_place,
        )
        for name in ignores:
            if name in declared.signatures[0].parameters:
                raise UsageError(
                    f"kernel for {operator}: {declared.name} has a parameter {name}, which `ignores` names\n"
                    f"  leave {name} out of `ignores` to get its value, or drop the parameter"
                )
        _DECLARED[operator] = declared
        _KERNELS.append(declared)
        return function

    return declare


_FRAMEWORKS = {"triton": "torch", "jaxlib": "jax", "jnp": "jax", "np": "numpy", **{name: name for name in ARRAYS}}
# Libraries by the name of an array type: it may be imported for type checkers only.
_OF_TYPES = {"Tensor": "torch", "ndarray": "numpy", "NDArray": "numpy"}
# Limit of the objects that are followed from one function, so that a large program takes little time.
_MOST_REACHED = 2000


def arrays_of(function: Callable[..., Any]) -> str:
    """Return the library of the arrays that a function takes: ``torch``, ``jax`` or ``numpy``.

    Annotated parameters decide; without them its code, with helper functions, closures and defaults; then the imports
    of its module. Of several libraries, torch precedes JAX and NumPy."""
    annotations = getattr(function, "__annotations__", None) or getattr(type(function).__call__, "__annotations__", {})
    module = getattr(function, "__globals__", None) or vars(sys.modules.get(str(function.__module__)) or object)
    hints = [hint for name, hint in annotations.items() if name != "return"]
    annotated = {library for hint in hints for library in _frameworks_in(hint, module)}
    imported: set[str] = set()
    used = set(_frameworks_used(function, imported))
    order = ("torch", "jax", "numpy")
    return next((name for libraries in (annotated, used, imported) for name in order if name in libraries), "numpy")


def _framework(value: Any) -> str:
    """Return the array library that a module, function, class or instance belongs to, "" if it is another one."""
    named = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return _FRAMEWORKS.get(str(named or type(value).__module__).partition(".")[0], "")


def _frameworks_in(annotation: Any, module: Mapping[str, Any]) -> Iterator[str]:
    """Yield the array libraries that an annotation (object or text) names; "" for other names."""
    of_types = _OF_TYPES if isinstance(annotation, str) else {}
    text = f"{annotation.__module__}.{annotation.__qualname__}" if isinstance(annotation, type) else str(annotation)
    for name in re.findall(r"[A-Za-z_][\w.]*", text):
        first, last = name.partition(".")[0], name.rpartition(".")[2]
        library = _framework(module[first]) if first in module else _FRAMEWORKS.get(first, of_types.get(last, ""))
        yield library if library != "numpy" or last in _OF_TYPES else ""  # np.dtype and np.float32 are no arrays


def _frameworks_used(function: Any, imported: set[str]) -> Iterator[str]:
    """Yield the array libraries of all objects that the code of a callable reaches, "" for others; add those of its
    module's imports to ``imported``."""
    home = getattr(function, "__module__", None)
    pending, seen = [function], set[int]()
    while pending and len(seen) < _MOST_REACHED:
        value = pending.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if library := _framework(value):
            yield library
        elif isinstance(value, FunctionType):
            # Functions of installed packages are not followed: SciPy's would lead to torch.
            if value.__module__ != home and "-packages" in value.__code__.co_filename:
                continue
            known = value.__globals__
            if not imported or value.__module__ == home:
                imported.update(map(_framework, known.values()))
            codes = [value.__code__]
            for code in codes:  # the list grows by the code of inner functions
                codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
            names = {name for code in codes for name in code.co_names}
            steps = [(step.opname, step.argval) for code in codes for step in dis.get_instructions(code)]
            yield from (_FRAMEWORKS.get(name.partition(".")[0], "") for step, name in steps if step == "IMPORT_NAME")
            reached = [known.get(name) for step, name in steps if step.endswith("_GLOBAL")]
            helpers = [vars(x) for x in reached if isinstance(x, ModuleType) and not _framework(x)]
            pending += [*reached, *(helper[name] for helper in helpers for name in names & helper.keys())]
            pending += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
            pending += [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
            pending.append(getattr(value, "__wrapped__", None))
            for hint in value.__annotations__.values():
                yield from _frameworks_in(hint, known)
        elif isinstance(value, (functools.partial, MethodType)):
            parts = ("func", "args", "keywords", "__func__", "__self__")
            pending += [getattr(value, name, None) for name in parts]
        elif isinstance(value, (tuple, list, dict)):
            pending += value.values() if isinstance(value, dict) else value
        elif isinstance(value, type):
            pending += value.__mro__
        elif callable(value):
            pending += [getattr(type(value), name, None) for name in ("__call__", "forward")]
            pending += [type(value), getattr(value, "__wrapped__", None), getattr(value, "__dict__", None)]


def _require_function(function: Any, title: str) -> None:
    """Raise UsageError, with an example, for a class, a Triton kernel, or an object that cannot be called."""
    if isinstance(function, type):
        name, is_autograd = function.__name__, any(base.__name__ == "FunctionCtx" for base in function.__mro__)
        example = f"{name}.apply" if is_autograd else f"{name}(...)"
        how = (
            f"assign it in the file, for example instance = {example}, and use that; to compare with its own weights,\n"
            "  add a function with the same result: --reference MODULE:NAME --shape x=4x64 --dtype float32"
        )
        raise UsageError(f"{title} is a class, expected an instance or a function: {example}\n  {how}")
    if type(function).__module__.startswith("triton."):
        raise UsageError(f"{title} is a Triton kernel, expected the function that allocates its output and launches it")
    if not callable(function):
        raise UsageError(f"{title} is {function!r}, expected a function")


def _load_kernel(text: str) -> Kernel:
    """Import the function of ``[OPERATOR=]MODULE:NAME``; return its declared kernel, else one without promises."""
    operator, _, path = ("", "", text) if text.endswith(")") else text.rpartition("=")  # "=" of f(eps=1) is no operator
    function = load_extension("function", path)
    _require_function(function, f"--function {text}: {path}")
    return kernel_of(function, operator, path.replace(":", ".").rpartition(".")[2])


def kernel_of(function: Callable[..., Any], operator: str = "", name: str = "") -> Kernel:
    """Return the latest kernel that a function is declared as, for ``operator`` if given; else one without promises for
    ``operator`` or ``name`` (its name in its module) or its own name."""
    for declared in reversed(_KERNELS):
        if declared.function is function and (not operator or _canonical(operator) == _canonical(declared.operator)):
            return declared
    name = operator or name or str(getattr(function, "__name__", ""))
    return Kernel(name, function, Capability(refuses=False))


def _canonical(operator: str) -> str:
    """Return the name of an operator for one of its aliases; an unknown name unchanged."""
    with suppress(UnknownName):
        return str(load_object("optest.operators:operators").get(operator).name)
    return operator


class FunctionBackend(BackendDriver):
    """Runs the functions of ``--function`` or ``backend_config.function``, else those declared as kernels."""

    name = "function"
    kind = "cpu"
    options: tuple[str, ...] = ("function", "torch_device")
    arrays = ""  # the library of the arrays of all functions, if a subclass sets it
    margin_bytes = 1 << 16  # a Triton block without a mask overruns by up to its size

    def __init__(self) -> None:
        self._named: dict[str, str] = {}
        self._kernels: dict[str, Kernel] = {}
        # The case of the last call, and why it got torch tensors instead of arrays, "" if it did not.
        self._last: tuple[TestCase | None, str] = (None, "")
        self._torch_device = ""
        self._tensor_calls: Any = None

    def configure(self, options: Mapping[str, Any]) -> None:
        """Set ``function`` (one or several ``[OPERATOR=]MODULE:NAME``), and ``torch_device`` for torch tensors.

        Raises:
            UsageError, Unavailable: for a function that cannot be imported, or an unknown device.
        """
        if self._torch_device != (device := str(options.get("torch_device") or "")):
            self._torch_device, self._tensor_calls = device, None
            self._calls_of_torch()
        self._named = {}
        for text in options.get("function") or ():
            kernel = _load_kernel(text)
            self._named[kernel.operator] = named = f"{kernel.operator}={text.rpartition('=')[2]}"
            self._kernels[named] = kernel

    def case_options(self) -> Mapping[str, Any]:
        return {name: text.rpartition("=")[2] for name, text in self._named.items()}

    def named_operators(self) -> Mapping[str, str]:
        return self.case_options() or {name: f"{x.function.__module__}:{x.name}" for name, x in _DECLARED.items()}

    def ready_for_check(self) -> str | None:
        if self._named or _DECLARED:
            return None
        return "no function is given\n  for example: optest check --function my_kernels:softmax"

    def lacks(self, descriptor: OperatorDescriptor) -> str | None:
        known = self._named or _DECLARED
        if any(name in known for name in (descriptor.name, *descriptor.aliases)):
            return None
        return f"not among the functions, which compute {', '.join(known)}"

    def device(self) -> str | None:
        return self._torch_device or None

    def problems(self, case: TestCase) -> Sequence[str]:
        config: Any = case.backend_config.get(self.name, {})
        if not isinstance(config, Mapping) or not all(isinstance(path, str) for path in config.values()):
            return (f"backend_config.{self.name} is {config!r}, expected a map from operators to MODULE:NAME",)
        known = load_object("optest.operators:operators")
        return [
            f"backend_config.{self.name}.{name} is no operator; {did_you_mean(name, known.names(), 'see optest list')}"
            for name in config.keys() - {case.descriptor.name}
            if "." not in name and name not in known and known.spelling(name) is None
        ]

    def unsupported(self, case: TestCase) -> str | None:
        kernel = self._kernel(case)
        if kernel is None:
            return f"no function for {case.descriptor.name}"
        if self._arrays_for(kernel) == "jax" and (why := load_object("optest.jax.backend:lacks_dimension")(case)):
            return str(why)
        return kernel.lacks(case)

    def numerics_of(self, case: TestCase) -> Numerics:
        kernel = self._kernel(case)
        if kernel and not kernel.numerics and self._arrays_for(kernel) == "jax":
            return load_object("optest.jax.backend:JaxBackend")().numerics_of(case)  # type: ignore[no-any-return]
        return (kernel and kernel.numerics) or self.numerics

    def runs_into(self, case: TestCase) -> bool:
        """Return whether the function writes into outputs that it gets."""
        return bool((kernel := self._kernel(case)) and kernel.outputs(case))

    def writes_inputs(self, case: TestCase) -> Sequence[str]:
        """Return the inputs that the function leaves its outputs in."""
        return entry.inputs_written(case) if (entry := self._kernel(case)) else ()

    def in_place_decorator(self, case: TestCase, changed: Sequence[str]) -> str:
        """Return the decorator line that declares the changed inputs as outputs, "" without a function."""
        return entry.decorator(case, changed) if (entry := self._kernel(case)) else ""

    def import_late(self) -> None:
        load_object("optest.backends.arrays:to_array")
        if any("torch" in (self.arrays, x.takes) for x in (*self._kernels.values(), *_DECLARED.values())):
            load_object("optest.torch.driver:TensorCalls")  # only the import: the fork opens the device

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any] | Mapping[str, Any]:
        """Return the outputs, as arrays, that the function of the case's operator returns or leaves in its inputs."""
        if self.runs_into(case):
            return super().run(case, inputs)
        returned, in_place = self._call(case, inputs), self.writes_inputs(case)
        if in_place:
            by_name = {argument.name: array for argument, array in zip(case.inputs, inputs, strict=True)}
            return [by_name[name].copy() for name in in_place]
        to_array = load_object("optest.backends.arrays:to_array")  # imports NumPy
        outputs = {name: to_array(value) for name, value in outputs_of(returned)}
        if (kernel := self._kernel(case)) and self._arrays_for(kernel) == "jax":
            outputs = self._with_wide_indices(case, outputs)
        return outputs if isinstance(returned, Mapping) else list(outputs.values())

    def _with_wide_indices(self, case: TestCase, outputs: dict[Any, Any]) -> dict[Any, Any]:
        """Return the outputs of a JAX function with indices widened to int64: JAX returns int32 (``lax.top_k``)."""
        for index, (name, spec) in enumerate(zip(case.descriptor.tensors.outputs, case.outputs, strict=False)):
            key = name if name in outputs else index
            is_index = spec.dtype.name == "int64" and (name == "indices" or spec.dtype not in case.dtypes)
            if is_index and getattr(outputs.get(key), "dtype", None) == "int32":
                outputs[key] = outputs[key].astype("int64")
                self._last = (case, "the int32 indices of JAX are compared as int64")
        return outputs

    def run_into(self, case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Call the function, which writes into ``outputs``; errors as of :meth:`run`."""
        self._call(case, inputs, outputs)

    def checks(self, case: TestCase) -> Sequence[Check]:
        kernel, (last, why) = self._kernel(case), self._last
        note = (Check(name="arrays", state=CheckState.NOTE, detail=why),) if why and last is case else ()
        is_of_torch = kernel and self._tensor_calls and (note or self._arrays_for(kernel) == "torch")
        return (*note, *(self._tensor_calls.checks() if is_of_torch else ()))

    def _call(self, case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any] = ()) -> Any:
        """Call the function and return its output; tensors of torch and JAX become arrays.

        A function without declared arrays that fails on NumPy arrays is called again with torch tensors.
        """
        self._last = (case, "")
        kernel = self._kernel(case)
        if kernel is None:
            raise Fault(Reason.UNSUPPORTED, f"no function for {case.descriptor.name}")
        operator, arrays = case.descriptor.name, self._arrays_for(kernel)
        if arrays != "numpy":
            return self._call_with(arrays, kernel, case, inputs, outputs)
        arrays_in, may_retry = (*inputs, *outputs), not (self.arrays or kernel.arrays)
        saved = [array.copy() for array in arrays_in] if may_retry else []
        try:
            # Views: a new shape or flag that the function sets is lost.
            views = [array.view() for array in arrays_in]
            return self._call_with(arrays, kernel, case, views[: len(inputs)], views[len(inputs) :])
        except (AttributeError, TypeError) as error:
            if "ndarray" not in str(error):
                raise
            how = f'annotate the parameter (x: torch.Tensor), or declare @optest.kernel({operator!r}, arrays="torch")'
            # For this case only, so that no result depends on another case.
            if may_retry and is_installed("torch"):
                for array, values in zip(arrays_in, saved, strict=True):
                    array[...] = values
                message = f"{kernel.name} got torch tensors, since it raises {type(error).__name__}: {error}; {how}"
                self._last = (case, message)
                with suppress(AttributeError, TypeError):
                    return self._call_with("torch", kernel, case, inputs, outputs)
                self._last = (case, "")
            vars(error)["optest_hint"] = f'it got NumPy arrays; if it takes tensors, {how}, or "jax"'
            raise

    def _call_with(
        self, arrays: str, kernel: Kernel, case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Any:
        call = functools.partial(kernel.call, case, arrays)
        if arrays == "jax":
            kinds = [argument.spec.dtype for argument in case.inputs]
            is_wide = any(x.bits >= 64 << x.is_complex for x in kinds) or "64" in str(case.attributes.values())
            is_wide = is_wide or not any(x.is_inexact for x in kinds)  # sums of integers have 64 bits
            return load_object("optest.jax.backend:call_with_arrays")(call, inputs, is_wide=is_wide)
        if arrays == "numpy":
            return call(inputs, outputs)
        descriptor, calls = case.descriptor, self._calls_of_torch()
        return calls.outputs(call, inputs, descriptor.tensors.outputs, outputs, may_seed=descriptor.is_random)

    def _arrays_for(self, kernel: Kernel) -> str:
        """Return the library of the function's arrays: of the backend, else of the kernel's declaration, else torch if
        ``--torch-device`` is set, else as detected."""
        return self.arrays or kernel.arrays or ("torch" if self._torch_device else kernel.takes)

    def _calls_of_torch(self) -> Any:
        """Return the object that calls functions with torch tensors, created once; raise ``Unavailable`` without torch
        or the device."""
        if self._tensor_calls is None:
            if not is_installed("torch"):
                raise Unavailable("torch", "the function takes torch tensors; pip install torch")
            device = load_object("optest.torch.devices:open_device")(self._torch_device or "cpu")
            self._tensor_calls = load_object("optest.torch.driver:TensorCalls")(device)
        return self._tensor_calls

    def _kernel(self, case: TestCase) -> Kernel | None:
        """Return the kernel that the case's configuration names, else the declared one, else None."""
        config = case.backend_config.get(self.name, {})
        for name in (case.descriptor.name, *case.descriptor.aliases):
            if name in config:
                text = f"{name}={config[name]}"
                if text not in self._kernels:
                    self._kernels[text] = _load_kernel(text)
                return self._kernels[text]
            if not config and name in _DECLARED:
                return _DECLARED[name]
        return None


def outputs_of(returned: Any) -> list[tuple[Any, Any]]:
    """Return the outputs in the value that a function returned, each with its name or index."""
    if isinstance(returned, Mapping):
        return list(returned.items())
    return list(enumerate(returned if isinstance(returned, (tuple, list)) else (returned,)))
