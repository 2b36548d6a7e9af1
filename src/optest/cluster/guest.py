"""The integration of clusters: its option. It does not import Ray."""

from __future__ import annotations

from optest.guests import Guest, Option

GUEST = Guest(
    options=(
        Option(
            name="cluster",
            group="How to run",
            metavar="ADDRESS|local",
            commands=("run", "check"),
            help="Run on the Ray cluster at this address (auto detects it), or on one started here (local).",
        ),
    ),
    machines="optest.cluster.connection:connect",
)
