"""What does a Ray cluster cost: 200 cases of 100 ms in two processes, and on two nodes of a cluster on this machine?

    python benchmarks/cluster.py [--quick]

The time is that of the whole run without the connection to Ray, which is printed separately; both start workers.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from pathlib import Path

import kit
from dispatcher import plan
from ray.cluster_utils import Cluster

_STORE = {"object_store_memory": 100 << 20}


def seconds(folder: Path, count: int, **options: str) -> tuple[float, float]:
    """Return the seconds of a run, and of the connection and all else before and after it."""
    from optest.api.running import run

    began = time.monotonic()
    settings = {"plan": plan(folder, [{"sleep_s": 0.1}] * count), "runs_dir": str(folder / "runs"), **options}
    outcome = run(settings, stream=io.StringIO())
    assert outcome.exit_status == 0, outcome.summary
    return outcome.summary.duration_s, time.monotonic() - began - outcome.summary.duration_s


def main() -> None:
    here = str(Path(__file__).resolve().parent)
    os.environ |= {"OPTEST_PLUGINS": "dispatcher", "PYTHONPATH": here, "RAY_USAGE_STATS_ENABLED": "0"}
    count = 40 if kit.parser(__doc__, quick="fewer cases").parse_args().quick else 200
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the working directory is copied to the nodes
        local_s, _ = seconds(Path(folder), count, device="0-1", max_parallel="2")
        cluster = Cluster(head_node_args={"num_cpus": 1, "include_dashboard": False, **_STORE}, initialize_head=True)
        try:
            cluster.add_node(num_cpus=1, **_STORE)
            ray_s, around_s = seconds(Path(folder), count, cluster=cluster.address)
        finally:
            cluster.shutdown()
    print(f"{count} cases of 100 ms, two processes: {local_s:.2f} s here, {ray_s:.2f} s on two nodes of a Ray cluster")
    print(f"  {ray_s / local_s:.2f} times as long (goal: 1.3), and {around_s:.2f} s to connect")


if __name__ == "__main__":
    main()
