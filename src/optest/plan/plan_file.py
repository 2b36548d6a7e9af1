"""A plan file and the files that it includes, read as far as they can be read, with everything that is wrong."""

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
    """Read a plan file that has to be right.

    Raises:
        PlanError: with every fault of the file's form and of the files that it includes, each with line and path.
    """
    document = open_plan(path, facts=Facts(environment=environment()))
    if document.problems:
        raise PlanError(all_at_once(document.problems, [each.path for each in document.family()]))
    return document


def open_plan(path: str | os.PathLike[str], *, untrusted: bool = False, facts: Facts = NO_FACTS) -> PlanDocument:
    """Read a plan file as far as it can be read, for ``build_cases``, which says all that is wrong with it at once.

    An ``untrusted`` plan may include only what lies in its own folder or below. ``facts`` are what the conditions of
    model cases may ask.

    Raises:
        PlanError: if nothing of the file can be read.
    """
    file = os.fspath(path)
    try:
        raw = read_regular(file, MAX_BYTES)
    except PathError as error:
        hint = (
            "a plan with include: [a.yaml, b.yaml] runs several files, pytest a folder" if os.path.isdir(file) else ""
        )
        raise PlanError([Problem(message=str(error), hint=hint)]) from None
    if file.endswith(".py"):
        function = f"check --function {file}:{(*functions_of(file), 'NAME')[0]}"
        hint = f"did you mean optest {f'run --source scene:{file}' if b'@scene_test' in raw else function}?"
        raise PlanError([Problem(file=file, message="the file is Python, but should be a plan", hint=hint)])
    return parse_plan(raw, _without_detours(file), untrusted=untrusted, facts=facts)


def parse_plan(raw: bytes, file: str, *, untrusted: bool = False, facts: Facts = NO_FACTS) -> PlanDocument:
    """Read the bytes of a plan, and the files that it includes, as far as they can be read.

    What cannot is in ``problems``. ``file`` is the plan's name in messages and the place that relative paths start
    from.

    Raises:
        PlanError: if nothing can be read: the text is no YAML, or no mapping.
    """
    below = (os.path.dirname(file) or ".",) if untrusted else ()
    parse = partial(_parse_file, facts=facts, below=below)
    document = parse(raw, file)
    if document.include:
        document._problems = (*document._problems, *_Includes(parse, below).follow(document))
        document._problems = (*document._problems, *_models_twice(document.family()))
    return document


def _parse_file(
    raw: bytes, file: str, model: str = "", *, facts: Facts = NO_FACTS, below: Sequence[str] = ()
) -> PlanDocument:
    """One plan without those that it includes; a file of model cases is a plan, too, and may be given a name."""
    with collection_paused():
        source = parse_source(raw, file)
        dialect = dialect_of(source.data)
        foreign = Translated(source.data, {}, ())
        if dialect is not None:
            if model:
                source.data["model"] = model
            foreign = dialect.translated(source, facts, below)
            source.data = foreign.plan
        elif "traceEvents" in source.data or {"schema", "nodes"} <= source.data.keys():
            trace = "a Chrome trace" if "traceEvents" in source.data else "a torch ExecutionTrace"
            message = f"this is {trace}, which has the shapes of calls but not all of their arguments"
            raise PlanError([Problem(message=message, file=file, line=1, hint="optest capture writes calls as cases")])
        if "include" in source.data:
            source.data.setdefault("cases", [])
        products, faults = _take_products(source)
        try:
            document = PlanDocument.model_validate(source.data)
            found = dict(source.faults)
        except ValidationError as error:
            found = problems_of(error, source, known_keys)
        # a case that could not be translated is not found wanting as one of a plan, too
        untranslated = {path[:2] for path in foreign.problems}
        found = {path: problem for path, problem in found.items() if path[:2] not in untranslated}
        found |= foreign.problems
        found = {**found, **{path: problem for path, problem in faults.items() if path not in found}}
        unread = _unread(found)
        if found:
            document = _readable_part(source.data, found.keys(), unread)
        products = {index: each for index, each in products.items() if index < len(document.cases)}
        for index, product in products.items():
            if product is not None:
                # The part of the case that all combinations share.
                targets = (unit.target for unit in product.units if len(unit.target) == 1)
                varied = {"product", "exclude", *(target[0] for target in targets if target[0] not in MAPPINGS)}
                product.fixed = {key: value for key, value in document.cases[index].items() if key not in varied}
        source.settle()
    document._source = source
    document._dialect = dialect
    document._problems = tuple(dict.fromkeys(found.values()))
    document._notes = foreign.notes
    document._unread = unread
    document._products = products
    document._model = source.data["name"] if dialect is not None else ""
    return document


def _models_twice(documents: Iterable[PlanDocument]) -> Iterable[Problem]:
    """Models that two files hold: their cases would share one name, their figures could not be told apart."""
    first: dict[str, PlanDocument] = {}
    for each in documents:
        if each.model and first.setdefault(each.model, each) is not each:
            message = f"the model is called {each.model!r}, as the one at {first[each.model].where(('model',))}"
            name = os.path.basename(each.path)
            hint = f"give it another name where it is included: include: [{{file: {name}, model: {each.model}-2}}]"
            yield problem_at(("model",), Misfit(message, hint=hint), each.source)


def _take_products(source: Source) -> tuple[dict[int, Product | None], dict[Path, Problem]]:
    """The products of the cases, and their faults; what names no axis is left to the reader of cases."""
    products: dict[int, Product | None] = {}
    found: dict[Path, Problem] = {}
    cases = source.data.get("cases")
    if not isinstance(cases, list):
        return products, found
    source.data["cases"] = list(cases)
    for index, entry in enumerate(cases):
        if not isinstance(entry, dict):
            continue
        if "product" in entry:
            plain, products[index], faults = read_product(entry, ("cases", index), source)
            source.data["cases"][index] = plain
            found |= faults
        elif "exclude" in entry:
            path = ("cases", index, "exclude")
            message = "exclude stands without a product, but should name values of its axes"
            found[path] = problem_at(path, Misfit(message), source)
    return products, found


_PARTLY_READ = ("shapes", "dtypes", "attributes", "backend_config")
"""Mappings in which one wrong value leaves the others as they are."""


def _unread(faults: Iterable[Path]) -> dict[Path, set[str]]:
    """The keys that hold faults, by the path of the mapping that they are keys of."""
    unread: dict[Path, set[str]] = {}
    for path in faults:
        # The owner is the plan, its defaults or a case; key is None if the fault concerns all of the owner's keys.
        is_in_case = path[:1] == ("cases",) and isinstance(path[1:] and path[1], int)
        depth = 2 if is_in_case else int(path[:1] == ("defaults",))
        owner, key = path[:depth], None if path[depth : depth + 1] in ((), ("<<",)) else str(path[depth])
        known = known_keys(owner)
        unread.setdefault(owner, set()).update((*known, "<<") if key is None else (key, nearest_key(key, known) or key))
        inner = len(owner) + 1
        if key in _PARTLY_READ and owner and len(path) > inner:
            unread.setdefault(path[:inner], set()).add(str(path[inner]))
    return unread


def _readable_part(
    data: Mapping[str, Any], faults: Collection[Path], unread: Mapping[Path, Collection[str]]
) -> PlanDocument:
    """The plan without the keys that hold faults."""

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
            document.cases.insert(index, cast(CaseEntry, {}))
    return document


# What a plan includes

MAX_INCLUDED = 1000
MAX_CHAIN = 32
"""How many files may include each other one by one; reading them goes as deep."""


class _Includes:
    """Reads what a plan includes, and so on, and yields what is wrong with the files as such.

    ``parse`` reads the text of one plan, and takes what its model is called, "" for its own name. With ``below``, only
    files in these folders and below them are opened: an untrusted plan could otherwise show what stands in any file
    that its user may read.
    """

    def __init__(self, parse: Callable[[bytes, str, str], PlanDocument], below: Sequence[str]) -> None:
        self.parse = parse
        self.below = below
        self.first: dict[str, str] = {}
        """Where each file was included first."""

    def follow(self, document: PlanDocument, above: tuple[str, ...] = ()) -> Iterator[Problem]:
        """``above`` are the files that lead to the document."""
        above = (*above, os.path.realpath(document.path))
        found: list[PlanDocument] = []
        for place, (name, model, expectations) in document.included_files():
            file = _without_detours(os.path.join(os.path.dirname(document.path), name))
            try:
                real = self._place(file, above)
                self.first[real] = document.where(place)
                raw = read_regular(file, MAX_BYTES)
            except PathError as error:
                yield problem_at(place, Misfit(str(error)), document.source)
                continue
            try:
                included = self.parse(raw, file, model)
            except PlanError as error:  # what cannot be read at all is told beside everything else
                yield from error.problems
                continue
            found.append(included)
            if expectations:
                message = self._expect(document, included, expectations)
                if message:
                    yield problem_at((*place, "expectations"), Misfit(message), document.source)
            if model and not included.model:
                message = f"{file} is given the name {model!r}, but holds no cases of a model"
                yield problem_at((*place, "model"), Misfit(message), document.source)
            yield from self.follow(included, above)
        document._included = tuple(found)

    def _expect(self, document: PlanDocument, included: PlanDocument, name: str) -> str:
        """Note the file of what is known of the included cases, or say why it is not opened."""
        file = _without_detours(os.path.join(os.path.dirname(document.path), name))
        try:
            included._expectations = os.fspath(resolve_path("", file, self.below))
        except PathError as error:
            return str(error)
        return "" if os.path.exists(file) else f"{file} is not there"

    def _place(self, file: str, above: tuple[str, ...]) -> str:
        """Where a file lies.

        Raises:
            PathError: saying why it is not opened.
        """
        real = os.path.realpath(resolve_path("", file, self.below))
        if len(above) > MAX_CHAIN:
            raise PathError(f"{file} is the end of a chain of more than {MAX_CHAIN} plans that include each other")
        if real in above:
            way = [os.path.basename(each) for each in (*above[above.index(real) :], real)]
            raise PathError(f"{file} includes itself: {' -> '.join(way)}")
        if real in self.first:
            raise PathError(f"{file} is included twice, first at {self.first[real]}")
        if len(self.first) >= MAX_INCLUDED:
            raise PathError(f"more than {MAX_INCLUDED} plans are included")
        return real


def _without_detours(file: str) -> str:
    """``examples/x.yaml`` for ``n/../examples/x.yaml``, unless a link makes these two files."""
    short = os.path.normpath(file)
    return short if os.path.exists(short) and os.path.samefile(short, file) else file
