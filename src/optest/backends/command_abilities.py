"""Abilities of drivers that commands and reports ask for: options and configuration, what a check asks, facts."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optest.backends.abilities import Ability
from optest.backends.capabilities import Capabilities, capability_of
from optest.backends.sections import SectionReader
from optest.errors import did_you_mean
from optest.spec import OperatorDescriptor, Sample, TestCase


class Configurable(metaclass=Ability):
    def configure(self, options: Mapping[str, Any]) -> None:
        """Take options of the command line (``torch_device``, ``threads``) before the first case."""


class HasVariants(metaclass=Ability):
    """Ways to compute the same operators, such as optimisation levels: the first is the baseline, the last the default.
    ``case.backend.variant`` is the one that is asked. A check asks the baseline, too, unless the driver says
    ``compares_variants = False``: no variant is asked by itself then. ``compiler`` is its default."""

    variants: tuple[str, ...]


class StatesCaseOptions(metaclass=Ability):
    def case_options(self) -> Mapping[str, Any]:
        """What the options that ``configure`` took mean as this driver's ``backend_config``: every case holds them, and
        whoever runs one of its plans needs no option."""


class ChecksConfig(metaclass=Ability):
    def problems(self, case: TestCase) -> Sequence[str]:
        """What is wrong with the case's ``backend_config`` for this driver, found when the plan is read."""


class KnowsDtypes(metaclass=Ability):
    def dtypes_of(self, options: Mapping[str, Any]) -> Mapping[str, str]:
        """Dtypes by tensor name that a case's options for this driver state, for cases that state no dtypes."""


class ChecksReadiness(metaclass=Ability):
    def ready_for_check(self) -> str | None:
        """Why nothing can be checked yet, in words for whoever typed the command: an option is missing. Else None."""


class LacksOperators(metaclass=Ability):
    def lacks(self, descriptor: OperatorDescriptor) -> str | None:
        """Why a check asks this driver for no case of an operator (``not in mapping infiniop``), None if it asks."""


class NamesOperators(metaclass=Ability):
    def named_operators(self) -> Mapping[str, str]:
        """Return the operators that the user named for this driver, each with the function that computes it."""


class StatesCapabilities(metaclass=Ability):
    """What it can do, by operator. Of other operators, and outside of what is stated, nothing is asked; a case inside
    that is answered by UNSUPPORTED is an error."""

    capabilities: Capabilities


class SelectsSamples(metaclass=Ability):
    def samples(self, own: Sequence[tuple[Sample, TestCase]]) -> Sequence[Sample]:
        """What a check asks of an operator: ``own`` are the samples of its case sets and the cases that they make, to
        which a driver may add what only drivers of its kind can be asked."""


class KnowsCommand(metaclass=Ability):
    def command_line(self, case: TestCase) -> Sequence[str]:
        """The words behind ``optest`` that run ``case`` again, where flags of its operator are not the way to it."""


class KnowsExpectations(metaclass=Ability):
    def expectations(self) -> str | None:
        """Path of a file of differences that `optest check` expects of this driver on its device; None for none."""


class KnowsExpectationsOfSamples(metaclass=Ability):
    def expectations_of_samples(self) -> str | None:
        """The same for `optest run --source`, whose cases are calls of a framework."""


class CountsOperators(metaclass=Ability):
    def declares(self, operators: Sequence[str]) -> tuple[int, Sequence[str]] | None:
        """How many operators the backend has in all, and which of these are not among them; None if nobody knows."""


class ReadsFiles(metaclass=Ability):
    def files_of(self, cases: Sequence[TestCase]) -> Sequence[Path]:
        """Files on which results depend and which no case names: a run is resumed only if none of them has changed."""


class ExplainsItself(metaclass=Ability):
    def doctor(self) -> Sequence[str]:
        """Facts for ``optest doctor``: devices, versions. Raise ``Unavailable`` if it cannot work here."""


def runs_programs(driver: object) -> bool:
    """Whether a driver says ``runs_programs = True``: a check has to name programs of operators (``--config``)."""
    return bool(getattr(driver, "runs_programs", False))


def compared_variants(driver: object) -> tuple[str, ...]:
    """The variants of a driver that are held against each other, the baseline first; () of one that has none."""
    return driver.variants if isinstance(driver, HasVariants) and getattr(driver, "compares_variants", True) else ()


def options_of(driver: object) -> tuple[str, ...]:
    """The options of the command line that ``configure`` of a driver takes, by its attribute ``options``; any other one
    is refused for it."""
    return tuple(getattr(driver, "options", ()))


def config_problems(driver: object, case: TestCase) -> Sequence[str]:
    """Return what is wrong with the options in the case's ``backend_config`` for its driver.

    A driver declares its keys as ``config_keys`` and checks values by ``problems(case)``. A driver of optest without
    either has no keys; those of a user's driver without either cannot be checked.
    """
    name, found = case.backend.name, driver.problems(case) if isinstance(driver, ChecksConfig) else ()
    is_keyless = type(driver).__module__.startswith("optest.") and not isinstance(driver, ChecksConfig)
    keys = getattr(driver, "config_keys", () if is_keyless else None)
    if keys is None or not case.backend_config.get(name):
        return found
    reader = SectionReader(case, name, ", ".join(keys) or "no keys")
    flags = [f"--{each}".replace("_", "-") for each in options_of(driver)]
    others = {str(key): did_you_mean(f"--{key}", flags, f"options: {', '.join(flags)}") for key in reader.section}
    reader.unknown_keys(reader.section, keys, others=others if flags and not keys else {})
    return (*reader.problems, *found)


def lack_of(driver: object, descriptor: OperatorDescriptor) -> str | None:
    """Why a check asks the driver for no case of an operator, None if it asks."""
    if isinstance(driver, LacksOperators):
        return driver.lacks(descriptor)
    is_stated = not isinstance(driver, StatesCapabilities) or capability_of(driver.capabilities, descriptor)
    return None if is_stated else "not among the stated capabilities"


def outside_capabilities(driver: object, case: TestCase) -> str | None:
    """Why the case is outside of what the driver states, None if it is inside or nothing is stated."""
    if not isinstance(driver, StatesCapabilities):
        return None
    found = capability_of(driver.capabilities, case.descriptor)
    return "the operator is not among the stated capabilities" if found is None else found.lacks(case)


def configure(driver: object, options: Mapping[str, Any]) -> None:
    """Hand a driver its options, if it is configured at all."""
    if isinstance(driver, Configurable):
        driver.configure(options)


def case_options_of(driver: object) -> Mapping[str, Any]:
    """The driver's options that every one of its cases holds."""
    return driver.case_options() if isinstance(driver, StatesCaseOptions) else {}
