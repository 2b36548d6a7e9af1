"""Python functions as a backend: one function for each operator, of arrays of NumPy, torch or JAX."""

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
from optest.backends.arguments import Schema, bound_arguments, names_of, value_taken
from optest.backends.capabilities import Capability, layout_of
from optest.errors import Unavailable, UnknownName, UsageError, did_you_mean
from optest.guests import Guest, Option
from optest.registry import is_installed, load_extension, load_object
from optest.spec import Check, CheckState, OperatorDescriptor, TestCase, dtype

ARRAYS = ("numpy", "torch", "jax")


@dataclass(frozen=True)
class Kernel:
    """A function and its promises; cases outside of them are skipped as unsupported.

    ``ignores`` are attributes that it derives from the shapes. ``arrays`` is one of ``ARRAYS``, "" if its code decides.
    ``out`` are its parameters for outputs to write into, ``in_place`` the inputs that it leaves them in.
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
        """Signature of the function, or one for each overload of a function of torch that is written in C++."""
        try:
            found = inspect.signature(self.function)
            takes_anything = all(
                each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in found.parameters.values()
            )
            return (inspect.signature(_forward_of(self.function)) if takes_anything else found,)
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
        """Call the function with the tensors and the attributes that it takes; ``arrays`` decides the type of dtypes.

        Raises:
            Fault: UNSUPPORTED for a case that it cannot run, if it raises NotImplementedError, if it refuses an
                attribute whose value has another form than the parameter's default, and for RuntimeError of a function
                of torch itself, which may take fewer dtypes than the operator.
        """
        signature, bound = self._binding(case)
        if isinstance(bound, str):
            raise Fault(Reason.UNSUPPORTED, f"{self.name} {bound}")
        values = dict(zip(self.outputs(case), outputs, strict=False))
        for name, source in bound.items():
            if isinstance(source, str):
                values[name] = _value_of(case, source, arrays, signature.parameters[name])
            elif isinstance(source, tuple):
                values[name] = {each: _value_of(case, each, arrays) for each in source}
            elif isinstance(source, list):
                values[name] = [None if index is None else inputs[index] for index in source]
            else:
                values[name] = None if source is None else inputs[source]
        call = inspect.BoundArguments(signature, values)
        attributes = {name: case.descriptor.attribute(each) for name, each in bound.items() if isinstance(each, str)}
        taken = {name: value_taken(case, each, signature.parameters[name]) for name, each in attributes.items()}
        others = [f"{name} of {value!r}" for name, (value, has_form) in taken.items() if not has_form]
        try:
            return self.function(*call.args, **call.kwargs)
        except (TypeError, ValueError, IndexError) as error:
            if not others:
                raise
            # The default says that it takes values of another form; a function that takes these as well is judged.
            raise Fault(Reason.UNSUPPORTED, f"{self.name} takes no {' and no '.join(others)}: {error}") from None
        except NotImplementedError as error:
            raise Fault(Reason.UNSUPPORTED, f"{self.name}: {str(error) or 'NotImplementedError'}") from None
        except RuntimeError as error:
            module = sys.modules.get(str(getattr(self.function, "__module__", "")))
            is_of_torch = _framework(self.function) == "torch" and getattr(module, self.name, None) is self.function
            if type(error) is not RuntimeError or not is_of_torch:  # another type says that torch lacks memory
                raise
            raise Fault(Reason.UNSUPPORTED, f"torch's {self.name} refuses it: {error}".partition("\n")[0]) from None

    def by_place(self, case: TestCase) -> list[str]:
        """Return which inputs parameters of other names get, by their places, as "ids is weight"."""
        named = self._parameters(case)
        return [f"{parameter} is {name}" for name, parameter in named.items() if parameter not in names_of(name)]

    def _parameters(self, case: TestCase) -> dict[str, str]:
        """Return the parameters of the inputs that have one each."""
        _, bound = self._binding(case)
        places = {} if isinstance(bound, str) else {name: at for name, at in bound.items() if isinstance(at, int)}
        return {case.inputs[at].name: parameter for parameter, at in places.items()}

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))

    def outputs(self, case: TestCase) -> tuple[str, ...]:
        """Return the parameters for outputs: the declared ones, else those with the names of outputs and no default, if
        enough parameters remain for the inputs."""
        described, parameters = case.descriptor, self.signatures[0].parameters
        taken = {each.name for each in described.tensors.inputs} | {each.name for each in described.attributes}
        names = self.out or tuple(
            name
            for name in described.tensors.outputs
            if name not in taken and (parameter := parameters.get(name)) and parameter.default is parameter.empty
        )
        if not names or self.out:
            return names
        optional: list[Any] = [*described.attributes, *(each for each in described.tensors.inputs if each.optional)]
        known = {name for each in optional for name in names_of(each.name, getattr(each, "aliases", ()))}
        rest = [each for name, each in parameters.items() if name not in (*names, *known)]
        is_room = len(rest) >= described.tensors.required_inputs
        return names if is_room or any(each.kind is each.VAR_POSITIONAL for each in rest) else ()

    def _binding(self, case: TestCase) -> tuple[inspect.Signature, dict[str, Any] | str]:
        """Return the first signature that takes the case, with its arguments; else the last one, with the reason."""
        bound: dict[str, Any] | str = ""
        for signature in self.signatures:
            bound = bound_arguments(case, signature.parameters, self.outputs(case), self.ignores)
            if not isinstance(bound, str):
                break
        return signature, bound

    def inputs_written(self, case: TestCase) -> Sequence[str]:
        """Return the operator's inputs that it leaves its outputs in; ``in_place`` may name parameters instead."""
        bound = self._binding(case)[1] if self.in_place else ""
        indices: Any = {} if isinstance(bound, str) else bound
        return [case.inputs[at].name if type(at := indices.get(name)) is int else name for name in self.in_place]

    def decorator(self, case: TestCase, changed: Sequence[str]) -> str:
        """Return the decorator for a function that leaves its outputs in the ``changed`` inputs or, as far as these are
        fewer, in others of the shape and dtype of an output."""
        kinds = {(each.shape, each.dtype) for each in case.outputs}
        rest = [each.name for each in case.inputs if (each.spec.shape, each.spec.dtype) in kinds]
        places = list(dict.fromkeys([*changed, *rest]))[: len(case.outputs) or len(changed)]
        names = tuple(self._parameters(case).get(name, name) for name in places)
        return f'@optest.kernel("{case.descriptor.name}", in_place={names})'.replace("'", '"')

    def cannot_write(self, case: TestCase) -> str:
        """Return why the function cannot write the outputs of the case into its parameters, "" if it can."""
        places = self.outputs(case) or self.in_place
        if places and case.outputs and len(places) != len(case.outputs):
            names = ", ".join(case.descriptor.tensors.output_names(len(case.outputs)) or ())
            how = "out=(…) names one for each" if self.out else self.decorator(case, self.inputs_written(case))
            return f"writes {len(places)}, not {len(case.outputs)} outputs ({names}): {how}"
        specs = {each.name: each.spec for each in case.inputs}
        for name, output in zip(self.inputs_written(case), case.outputs, strict=False):
            spec = specs.get(name)
            if (
                spec is None
                or (spec.shape, spec.dtype) != (output.shape, output.dtype)
                or layout_of(spec) == "overlapping"
            ):
                return f"leaves its result in {name}, which is no tensor of {output}"
        return ""


def _forward_of(function: Any) -> Any:
    """Return the ``forward`` that a module or an autograd function of torch calls, also behind decorators and partials;
    another callable unchanged."""
    function = inspect.unwrap(function)
    if isinstance(function, functools.partial):
        return functools.partial(_forward_of(function.func), *function.args, **function.keywords)
    owner = getattr(function, "_orig_mod", getattr(function, "__self__", function))  # of a compiled module, a method
    forward = getattr(owner, "forward", function)
    return functools.partial(forward, None) if isinstance(owner, type) and forward is not function else forward


def _value_of(case: TestCase, attribute: str, arrays: str, parameter: inspect.Parameter | None = None) -> Any:
    """Return an attribute's value; the name of a dtype becomes a dtype of torch or, for other arrays, of NumPy, and a
    whole number an int if the schema of ``parameter`` takes any: torch refuses 1.0 next to tensors of integers.

    Raises:
        Fault: UNSUPPORTED for a dtype that torch does not have.
    """
    described = case.descriptor.attribute(attribute)
    value = value_taken(case, described, parameter)[0] if parameter else case.attributes[attribute]
    if value is None and described.implied:
        return described.implied(case.inputs[0].spec)
    kind = parameter.annotation if parameter else ""
    if isinstance(value, float) and value.is_integer() and isinstance(kind, Schema) and "number" in kind:
        return int(value)
    if not isinstance(value, str) or "dtype" not in described.type:
        return value
    if arrays != "torch":
        return load_object("optest.numerics:numpy_dtype")(dtype(value))
    try:
        return load_object("optest.torch.tensors:torch_dtype")(dtype(value))
    except ValueError as error:
        raise Fault(Reason.UNSUPPORTED, str(error)) from None


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
    promotes: bool = True,
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
    Without ``arrays`` (``numpy``, ``torch`` or ``jax``) its annotations, its code and the imports of its module decide.
    ``numerics`` describes arithmetic that is not the usual one of the dtype: ``Numerics(operands="tf32")``.

    ``out`` names parameters for tensors that it writes the outputs into, in the operator's order; one that is called
    like an output of the operator needs no mention. ``in_place`` names inputs of the operator, or the
    parameters that take them, that it leaves its outputs in. What it returns does not count, then. A second decorator
    for the same operator adds to the first.

    Raises:
        UsageError: for a dtype or a layout that does not exist, another word in ``arrays``, or a parameter that
            is among ``ignores``.
    """
    if arrays and arrays not in ARRAYS:
        raise UsageError(f"kernel for {operator}: arrays is {arrays!r}, expected one of {', '.join(ARRAYS)}")

    tensors: dict[str, Any] = {"dtypes": tuple(dtypes), "ranks": tuple(ranks), "layouts": tuple(layouts)}
    stated = Capability(**tensors, broadcasts=broadcasts, promotes=promotes, refuses=refuses)

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        _require_function(function, f"kernel for {operator}")
        before = kernel_of(function, operator)
        promised = Capability(
            dtypes=stated.dtypes or before.promised.dtypes,
            ranks=stated.ranks or before.promised.ranks,
            layouts=stated.layouts or before.promised.layouts,
            broadcasts=broadcasts and before.promised.broadcasts,
            promotes=promotes and before.promised.promotes,
            refuses=refuses or before.promised.refuses,
        )
        declared = Kernel(
            operator,
            function,
            promised,
            (*ignores, *before.ignores),
            arrays or before.arrays,
            numerics=numerics or before.numerics,
            out=tuple(out) or before.out,
            in_place=tuple(in_place) or before.in_place,
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
_OF_TYPES = {"Tensor": "torch", "ndarray": "numpy", "NDArray": "numpy"}
"""Libraries by the name of a type of array, for a type that is imported for type checkers only."""
_MOST_REACHED = 2000
"""Objects that are followed from one function, so that a large program takes no long time."""


def arrays_of(function: Callable[..., Any]) -> str:
    """Return the library of the arrays that a function takes: ``torch``, ``jax`` or ``numpy``.

    An annotated parameter decides; then whether its code, with helper functions, closures and defaults, uses torch, JAX
    or NumPy; then the imports of its module."""
    annotations = getattr(function, "__annotations__", None) or getattr(type(function).__call__, "__annotations__", {})
    module = getattr(function, "__globals__", None) or vars(sys.modules.get(str(function.__module__)) or object)
    hints = [hint for name, hint in annotations.items() if name != "return"]
    annotated = {library for hint in hints for library in _frameworks_in(hint, module)}
    imported: set[str] = set()
    used = set(_frameworks_used(function, imported))
    order = ("torch", "jax", "numpy")
    return next((name for libraries in (annotated, used, imported) for name in order if name in libraries), "numpy")


def _framework(value: Any) -> str:
    """Return the array library that a module, function, class or instance belongs to, "" for none."""
    named = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return _FRAMEWORKS.get(str(named or type(value).__module__).partition(".")[0], "")


def _frameworks_in(annotation: Any, module: Mapping[str, Any]) -> Iterator[str]:
    """Yield the array libraries that an annotation, an object or its text, names."""
    of_types = _OF_TYPES if isinstance(annotation, str) else {}
    text = f"{annotation.__module__}.{annotation.__qualname__}" if isinstance(annotation, type) else str(annotation)
    for name in re.findall(r"[A-Za-z_][\w.]*", text):
        first, last = name.partition(".")[0], name.rpartition(".")[2]
        library = _framework(module[first]) if first in module else _FRAMEWORKS.get(first, of_types.get(last, ""))
        yield library if library != "numpy" or last in _OF_TYPES else ""  # np.dtype and np.float32 are no arrays


def _frameworks_used(function: Any, imported: set[str]) -> Iterator[str]:
    """Yield the array libraries of all objects that the code of a callable reaches; add those of its module's imports
    to ``imported``. Functions of installed packages are not followed: SciPy's would lead to torch."""
    home = getattr(function, "__module__", None)
    waiting, seen = [function], set[int]()
    while waiting and len(seen) < _MOST_REACHED:
        value = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if library := _framework(value):
            yield library
        elif isinstance(value, FunctionType):
            if value.__module__ != home and "-packages" in value.__code__.co_filename:
                continue
            known = value.__globals__
            if not imported or value.__module__ == home:
                imported.update(map(_framework, known.values()))
            codes = [value.__code__]
            for code in codes:  # the list grows by the code of inner functions
                codes += [each for each in code.co_consts if isinstance(each, CodeType)]
            names = {name for code in codes for name in code.co_names}
            steps = [(each.opname, each.argval) for code in codes for each in dis.get_instructions(code)]
            yield from (_FRAMEWORKS.get(name.partition(".")[0], "") for step, name in steps if step == "IMPORT_NAME")
            reached = [known.get(name) for step, name in steps if step.endswith("_GLOBAL")]
            helpers = [vars(each) for each in reached if isinstance(each, ModuleType) and not _framework(each)]
            waiting += [*reached, *(helper[name] for helper in helpers for name in names & helper.keys())]
            waiting += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
            waiting += [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
            waiting.append(getattr(value, "__wrapped__", None))
            for hint in value.__annotations__.values():
                yield from _frameworks_in(hint, known)
        elif isinstance(value, (functools.partial, MethodType)):
            parts = ("func", "args", "keywords", "__func__", "__self__")
            waiting += [getattr(value, name, None) for name in parts]
        elif isinstance(value, (tuple, list, dict)):
            waiting += value.values() if isinstance(value, dict) else value
        elif isinstance(value, type):
            waiting += value.__mro__
        elif callable(value):
            waiting += [getattr(type(value), name, None) for name in ("__call__", "forward")]
            waiting += [type(value), getattr(value, "__wrapped__", None), getattr(value, "__dict__", None)]


def _require_function(function: Any, what: str) -> None:
    if isinstance(function, type):
        name, is_autograd = function.__name__, any(each.__name__ == "FunctionCtx" for each in function.__mro__)
        example = f"{name}.apply" if is_autograd else f"{name}(...)"
        how = (
            f"assign it in the file, for example instance = {example}, and use that; to compare its own weights, add\n"
        )
        how += "  a function with the same result: --reference MODULE:NAME --shape x=4x64 --dtype float32"
        raise UsageError(f"{what} is a class, expected an instance or a function: {example}\n  {how}")
    if type(function).__module__.startswith("triton."):
        raise UsageError(f"{what} is a Triton kernel, expected the function that allocates its output and launches it")
    if not callable(function):
        raise UsageError(f"{what} is {function!r}, expected a function")


def _stated(text: str) -> Kernel:
    """What ``[OPERATOR=]MODULE:NAME`` names: a declared kernel keeps what it promises.

    Raises:
        UsageError, Unavailable: if there is no such function.
    """
    operator, _, path = ("", "", text) if text.endswith(")") else text.rpartition("=")  # of f(eps=1), a call
    function = load_extension("function", path)
    _require_function(function, f"--function {text}: {path}")
    return kernel_of(function, operator, path.replace(":", ".").rpartition(".")[2])


def kernel_of(function: Callable[..., Any], operator: str = "", name: str = "") -> Kernel:
    """The kernel that a function is declared as, by any name of the operator, else one without promises for
    ``operator``, or that of its name: ``name``, which it may have in its module alone."""
    for declared in reversed(_KERNELS):
        if declared.function is function and (not operator or _canonical(operator) == _canonical(declared.operator)):
            return declared
    name = operator or name or str(getattr(function, "__name__", ""))
    return Kernel(name, function, Capability(refuses=False))


def _canonical(operator: str) -> str:
    """Return the operator's own name for one of its names, others as they are."""
    with suppress(UnknownName):
        return str(load_object("optest.operators:operators").get(operator).name)
    return operator


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
        self._last: tuple[TestCase | None, str] = (None, "")
        """The case of the last call, and why it got tensors of torch instead of arrays, "" if it did not."""
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

    def named_operators(self) -> Mapping[str, str]:
        return self.case_options() or {
            name: f"{each.function.__module__}:{each.name}" for name, each in _DECLARED.items()
        }

    def ready_for_check(self) -> str | None:
        if self._named or _DECLARED:
            return None
        return "no function is named\n  for example: optest check --function my_kernels:softmax"

    def lacks(self, descriptor: OperatorDescriptor) -> str | None:
        known = self._named or _DECLARED
        if any(name in known for name in (descriptor.name, *descriptor.aliases)):
            return None
        return f"not among the functions, which compute {', '.join(known)}"

    def device(self) -> str | None:
        return self._torch_device or None

    def problems(self, case: TestCase) -> Sequence[str]:
        stated: Any = case.backend_config.get(self.name, {})
        if not isinstance(stated, Mapping) or not all(isinstance(each, str) for each in stated.values()):
            return (f"backend_config.{self.name} is {stated!r}, but should map operators to functions (MODULE:NAME)",)
        known = load_object("optest.operators:operators")
        return [
            f"backend_config.{self.name}.{each} is no operator; {did_you_mean(each, known.names(), 'see optest list')}"
            for each in stated.keys() - {case.descriptor.name}
            if "." not in each and each not in known and known.spelling(each) is None
        ]

    def unsupported(self, case: TestCase) -> str | None:
        found = self._kernel(case)
        if found is None:
            return f"no function for {case.descriptor.name}"
        if self._arrays_for(found) == "jax" and (why := load_object("optest.jax.backend:lacks_dimension")(case)):
            return str(why)
        return found.lacks(case)

    def numerics_of(self, case: TestCase) -> Numerics:
        found = self._kernel(case)
        if found and not found.numerics and self._arrays_for(found) == "jax":
            return load_object("optest.jax.backend:JaxBackend")().numerics_of(case)  # type: ignore[no-any-return]
        return (found and found.numerics) or self.numerics

    def runs_into(self, case: TestCase) -> bool:
        """Whether the function writes into outputs that it gets."""
        return bool((found := self._kernel(case)) and found.outputs(case))

    def writes_inputs(self, case: TestCase) -> Sequence[str]:
        """The inputs that the function leaves its outputs in."""
        return found.inputs_written(case) if (found := self._kernel(case)) else ()

    def in_place_decorator(self, case: TestCase, changed: Sequence[str]) -> str:
        """Return the line that declares changed inputs as places of the outputs, "" if there is none."""
        return found.decorator(case, changed) if (found := self._kernel(case)) else ""

    def import_late(self) -> None:
        load_object("optest.backends.arrays:to_array")
        if any("torch" in (self.arrays, each.takes) for each in (*self._kernels.values(), *_DECLARED.values())):
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
        if (found := self._kernel(case)) and self._arrays_for(found) == "jax":
            outputs = self._with_wide_indices(case, outputs)
        return outputs if isinstance(returned, Mapping) else list(outputs.values())

    def _with_wide_indices(self, case: TestCase, outputs: dict[Any, Any]) -> dict[Any, Any]:
        """Return the outputs of a function of JAX with indices in int64: JAX makes them in int32, as ``lax.top_k``."""
        for place, (name, spec) in enumerate(zip(case.descriptor.tensors.outputs, case.outputs, strict=False)):
            key = name if name in outputs else place
            is_index = spec.dtype.name == "int64" and (name == "indices" or spec.dtype not in case.dtypes)
            if is_index and getattr(outputs.get(key), "dtype", None) == "int32":
                outputs[key] = outputs[key].astype("int64")
                self._last = (case, "indices in int32, as JAX makes them, are compared in int64")
        return outputs

    def run_into(self, case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Have the function write into ``outputs``; as :meth:`run`."""
        self._called(case, inputs, outputs)

    def checks(self, case: TestCase) -> Sequence[Check]:
        found, (last, why) = self._kernel(case), self._last
        note = (Check(name="arrays", state=CheckState.NOTE, detail=why),) if why and last is case else ()
        is_of_torch = found and self._tensor_calls and (note or self._arrays_for(found) == "torch")
        return (*note, *(self._tensor_calls.checks() if is_of_torch else ()))

    def _called(self, case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any] = ()) -> Any:
        """Call the function and return its output, with tensors of torch and JAX as arrays.

        A function that does not declare its arrays and fails on those of NumPy is called again with tensors of torch,
        case by case, so that no outcome depends on another case.
        """
        self._last = (case, "")
        found = self._kernel(case)
        if found is None:
            raise Fault(Reason.UNSUPPORTED, f"no function for {case.descriptor.name}")
        operator, arrays = case.descriptor.name, self._arrays_for(found)
        if arrays != "numpy":
            return self._call_with(arrays, found, case, inputs, outputs)
        given, may_retry = (*inputs, *outputs), not (self.arrays or found.arrays)
        before = [each.copy() for each in given] if may_retry else []
        try:  # it gets views, so that no new shape or flag of them stays
            views = [each.view() for each in given]
            return self._call_with(arrays, found, case, views[: len(inputs)], views[len(inputs) :])
        except (AttributeError, TypeError) as error:
            if "ndarray" not in str(error):
                raise
            how = f'annotate the parameter (x: torch.Tensor), or declare @optest.kernel({operator!r}, arrays="torch")'
            if may_retry and is_installed("torch"):
                for array, values in zip(given, before, strict=True):
                    array[...] = values
                raised = f"raises {type(error).__name__}: {error}"
                self._last = (case, f"{found.name} gets torch tensors where it {raised}; {how}")
                with suppress(AttributeError, TypeError):
                    return self._call_with("torch", found, case, inputs, outputs)
                self._last = (case, "")
            vars(error)["optest_hint"] = f'it got NumPy arrays; if it takes tensors, {how}, or "jax"'
            raise

    def _call_with(
        self, arrays: str, kernel: Kernel, case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Any:
        call = functools.partial(kernel.call, case, arrays)
        if arrays == "jax":
            kinds = [each.spec.dtype for each in case.inputs]
            is_wide = any(each.bits >= 64 << each.is_complex for each in kinds) or "64" in str(case.attributes.values())
            is_wide = is_wide or not any(each.is_inexact for each in kinds)  # sums of integers have 64 bits
            return load_object("optest.jax.backend:called_with_arrays")(call, inputs, is_wide=is_wide)
        if arrays == "numpy":
            return call(inputs, outputs)
        described = case.descriptor
        calls = self._calls_of_torch()
        return calls.outputs(call, inputs, described.tensors.outputs, outputs, may_seed=described.is_random)

    def _arrays_for(self, kernel: Kernel) -> str:
        """Return the library of the function's arrays: that of the backend or the kernel, of ``--torch-device``, or of
        its source, in this order."""
        return self.arrays or kernel.arrays or ("torch" if self._torch_device else kernel.takes)

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
            help="Function under test, of a module or a file.py, for the operator of its name or for OP. Repeatable.",
        ),
    ),
    backend="function",
)
