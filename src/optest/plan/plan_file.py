"""Read a plan file and the files that it includes as far as possible, and collect their problems."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from pydantic import ValidationError

from optest.errors import PlanError, Problem
from optest.plan.dialects import NO_FACTS, Facts, Translated, dialect_of
from optest.plan.problems import all_at_once, nearest_key, problem_at, problems_of
from optest.plan.product import MAPPINGS, Product
from optest.plan.product_reader import read_product
from optest.plan.schema import CaseEntry, PlanDocument, known_keys
from optest.plan.values import Misfit
from optest.plan.yaml_source import MAX_BYTES, Path, Source, parse_source
from optest.registry import functions_of
from optest.settings import environment
from optest.spec.construct import collection_paused
from optest.store import PathError, read_regular, resolve_path


def read_plan(path: str | os.PathLike[str]) -> PlanDocument:
    """Read a plan file and its includes; raise PlanError with all their problems, each with line and path."""
    document = open_plan(path, facts=Facts(environment=environment()))
    if document.problems:
        raise PlanError(all_at_once(document.problems, [plan.path for plan in document.family()]))
    return document


def open_plan(path: str | os.PathLike[str], *, untrusted: bool = False, facts: Facts = NO_FACTS) -> PlanDocument:
    """Read a plan file as far as possible; its ``problems`` are for ``build_cases``, which raises all at once.

    An ``untrusted`` plan may include only files in its own folder or below. Conditions of model cases read ``facts``.

    Raises:
        PlanError: if nothing of the file can be read.
    """
    file = os.fspath(path)
    try:
        raw = read_regular(file, MAX_BYTES)
    except PathError as error:
        hint = "--plan is one file: write a plan with include: [a.yaml, b.yaml], or run pytest on the folder"
        hint = hint if os.path.isdir(file) else ""
        raise PlanError([Problem(message=str(error), hint=hint)]) from None
    # Scenes and functions are run by other options, which are easily confused with --plan.
    if file.endswith(".py"):
        function = f"check --function {file}:{(*functions_of(file), 'NAME')[0]}"
        hint = f"did you mean optest {f'run --source scene:{file}' if b'@scene_test' in raw else function}?"
        raise PlanError([Problem(file=file, message="the file is Python, expected a plan", hint=hint)])
    return parse_plan(raw, _without_detours(file), untrusted=untrusted, facts=facts)


def parse_plan(raw: bytes, file: str, *, untrusted: bool = False, facts: Facts = NO_FACTS) -> PlanDocument:
    """Read the bytes of a plan and the files that it includes as far as possible; the rest is in ``problems``.

    Messages name the plan ``file``, and its relative paths start from there.

    Raises:
        PlanError: if nothing can be read: the text is no YAML, or no mapping.
    """
    below = (os.path.dirname(file) or ".",) if untrusted else ()
    parse = partial(_parse_file, facts=facts, below=below)
    document = parse(raw, file)
    if document.include:
        document._problems = (*document._problems, *_Includes(parse, below).follow(document))
        document._problems = (*document._problems, *_repeated_models(document.family()))
    return document


def _parse_file(
    raw: bytes, file: str, model: str = "", *, facts: Facts = NO_FACTS, below: Sequence[str] = ()
) -> PlanDocument:
    """Read one plan without its includes, or a file of model cases, whose model gets the name ``model`` if set."""
    with collection_paused():
        source = parse_source(raw, file)
        dialect = dialect_of(source.data)
        foreign = Translated(source.data, {}, ())
        if dialect is not None:
            if model:
                source.data["model"] = model
            foreign = dialect.translate(source, facts, below)
            source.data = foreign.plan
        # Profilers write JSON that looks like recorded calls.
        elif "traceEvents" in source.data or {"schema", "nodes"} <= source.data.keys():
            trace = "a Chrome trace" if "traceEvents" in source.data else "a torch ExecutionTrace"
            message = f"this is {trace}, which has the shapes of calls but not all of their arguments"
            raise PlanError([Problem(message=message, file=file, line=1, hint="optest capture writes calls as cases")])
        if "include" in source.data:
            # The schema requires the key, but a plan may have nothing but includes.
            source.data.setdefault("cases", [])
        products, faults = _take_products(source)
        try:
            document = PlanDocument.model_validate(source.data)
            problems = dict(source.faults)
        except ValidationError as error:
            problems = problems_of(error, source, known_keys)
        # An untranslated case is not reported as an incomplete plan case as well.
        untranslated = {path[:2] for path in foreign.problems}
        problems = {path: problem for path, problem in problems.items() if path[:2] not in untranslated}
        problems |= foreign.problems
        problems = {**problems, **{path: problem for path, problem in faults.items() if path not in problems}}
        unread = _unread(problems)
        if problems:
            document = _readable_part(source.data, problems.keys(), unread)
        products = {index: x for index, x in products.items() if index < len(document.cases)}
        for index, product in products.items():
            if product is not None:
                # The part of the case that all combinations share.
                targets = (unit.target for unit in product.units if len(unit.target) == 1)
                varied = {"product", "exclude", *(target[0] for target in targets if target[0] not in MAPPINGS)}
                product.fixed = {key: value for key, value in document.cases[index].items() if key not in varied}
        source.settle()
    document._source = source
    document._dialect = dialect
    document._problems = tuple(dict.fromkeys(problems.values()))
    document._notes = foreign.notes
    document._unread = unread
    document._products = products
    document._model = source.data["name"] if dialect is not None else ""
    return document


def _repeated_models(documents: Iterable[PlanDocument]) -> Iterable[Problem]:
    """Yield a problem for each model name that a second file uses: their results could not be distinguished."""
    first: dict[str, PlanDocument] = {}
    for plan in documents:
        if plan.model and first.setdefault(plan.model, plan) is not plan:
            message = f"the model name {plan.model!r} is taken at {first[plan.model].where(('model',))}"
            name = os.path.basename(plan.path)
            hint = f"rename it in the plan that includes it: include: [{{file: {name}, model: {plan.model}-2}}]"
            yield problem_at(("model",), Misfit(message, hint=hint), plan.source)


def _take_products(source: Source) -> tuple[dict[int, Product | None], dict[Path, Problem]]:
    """Return the products of the cases by index, and their problems; leave in the data the keys without references."""
    products: dict[int, Product | None] = {}
    problems: dict[Path, Problem] = {}
    cases = source.data.get("cases")
    if not isinstance(cases, list):
        return products, problems
    source.data["cases"] = list(cases)
    for index, entry in enumerate(cases):
        if not isinstance(entry, dict):
            continue
        if "product" in entry:
            plain, products[index], faults = read_product(entry, ("cases", index), source)
            source.data["cases"][index] = plain
            problems |= faults
        elif "exclude" in entry:
            path = ("cases", index, "exclude")
            message = "exclude is set without a product, expected values of its axes"
            problems[path] = problem_at(path, Misfit(message, hint="add a product, or remove exclude"), source)
    return products, problems


# Mappings of which the other entries stay readable if one value is wrong.
_PARTLY_READ = ("shapes", "dtypes", "attributes", "backend_config")


def _unread(faults: Iterable[Path]) -> dict[Path, set[str]]:
    """Return the keys that problems make unreadable, by the path of the mapping with the key."""
    unread: dict[Path, set[str]] = {}
    for path in faults:
        # The owner is the plan, its defaults or a case; key is None if the fault concerns all of the owner's keys.
        is_in_case = path[:1] == ("cases",) and isinstance(path[1:] and path[1], int)
        depth = 2 if is_in_case else int(path[:1] == ("defaults",))
        owner, key = path[:depth], None if path[depth : depth + 1] in ((), ("<<",)) else str(path[depth])
        # A misspelt key may have meant the nearest one, so nothing is concluded from the absence of that either.
        known = known_keys(owner)
        unread.setdefault(owner, set()).update((*known, "<<") if key is None else (key, nearest_key(key, known) or key))
        inner = len(owner) + 1
        if key in _PARTLY_READ and owner and len(path) > inner:
            unread.setdefault(path[:inner], set()).add(str(path[inner]))
    return unread


def _readable_part(
    data: Mapping[str, Any], faults: Collection[Path], unread: Mapping[Path, Collection[str]]
) -> PlanDocument:
    """Return the plan without its unreadable keys; a case without a readable operator becomes {}."""

    def part(mapping: Any, owner: Path) -> dict[str, Any]:
        kept = {}
        keys = unread.get(owner, ())
        for key, value in mapping.items() if isinstance(mapping, dict) else ():
            path = (*owner, key)
            if key not in keys:
                kept[key] = value
            elif path in unread and path not in faults and isinstance(value, dict):
                kept[key] = part(value, path)
        return kept

    top = part(data, ())
    if "defaults" in top:
        top["defaults"] = part(top["defaults"], ("defaults",))
    entries = [part(entry, ("cases", index)) for index, entry in enumerate(top.get("cases", ()))]
    document = PlanDocument.model_validate({**top, "cases": [entry for entry in entries if "op" in entry]})
    for index, entry in enumerate(entries):
        if "op" not in entry:
            # Problems and products refer to cases by index.
            document.cases.insert(index, cast(CaseEntry, {}))
    return document


MAX_INCLUDED = 1000
# Length of a chain of files that include each other; reading recurses as deep.
MAX_CHAIN = 32


class _Includes:
    """Reader of included plans; the last argument of ``parse`` renames a plan's model, "" keeps its name."""

    def __init__(self, parse: Callable[[bytes, str, str], PlanDocument], below: Sequence[str]) -> None:
        self.parse = parse
        # The folders of an untrusted plan, which could otherwise print any file that its user may read; () for all.
        self.below = below
        # The position at which each file is included first.
        self.first: dict[str, str] = {}

    def follow(self, document: PlanDocument, above: tuple[str, ...] = ()) -> Iterator[Problem]:
        """Read the includes of a plan recursively and store them in it; yield problems. ``above`` includes the plan."""
        above = (*above, os.path.realpath(document.path))
        plans: list[PlanDocument] = []
        for place, (name, model, expectations) in document.included_files():
            file = _without_detours(os.path.join(os.path.dirname(document.path), name))
            try:
                real = self._real_path(file, above)
                self.first[real] = document.where(place)
                raw = read_regular(file, MAX_BYTES)
            except PathError as error:
                yield problem_at(place, Misfit(str(error)), document.source)
                continue
            try:
                included = self.parse(raw, file, model)
            except PlanError as error:  # an unreadable file is one problem among others
                yield from error.problems
                continue
            plans.append(included)
            if expectations:
                message = self._expect(document, included, expectations)
                if message:
                    yield problem_at((*place, "expectations"), Misfit(message), document.source)
            if model and not included.model:
                message = f"{file} is included with model {model!r}, but has no cases of a model"
                yield problem_at((*place, "model"), Misfit(message), document.source)
            yield from self.follow(included, above)
        document._included = tuple(plans)

    def _expect(self, document: PlanDocument, included: PlanDocument, name: str) -> str:
        """Set the expectations file of the included cases; return why it cannot be opened, "" if it can."""
        file = _without_detours(os.path.join(os.path.dirname(document.path), name))
        try:
            included._expectations = os.fspath(resolve_path("", file, self.below))
        except PathError as error:
            return str(error)
        return "" if os.path.exists(file) else f"{file} does not exist"

    def _real_path(self, file: str, above: tuple[str, ...]) -> str:
        """Return the path of a file without links; raise PathError if it must not be included (again)."""
        real = os.path.realpath(resolve_path("", file, self.below))
        if len(above) > MAX_CHAIN:
            raise PathError(f"{file} is the end of a chain of more than {MAX_CHAIN} plans that include each other")
        if real in above:
            way = [os.path.basename(x) for x in (*above[above.index(real) :], real)]
            raise PathError(f"{file} includes itself: {' -> '.join(way)}")
        if real in self.first:
            raise PathError(f"{file} is included twice, first at {self.first[real]}")
        if len(self.first) >= MAX_INCLUDED:
            raise PathError(f"more than {MAX_INCLUDED} plans are included")
        return real


def _without_detours(file: str) -> str:
    """Return the normalised path (``n/../x.yaml`` → ``x.yaml``), unless a link makes that another file."""
    short = os.path.normpath(file)
    return short if os.path.exists(short) and os.path.samefile(short, file) else file
