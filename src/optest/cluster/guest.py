"""What a cluster brings to optest: its option. Ray is not imported here."""

from __future__ import annotations

from optest.guests import Guest, Option

GUEST = Guest(
    options=(
        Option(
            name="cluster",
            group="How to run",
            metavar="ADDRESS|local",
            commands=("run", "check"),
            help="Run on the Ray cluster at this address (auto finds it), or on one that is started here.",
        ),
    ),
    machines="optest.cluster.lanes:connect",
)
