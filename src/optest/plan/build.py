"""Cases from a plan and the command line: every value gets its layer, and every fault is found before anything runs.

The command line wins over the case, the case over the plan's defaults, those over the operator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from optest.errors import PlanError, Problem, UnknownName, UsageError
from optest.plan.forms import GeneratorChoice, Layout, is_dotted, read_generator, shown
from optest.plan.request import CaseRequest
from optest.plan.source import Path, collection_paused, format_path
from optest.registry import load_object
from optest.spec import (
    Argument,
    BackendTarget,
    DType,
    Fill,
    Layer,
    OperatorDescriptor,
    TensorSpec,
    TestCase,
    ToleranceLayer,
    UnfitArguments,
    dtype,
    format_shape,
)

if TYPE_CHECKING:
    from optest.plan.schema import PlanDocument

__all__ = ["Operators", "build_cases"]

COMMAND_LINE = "command line"
DEFAULT_FILL = "randn"
_RUNS_CODE = ("command", "build", "prepare", "cleanup", "pre_run", "post_run", "env")
"""Keys of a backend's options that start programs or change what they start."""

Place: TypeAlias = "Path | str"
"""Where a value was written: a path in the plan, or a flag."""
Entry: TypeAlias = Mapping[str, Any]


class Operators(Protocol):
    """What is needed of the operator registry."""

    def get(self, name: str) -> OperatorDescriptor: ...

    def names(self) -> tuple[str, ...]: ...


def build_cases(
    document: PlanDocument | None,
    request: CaseRequest,
    *,
    operators: Operators,
    target_of: Callable[[str, str | None], BackendTarget],
    check_fill: Callable[[Fill], object],
    check_backend: Callable[[TestCase], Sequence[str]],
    backend_names: Collection[str] | None = None,
) -> list[TestCase]:
    """Return the cases of a plan under the command line's overrides, or one case for each ``--op``.

    Args:
        target_of: backend by name or kind, and chip, to a target; raises ``UnknownName``.
        check_fill: raises ``UsageError`` or ``UnknownName`` for a fill that does not exist or has wrong parameters.
        check_backend: what is wrong with a case's ``backend_config``.
        backend_names: the keys that ``backend_config`` may have; None does not check them.

    Raises:
        PlanError: with every fault of every case.
        UsageError: if neither a plan nor an operator is named.
        Unavailable: from ``target_of``.
    """
    if document is None and not request.ops:
        raise UsageError("nothing to run: name a plan with --plan FILE or an operator with --op NAME")
    builder = _Builder(
        document=document,
        request=request,
        operators=operators,
        check_fill=check_fill,
        check_backend=check_backend,
        backend_names=backend_names,
    )
    with collection_paused():
        return builder.build(target_of)


@dataclass(slots=True)
class _Operator:
    """What building needs to know of one operator again and again."""

    descriptor: OperatorDescriptor
    infer: Callable[..., Sequence[TensorSpec]] | None
    attribute_names: dict[str, str]
    generator: GeneratorChoice
    tensors: dict[str, tuple[str, int]] = field(default_factory=dict)
    admitted: dict[tuple[str, ...], bool] = field(default_factory=dict)

    @classmethod
    def of(cls, descriptor: OperatorDescriptor) -> _Operator:
        infer = load_object(descriptor.infer) if isinstance(descriptor.infer, str) else descriptor.infer
        names = {alias: each.name for each in descriptor.attributes for alias in (each.name, *each.aliases)}
        return cls(descriptor, infer, names, read_generator(descriptor.generator or DEFAULT_FILL))

    @property
    def spreads_shape(self) -> bool:
        """Whether inputs that are not named take the shape of the first."""
        return self.descriptor.category in ("elementwise", "activation")

    def locate(self, name: str) -> tuple[str, int]:
        found = self.tensors.get(name)
        if found is None:
            found = self.tensors[name] = self.descriptor.tensors.locate(name)
        return found

    def admits(self, names: tuple[str, ...]) -> bool:
        found = self.admitted.get(names)
        if found is None:
            found = self.admitted[names] = self.descriptor.admits(names)
        return found

    def is_required(self, index: int) -> bool:
        parameters = self.descriptor.tensors.inputs
        return index < len(parameters) and not parameters[index].optional and not parameters[index].variadic

    def default_dtypes(self, present: Sequence[int], stated: Mapping[int, DType]) -> tuple[DType, ...]:
        """The first variant that goes with the dtypes that are stated; without variants, the first stated one."""
        for variant in self.descriptor.dtype_variants:
            if len(variant) > 1 and len(variant) <= max(present, default=-1):
                continue
            row = [variant[index if len(variant) > 1 else 0] for index in present]
            wanted = (stated.get(index) for index in present)
            if all(entry is None or entry.name == name for entry, name in zip(wanted, row, strict=True)):
                return tuple(dtype(name) for name in row)
        fallback = next(iter(stated.values()), dtype("float32"))
        return tuple(stated.get(index, fallback) for index in present)


@dataclass(slots=True, kw_only=True)
class _Builder:
    document: PlanDocument | None
    request: CaseRequest
    operators: Operators
    check_fill: Callable[[Fill], object]
    check_backend: Callable[[TestCase], Sequence[str]]
    backend_names: Collection[str] | None
    target: BackendTarget = field(init=False)
    defaults: Entry = field(init=False)
    base_dir: str = field(init=False)
    problems: list[Problem] = field(default_factory=list)
    known: dict[str, _Operator | None] = field(default_factory=dict)
    good_fills: set[str] = field(default_factory=set)
    used_default_attributes: set[str] = field(default_factory=set)
    option_attributes: dict[str, Any] = field(default_factory=dict)
    option_config: dict[str, dict[str, Any]] = field(default_factory=dict)
    plan_tolerance: ToleranceLayer | None = None
    flag_tolerance: ToleranceLayer | None = None
    shared_origins: dict[str, str] = field(default_factory=dict)
    flag_origins: dict[str, str] = field(default_factory=dict)

    def build(self, target_of: Callable[[str, str | None], BackendTarget]) -> list[TestCase]:
        document = self.document
        self.defaults = document.defaults if document is not None else {}
        self.base_dir = document.folder() if document is not None else ""
        self._split_attributes()
        self._note_tolerances()
        self.shared_origins, self.flag_origins = self._shared_origins(), self._flag_origins()
        self._choose_target(target_of)
        self._refuse_untrusted_code()
        self._check_default_backends()
        cases = [self._case(entry, path) for entry, path in self._entries()]
        self._check_default_attributes()
        self._check_names()
        if self.problems:
            raise PlanError(sorted(self.problems, key=lambda problem: problem.line))
        return _with_unique_ids([case for case in cases if case is not None])

    # What is built

    def _entries(self) -> Iterator[tuple[Entry, Path]]:
        """The plan's cases of the wanted operators, then one entry for each operator that the plan has not."""
        wanted = {name: self._operator(name, "--op") for name in self.request.ops}
        names = {operator.descriptor.name for operator in wanted.values() if operator is not None}
        found: set[str] = set()
        for index, entry in enumerate(self.document.cases if self.document is not None else ()):
            path: Path = ("cases", index)
            if not wanted:
                yield entry, path
                continue
            operator = self._operator(entry["op"], (*path, "op"))
            if operator is not None and operator.descriptor.name in names:
                found.add(operator.descriptor.name)
                yield entry, path
        for name, operator in wanted.items():
            if operator is not None and operator.descriptor.name not in found:
                found.add(operator.descriptor.name)
                yield {"op": name}, ()

    def _case(self, entry: Entry, path: Path) -> TestCase | None:
        operator = self._operator(entry["op"], (*path, "op"))
        if operator is None:
            return None
        before = len(self.problems)
        expects_error = entry.get("expects_error")
        attributes = self._attributes(operator, entry, path)
        layouts = self._layouts(operator, entry, path)
        inputs = self._inputs(operator, entry, path, layouts)
        if attributes is None or inputs is None or len(self.problems) > before:
            return None
        outputs = self._outputs(operator, entry, path, layouts, inputs, attributes, lenient=expects_error is not None)
        generator, arguments = self._arguments(operator, entry, path, inputs, outputs, attributes)
        reference = self._reference(entry, path)
        if len(self.problems) > before:
            return None
        tags = (*entry.get("tags", ()), *self.defaults.get("tags", ()), *operator.descriptor.tags)
        request = self.request
        timeout_s = request.timeout_s
        if timeout_s is None:
            timeout_s = entry.get("timeout", self.defaults.get("timeout"))
        case = TestCase(
            descriptor=operator.descriptor,
            inputs=arguments,
            outputs=outputs,
            attributes=attributes,
            backend=self.target,
            backend_config=self._backend_config(entry, path),
            name=entry.get("name", ""),
            seed=self._seed(entry),
            generator=generator,
            reference=reference,
            tolerances=self._tolerances(entry, path),
            timeout_s=timeout_s,
            retries=self._retries(entry),
            skip=entry.get("skip"),
            xfail=entry.get("xfail"),
            expects_error=expects_error,
            tags=tuple(dict.fromkeys(tags)),
            description=entry.get("description", ""),
            where=self._where(path),
            base_dir=self.base_dir,
            origins=self._origins(entry, path),
        )
        for message in self.check_backend(case):
            self._problem((*path, "backend_config", self.target.name) if path else "--attr", message)
        return case

    # Operator and attributes

    def _operator(self, name: str, place: Place) -> _Operator | None:
        if name not in self.known:
            try:
                self.known[name] = _Operator.of(self.operators.get(name))
            except UnknownName:
                self.known[name] = None
        operator = self.known[name]
        if operator is None:
            self._unknown(place if place != ("op",) else "--op", UnknownName("operator", name, self.operators.names()))
        return operator

    def _attributes(self, operator: _Operator, entry: Entry, path: Path) -> dict[str, Any] | None:
        descriptor = operator.descriptor
        own = entry.get("attributes", {})
        layers: list[tuple[Place, Mapping[str, Any]]] = [((*path, "attributes"), own)]
        if "attributes" in self.defaults:
            layers.insert(0, (("defaults", "attributes"), self._applicable_defaults(operator)))
        if self.option_attributes:
            layers.append(("--attr", self.option_attributes))
        stated: dict[str, Any] = own
        if len(layers) > 1:
            names = operator.attribute_names
            stated = {names.get(key, key): value for _, layer in layers for key, value in layer.items()}
        try:
            bound = descriptor.bind(stated)
        except (UnfitArguments, UsageError) as error:
            self._attribute_problems(operator, layers, path, str(error))
            return None
        if len(layers) > 1 and not self._stated_once(operator, layers):
            return None
        return bound

    def _applicable_defaults(self, operator: _Operator) -> dict[str, Any]:
        """Default attributes reach the operators that have them, so that one plan can hold several operators."""
        stated: Mapping[str, Any] = self.defaults["attributes"]
        is_open = operator.descriptor.open_attributes
        found = {key: value for key, value in stated.items() if is_open or key in operator.attribute_names}
        self.used_default_attributes.update(found)
        return found

    def _stated_once(self, operator: _Operator, layers: list[tuple[Place, Mapping[str, Any]]]) -> bool:
        good = True
        for place, layer in layers:
            seen: set[str] = set()
            for key in layer:
                name = operator.attribute_names.get(key, key)
                if name in seen:
                    self._problem(_below(place, key), f"attribute {name} is stated twice, also as {key}")
                    good = False
                seen.add(name)
        return good

    def _attribute_problems(
        self, operator: _Operator, layers: list[tuple[Place, Mapping[str, Any]]], path: Path, message: str
    ) -> None:
        """Say which attribute it is: ``bind`` stops at the first fault and does not know where it was written."""
        before = len(self.problems)
        for place, layer in layers:
            for key, value in layer.items():
                if operator.descriptor.open_attributes and key not in operator.attribute_names:
                    continue
                try:
                    operator.descriptor.attribute(key).read(value)
                except UnknownName as error:
                    self._unknown(_below(place, key), error)
                except UnfitArguments as error:
                    self._problem(_below(place, key), str(error))
        if len(self.problems) == before:
            self._problem((*path, "attributes") if path else "--attr", message)

    def _check_default_attributes(self) -> None:
        for key in self.defaults.get("attributes", {}):
            if key not in self.used_default_attributes:
                known = {name for each in self.known.values() if each is not None for name in each.attribute_names}
                self._unknown(
                    ("defaults", "attributes", key), UnknownName("attribute of any operator here", key, known)
                )

    # Tensors

    def _layouts(self, operator: _Operator, entry: Entry, path: Path) -> dict[tuple[str, int], Layout]:
        """Layouts by side and index; the command line's shapes replace the plan's of the same tensor."""
        found: dict[tuple[str, int], Layout] = {}
        for name, layout in entry.get("shapes", {}).items():
            tensor = self._tensor(operator, name, (*path, "shapes", name))
            if tensor in found:
                self._problem((*path, "shapes", name), f"the shape of {_positional(tensor)} is stated twice")
            elif tensor is not None:
                found[tensor] = layout
        for name, shape in self.request.shapes.items():
            tensor = self._tensor(operator, name, "--shape")
            if tensor is not None:
                found[tensor] = Layout(shape)
        first = found.get(("input", 0))
        if first is not None and operator.spreads_shape:
            for index in range(1, operator.descriptor.tensors.required_inputs):
                found.setdefault(("input", index), Layout(first.shape))
        return found

    def _tensor(self, operator: _Operator, name: str, place: Place) -> tuple[str, int] | None:
        try:
            return operator.locate(name)
        except UnknownName as error:
            self._unknown(place, error)
            return None

    def _inputs(
        self, operator: _Operator, entry: Entry, path: Path, layouts: Mapping[tuple[str, int], Layout]
    ) -> list[tuple[int, TensorSpec]] | None:
        present = sorted(index for side, index in layouts if side == "input")
        if not self._are_complete(operator, path, present):
            return None
        dtypes = self._dtypes(operator, entry, path, present)
        if dtypes is None:
            return None
        specs = []
        for index, entry_dtype in zip(present, dtypes, strict=True):
            layout = layouts["input", index]
            try:
                spec = TensorSpec(dtype=entry_dtype, shape=layout.shape, strides=layout.strides, offset=layout.offset)
            except ValueError as error:
                self._problem(self._tensor_place(operator, entry, path, ("input", index)), str(error))
                continue
            specs.append((index, spec))
        return specs

    def _are_complete(self, operator: _Operator, path: Path, present: list[int]) -> bool:
        signature = operator.descriptor.tensors
        missing = [
            index
            for index in range(max(signature.required_inputs, len(signature.inputs), *(at + 1 for at in present), 0))
            if index not in present and (operator.is_required(index) or _is_gap(operator, index, present))
        ]
        if not missing:
            return True
        listed = ", ".join(f"input{index} ({signature.input_name(index)})" for index in missing)
        every = sorted({*present, *missing})
        if path:
            hint = "shapes: {" + ", ".join(f"input{index}: [2, 3]" for index in every) + "}"
        else:
            hint = "for example " + " ".join(f"--shape input{index}=2x3" for index in every)
        self._problem((*path, "shapes") if path else "--shape", f"{operator.descriptor.name} needs {listed}", hint)
        return False

    def _dtypes(self, operator: _Operator, entry: Entry, path: Path, present: list[int]) -> tuple[DType, ...] | None:
        stated, place = self._stated(entry, path, "dtypes", self.request.dtypes or None, "--dtype")
        if stated is None:
            found = operator.default_dtypes(present, {})
        elif isinstance(stated, dict):
            by_index = self._dtypes_by_name(operator, stated, place)
            found = operator.default_dtypes(present, by_index)
        elif len(stated) == 1:
            found = stated * len(present)
        elif len(stated) == len(present):
            found = stated
        else:
            inputs = ", ".join(f"input{index}" for index in present)
            message = f"dtypes has {len(stated)} entries, but should have 1 or {len(present)} ({inputs})"
            self._problem(place, message)
            return None
        names = tuple(each.name for each in found)
        if not operator.admits(names) and "expects_error" not in entry:
            listed = "; ".join(", ".join(variant) for variant in operator.descriptor.dtype_variants)
            message = f"{operator.descriptor.name} is not defined for ({', '.join(names)})"
            self._problem(place, message, f"defined for: {listed}")
            return None
        return found

    def _dtypes_by_name(self, operator: _Operator, stated: Mapping[str, DType], place: Place) -> dict[int, DType]:
        found: dict[int, DType] = {}
        for name, each in stated.items():
            tensor = self._tensor(operator, name, _below(place, name))
            if tensor is None or tensor[0] == "output":
                continue
            if tensor[1] in found:
                self._problem(_below(place, name), f"the dtype of {_positional(tensor)} is stated twice")
            found[tensor[1]] = each
        return found

    def _outputs(
        self,
        operator: _Operator,
        entry: Entry,
        path: Path,
        layouts: Mapping[tuple[str, int], Layout],
        inputs: list[tuple[int, TensorSpec]],
        attributes: Mapping[str, Any],
        *,
        lenient: bool,
    ) -> tuple[TensorSpec, ...]:
        """What the operator's inference says; what the plan declares has to agree with it, or takes its place."""
        if operator.infer is None:
            return self._declared_outputs(operator, entry, path, layouts, inputs)
        by_index = dict(inputs)
        count = max(len(operator.descriptor.tensors.inputs), *(index + 1 for index in by_index), 0)
        if operator.descriptor.tensors.is_variadic:
            count = max(by_index, default=-1) + 1
        place: Place = (*path, "shapes") if path else "--shape"
        try:
            inferred = tuple(operator.infer([by_index.get(index) for index in range(count)], attributes))
        except UnfitArguments as error:
            if not lenient:
                self._problem(place, str(error))
            return ()
        except (ValueError, TypeError, LookupError, ArithmeticError) as error:
            if not lenient:
                name = operator.descriptor.name
                self._problem(place, f"the shapes do not fit {name}: inference raised {type(error).__name__}: {error}")
            return ()
        self._compare_outputs(operator, entry, path, layouts, inferred)
        return inferred

    def _compare_outputs(
        self,
        operator: _Operator,
        entry: Entry,
        path: Path,
        layouts: Mapping[tuple[str, int], Layout],
        inferred: tuple[TensorSpec, ...],
    ) -> None:
        for (side, index), layout in layouts.items():
            if side == "output" and index < len(inferred) and layout.shape != inferred[index].shape:
                got, want = format_shape(layout.shape), format_shape(inferred[index].shape)
                place = self._tensor_place(operator, entry, path, (side, index))
                self._problem(
                    place, f"the shape of output{index} is {got}, but {operator.descriptor.name} makes {want}"
                )
        for index, (declared, place) in self._declared_dtypes(operator, entry, path).items():
            if index < len(inferred) and declared != inferred[index].dtype:
                message = f"the dtype of output{index} is {declared}, but {operator.descriptor.name} makes"
                self._problem(place, f"{message} {inferred[index].dtype}")

    def _declared_outputs(
        self,
        operator: _Operator,
        entry: Entry,
        path: Path,
        layouts: Mapping[tuple[str, int], Layout],
        inputs: list[tuple[int, TensorSpec]],
    ) -> tuple[TensorSpec, ...]:
        """The outputs of an operator without inference: all of them are declared, or none."""
        declared = {index: layout for (side, index), layout in layouts.items() if side == "output"}
        names = operator.descriptor.tensors.outputs
        dtypes = self._declared_dtypes(operator, entry, path)
        if not declared and not dtypes:
            return ()
        input_dtypes = {spec.dtype for _, spec in inputs}
        specs = []
        for index in range(len(names)):
            layout = declared.get(index)
            if layout is None:
                self._problem(
                    (*path, "shapes"), f"the shape of output{index} is missing, but other outputs state theirs"
                )
                continue
            stated = dtypes.get(index)
            if stated is None and len(input_dtypes) != 1:
                hint = f"dtypes: {{output{index}: float32, ...}}"
                self._problem((*path, "dtypes"), f"the dtype of output{index} is missing and does not follow", hint)
                continue
            specs.append(
                TensorSpec(dtype=stated[0] if stated is not None else next(iter(input_dtypes)), shape=layout.shape)
            )
        return tuple(specs)

    def _declared_dtypes(self, operator: _Operator, entry: Entry, path: Path) -> dict[int, tuple[DType, Place]]:
        stated, place = self._stated(entry, path, "dtypes", None, "--dtype")
        if not isinstance(stated, dict):
            return {}
        found: dict[int, tuple[DType, Place]] = {}
        for name, each in stated.items():
            side, index = operator.locate(name)
            if side == "output":
                found[index] = each, _below(place, name)
        return found

    # Values of the inputs

    def _arguments(
        self,
        operator: _Operator,
        entry: Entry,
        path: Path,
        inputs: list[tuple[int, TensorSpec]],
        outputs: tuple[TensorSpec, ...],
        attributes: Mapping[str, Any],
    ) -> tuple[str | None, tuple[Argument, ...]]:
        generator, every, by_index = self._fills(operator, entry, path, [index for index, _ in inputs])
        signature = operator.descriptor.tensors
        arguments = []
        for index, spec in inputs:
            fill = by_index.get(index, every)
            if fill.kind == "integer-exact" and "terms" not in fill.parameters:
                fill = _with_terms(fill, operator.descriptor, [each for _, each in inputs], outputs, attributes)
            arguments.append(Argument(name=signature.input_name(index), path=f"input{index}", spec=spec, fill=fill))
        return generator, tuple(arguments)

    def _fills(
        self, operator: _Operator, entry: Entry, path: Path, present: list[int]
    ) -> tuple[str | None, Fill, dict[int, Fill]]:
        """Merge the layers: a later ``every`` or dotted path replaces all before it, fills by input add up."""
        layers: list[tuple[Place, GeneratorChoice]] = [("operator", operator.generator)]
        if "generator" in self.defaults:
            layers.append((("defaults", "generator"), self.defaults["generator"]))
        if "generator" in entry:
            layers.append(((*path, "generator"), entry["generator"]))
        if self.request.generator:
            layers.append(("--generator", read_generator(self.request.generator)))
        dotted: str | None = None
        every = Fill(kind=DEFAULT_FILL)
        by_index: dict[int, Fill] = {}
        for place, choice in layers:
            if choice.path is not None:
                dotted, every, by_index = choice.path, Fill(kind=DEFAULT_FILL), {}
            elif choice.every is not None:
                dotted, every, by_index = None, choice.every, {}
                self._check_fill(every, place)
            else:
                by_index.update(self._fills_by_index(operator, choice.by_tensor, place))
        if dotted is not None and by_index:
            if any(index not in by_index for index in present):
                message = f"fills by input leave inputs to {dotted}, which makes all inputs or none"
                self._problem((*path, "generator"), message, "state a fill for every input")
            dotted = None
        return dotted, every, by_index

    def _fills_by_index(self, operator: _Operator, stated: Mapping[str, Fill], place: Place) -> dict[int, Fill]:
        found: dict[int, Fill] = {}
        for name, fill in stated.items():
            here = _below(place, name)
            tensor = self._tensor(operator, name, here)
            if tensor is None:
                continue
            if tensor[0] == "output":
                self._problem(here, f"{name} is an output, but fills are for inputs")
                continue
            self._check_fill(fill, here)
            found[tensor[1]] = fill
        return found

    def _check_fill(self, fill: Fill, place: Place) -> None:
        if not fill.parameters and fill.kind in self.good_fills:
            return
        try:
            self.check_fill(fill)
        except UnknownName as error:
            self._unknown(place, error)
        except UsageError as error:
            self._problem(place, str(error))
        else:
            if not fill.parameters:
                self.good_fills.add(fill.kind)

    # The rest of a case

    def _stated(self, entry: Entry, path: Path, key: str, option: Any, flag: str) -> tuple[Any, Place]:
        """The value of the highest layer that states ``key`` (None if none does) and where it was written."""
        if option is not None:
            return option, flag
        if key in entry:
            return entry[key], (*path, key)
        if key in self.defaults:
            return self.defaults[key], ("defaults", key)
        return None, (*path, key) if path else flag

    def _seed(self, entry: Entry) -> int:
        if self.request.seed is not None:
            return self.request.seed
        seed = entry.get("seed", self.defaults.get("seed"))
        if seed is None:
            seed = self.document.seed if self.document is not None else 0
        return int(seed)

    def _retries(self, entry: Entry) -> int:
        if self.request.retries is not None:
            return self.request.retries
        return int(entry.get("retries", self.defaults.get("retries", 0)))

    def _reference(self, entry: Entry, path: Path) -> str | None:
        stated, place = self._stated(entry, path, "reference", self.request.reference, "--reference")
        if stated is not None and not is_dotted(stated):
            self._problem(place, f"reference is {shown(stated)}, but should be an import path: package.module:name")
        return None if stated is None else str(stated)

    def _tolerances(self, entry: Entry, path: Path) -> tuple[ToleranceLayer, ...]:
        layers = [self.plan_tolerance, None, self.flag_tolerance]
        stated = entry.get("tolerance")
        if stated is not None:
            layers[1] = ToleranceLayer(layer=Layer.CASE, tolerance=stated, where=self._where_key(path, "tolerance"))
        return tuple(layer for layer in layers if layer is not None)

    def _backend_config(self, entry: Entry, path: Path) -> dict[str, dict[str, Any]]:
        own = entry.get("backend_config")
        if self.backend_names is not None and own:
            self._check_backends(own, (*path, "backend_config"))
        merged: dict[str, dict[str, Any]] = {}
        for layer in (self.defaults.get("backend_config"), own):
            for backend, options in (layer or {}).items():
                merged[backend] = {**merged.get(backend, {}), **options}
        for backend, options in self.option_config.items():
            merged[backend] = _merged_deeply(merged.get(backend, {}), options)
        return merged

    def _check_backends(self, stated: Mapping[str, Any], place: Path) -> None:
        for backend in stated:
            if self.backend_names is not None and backend not in self.backend_names:
                self._unknown((*place, backend), UnknownName("backend", backend, self.backend_names))

    def _check_default_backends(self) -> None:
        self._check_backends(self.defaults.get("backend_config", {}), ("defaults", "backend_config"))
        if self.backend_names is not None:
            for backend in self.option_config:
                if backend not in self.backend_names:
                    self._unknown("--attr", UnknownName("backend", backend, self.backend_names))

    # Before the first case

    def _split_attributes(self) -> None:
        """Part the flags' attributes from those that go into ``backend_config``."""
        for key, value in self.request.attributes.items():
            head, *steps = key.split(".")
            if head != "backend_config":
                self.option_attributes[key] = value
            elif len(steps) < 2 or not all(steps):
                message = f"{key} should name a backend and a key"
                self._problem("--attr", message, "for example --attr backend_config.ascend.workdir=build")
            else:
                _set_deeply(self.option_config, steps, value)

    def _note_tolerances(self) -> None:
        if "tolerance" in self.defaults:
            where = self._place_text(("defaults", "tolerance"))
            stated = self.defaults["tolerance"]
            self.plan_tolerance = ToleranceLayer(layer=Layer.PLAN, tolerance=stated, where=where)
        if self.request.tolerance is not None:
            stated = self.request.tolerance
            self.flag_tolerance = ToleranceLayer(layer=Layer.COMMAND_LINE, tolerance=stated, where="--tolerance")

    def _choose_target(self, target_of: Callable[[str, str | None], BackendTarget]) -> None:
        document, request = self.document, self.request
        backend = request.backend or (document.backend if document is not None else "") or "numpy"
        chip = request.chip or (document.chip if document is not None else "") or None
        self.target = BackendTarget(name=backend, chip=chip)
        try:
            self.target = target_of(backend, chip)
        except UsageError as error:
            about_chip = isinstance(error, UnknownName) and error.kind.startswith("chip")
            place: Place = ("chip",) if about_chip else ("backend",)
            if request.chip if about_chip else request.backend:
                place = "--chip" if about_chip else "--backend"
            if isinstance(error, UnknownName):
                self._unknown(place, error)
            else:
                self._problem(place, str(error))

    def _refuse_untrusted_code(self) -> None:
        """Under ``--untrusted`` nothing that only the plan names is run."""
        if not self.request.untrusted or self.document is None:
            return
        layers: list[tuple[Entry, Path]] = [(self.defaults, ("defaults",))]
        layers += [(entry, ("cases", index)) for index, entry in enumerate(self.document.cases)]
        for entry, path in layers:
            generator = entry.get("generator")
            if generator is not None and generator.path is not None:
                self._refuse((*path, "generator"), generator.path)
            if "reference" in entry:
                self._refuse((*path, "reference"), entry["reference"])
            for backend, options in entry.get("backend_config", {}).items():
                for key in _RUNS_CODE:
                    if key in options:
                        self._refuse((*path, "backend_config", backend, key), options[key])

    def _refuse(self, place: Path, what: Any) -> None:
        text = " ".join(map(str, what)) if isinstance(what, list) else what if isinstance(what, str) else shown(what)
        self._problem(place, f"--untrusted refuses what the plan would run: {text}")

    # After the last case

    def _check_names(self) -> None:
        if self.document is None:
            return
        first: dict[str, int] = {}
        for index, entry in enumerate(self.document.cases):
            name = entry.get("name")
            if name is None:
                continue
            if name in first:
                line = self.document.source.case_lines[first[name]]
                self._problem(("cases", index, "name"), f"the name {name!r} is taken by the case in line {line}")
            first.setdefault(name, index)

    # Places

    def _where(self, path: Path) -> str:
        if self.document is None or len(path) < 2:
            return COMMAND_LINE
        return f"{self.document.path}:{self.document.source.case_lines[int(path[1])]}"

    def _where_key(self, path: Path, key: str) -> str:
        if self.document is None or len(path) < 2:
            return COMMAND_LINE
        source, index = self.document.source, int(path[1])
        line = source.case_key_lines[index].get(key, source.case_lines[index])
        return f"{self.document.path}:{line}"

    def _origins(self, entry: Entry, path: Path) -> dict[str, str]:
        """Where each stated value came from; what is not in it is the operator's or optest's default."""
        origins: dict[str, str] = dict(self.shared_origins)
        if len(path) == 2 and self.document is not None:
            source, index = self.document.source, int(path[1])
            start, file = source.case_lines[index], self.document.path
            lines = source.case_key_lines[index]
            for key in entry:
                origins[key] = f"{file}:{lines.get(key, start)}"
        origins.update(self.flag_origins)
        return origins

    def _tensor_place(self, operator: _Operator, entry: Entry, path: Path, tensor: tuple[str, int]) -> Place:
        """Where the shape of a tensor was written, under whichever of its names."""
        if any(operator.locate(name) == tensor for name in self.request.shapes):
            return "--shape"
        for name in entry.get("shapes", {}):
            if operator.locate(name) == tensor:
                return (*path, "shapes", name)
        return (*path, "shapes") if path else "--shape"

    def _unknown(self, place: Place, error: UnknownName) -> None:
        near = f"did you mean {error.suggestion}? " if error.suggestion else ""
        known = f"known: {', '.join(sorted(error.known))}" if error.known else ""
        self._problem(place, f"unknown {error.kind} {error.name!r}", near + known)

    def _problem(self, place: Place, message: str, hint: str = "") -> None:
        if isinstance(place, str) or self.document is None:
            flag = place if isinstance(place, str) else ""
            self.problems.append(Problem(message=message, file=COMMAND_LINE, path=flag, hint=hint))
            return
        line = self.document.source.line_of(place)
        where = format_path(place)
        self.problems.append(Problem(message=message, file=self.document.path, line=line, path=where, hint=hint))

    def _place_text(self, path: Path) -> str:
        assert self.document is not None
        return self.document.where(path)

    def _shared_origins(self) -> dict[str, str]:
        if self.document is None:
            return {}
        found = {key: f"{self.document.where(('defaults', key))} defaults" for key in self.defaults}
        for key in ("seed", "backend", "chip"):
            if key in self.document.model_fields_set:
                found.setdefault(key, self.document.where((key,)))
        return found

    def _flag_origins(self) -> dict[str, str]:
        request = self.request
        stated = {
            "dtypes": request.dtypes,
            "shapes": request.shapes,
            "attributes": self.option_attributes,
            "backend_config": self.option_config,
            "generator": request.generator,
            "reference": request.reference,
            "tolerance": request.tolerance,
            "seed": request.seed is not None,
            "timeout": request.timeout_s,
            "retries": request.retries is not None,
            "backend": request.backend,
            "chip": request.chip,
        }
        return {key: COMMAND_LINE for key, value in stated.items() if value}


def _below(place: Place, key: str) -> Place:
    return place if isinstance(place, str) else (*place, key)


def _positional(tensor: tuple[str, int] | None) -> str:
    return f"{tensor[0]}{tensor[1]}" if tensor is not None else ""


def _is_gap(operator: _Operator, index: int, present: Sequence[int]) -> bool:
    """Whether a variadic input before the last one is missing."""
    signature = operator.descriptor.tensors
    return signature.is_variadic and len(signature.inputs) - 1 <= index < max(present, default=-1)


def _with_terms(
    fill: Fill,
    descriptor: OperatorDescriptor,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    attributes: Mapping[str, Any],
) -> Fill:
    """Tell the integer-exact fill how many terms each sum has, so that sums stay within the accumulator."""
    terms = _terms_of(descriptor, inputs, outputs, attributes)
    return fill if terms is None else Fill(kind=fill.kind, parameters={**fill.parameters, "terms": terms})


def _terms_of(
    descriptor: OperatorDescriptor,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    attributes: Mapping[str, Any],
) -> int | None:
    """Length of the sum in each output element; None where the category does not tell."""
    if descriptor.category == "contraction" and inputs and inputs[0].rank:
        transposed = inputs[0].rank > 1 and attributes.get("trans_a") is True
        return inputs[0].shape[-2 if transposed else -1]
    if descriptor.category == "reduction" and inputs and outputs:
        return inputs[0].elements // max(outputs[0].elements, 1)
    return None


def _set_deeply(target: dict[str, Any], steps: Sequence[str], value: Any) -> None:
    for step in steps[:-1]:
        target = target.setdefault(step, {})
    target[steps[-1]] = value


def _merged_deeply(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged_deeply(merged[key], value) if both else value
    return merged


def _with_unique_ids(cases: list[TestCase]) -> list[TestCase]:
    """Unnamed cases that are alike get ``#2``, ``#3`` and so on, in order."""
    taken = {case.name for case in cases if case.name}
    unique = []
    for case in cases:
        if not case.name:
            identifier = name = case.identifier()
            count = 1
            while name in taken:
                count += 1
                name = f"{identifier}#{count}"
            taken.add(name)
            if count > 1:
                case = dataclasses.replace(case, name=name)
        unique.append(case)
    return unique
