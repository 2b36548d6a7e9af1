"""Optional abilities of drivers that the commands and reports of optest use: options, configuration, facts."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optest.backends.abilities import Ability
from optest.backends.capabilities import Capabilities, capability_of
from optest.backends.sections import SectionReader
from optest.errors import did_you_mean
from optest.spec import OperatorDescriptor, Sample, TestCase


class HasVariants(metaclass=Ability):
    """Ways to compute the same operators, such as optimisation levels: the first is the baseline, the last the default.

    ``case.backend.variant`` selects one. A check runs the baseline, too, unless the driver sets
    ``compares_variants = False``; then no variant runs unless selected. ``compiler`` is its default."""

    variants: tuple[str, ...]


class StoresCaseOptions(metaclass=Ability):
    def case_options(self) -> Mapping[str, Any]:
        """Return the configured options as this driver's ``backend_config``, which every case stores, so that its plans
        run again without options."""


class ChecksConfig(metaclass=Ability):
    def problems(self, case: TestCase) -> Sequence[str]:
        """Return the errors in the case's ``backend_config`` for this driver; called when the plan is read."""


class LacksOperators(metaclass=Ability):
    def lacks(self, descriptor: OperatorDescriptor) -> str | None:
        """Return why a check skips an operator for this driver (``not in mapping infiniop``), None if it does not."""


class DeclaresCapabilities(metaclass=Ability):
    """Capabilities by operator. Other operators, and cases outside of the capabilities, are not run; a case inside that
    ends as UNSUPPORTED is an error."""

    capabilities: Capabilities


class SelectsSamples(metaclass=Ability):
    def samples(self, own: Sequence[tuple[Sample, TestCase]]) -> Sequence[Sample]:
        """Return the samples that a check runs for an operator: ``own``, the samples of its case sets with their cases,
        and others that only this kind of driver can run."""


def compared_variants(driver: object) -> tuple[str, ...]:
    """Return the variants of a driver that are compared with each other, the baseline first; () if none are."""
    return driver.variants if isinstance(driver, HasVariants) and getattr(driver, "compares_variants", True) else ()


def config_problems(driver: object, case: TestCase) -> Sequence[str]:
    """Return the errors in the options in the case's ``backend_config`` for its driver.

    A driver declares its keys as ``config_keys`` and checks values by ``problems(case)``. A built-in driver without
    either has no keys; the keys of a user's driver without either cannot be checked.
    """
    name, problems = case.backend.name, driver.problems(case) if isinstance(driver, ChecksConfig) else ()
    is_keyless = type(driver).__module__.startswith("optest.") and not isinstance(driver, ChecksConfig)
    keys = getattr(driver, "config_keys", () if is_keyless else None)
    if keys is None or not case.backend_config.get(name):
        return problems
    reader = SectionReader(case, name, ", ".join(keys) or "no keys")
    flags = [f"--{option}".replace("_", "-") for option in getattr(driver, "options", ())]
    others = {str(key): did_you_mean(f"--{key}", flags, f"options: {', '.join(flags)}") for key in reader.section}
    reader.unknown_keys(reader.section, keys, others=others if flags and not keys else {})
    return (*reader.problems, *problems)


def skip_reason_for_operator(driver: object, descriptor: OperatorDescriptor) -> str | None:
    """Return why a check skips an operator for the driver, None if it does not."""
    if isinstance(driver, LacksOperators):
        return driver.lacks(descriptor)
    is_declared = not isinstance(driver, DeclaresCapabilities) or capability_of(driver.capabilities, descriptor)
    return None if is_declared else "not in the driver's capabilities"


def outside_capabilities(driver: object, case: TestCase) -> str | None:
    """Return why the case is outside of the driver's capabilities, None if it is inside or none are declared."""
    if not isinstance(driver, DeclaresCapabilities):
        return None
    capability = capability_of(driver.capabilities, case.descriptor)
    return "the operator is not in the driver's capabilities" if capability is None else capability.lacks(case)


def case_options_of(driver: object) -> Mapping[str, Any]:
    """Return the options that every case of the driver stores."""
    return driver.case_options() if isinstance(driver, StoresCaseOptions) else {}
