"""y = half the sum over all devices, on each of them: 2 (n - 1) steps around a ring, several times over (level 3)."""

import numpy as np

from optest.scenes import ArgDirection as D
from optest.scenes import Scalar, SceneTestCase, TaskArgsBuilder, Tensor, scene_test


@scene_test(level=3, runtime="cpp", platforms=["cpusim"])
class TestRingAllreduce(SceneTestCase):
    CALLABLE = {
        "orchestration": {
            "source": "kernels/ring.cpp",
            "function_name": "ring_allreduce",
            "signature": [D.IN, D.OUT],
        },
        # The signatures say what kernels write: a copy that does not wait for that is found.
        "incores": [
            {"func_id": 0, "source": "kernels/add.cpp", "signature": [D.IN, D.INOUT]},
            {"func_id": 1, "source": "kernels/halve.cpp", "signature": [D.INOUT]},
        ],
    }
    CASES = [
        {
            "name": "four",
            "device_count": 4,
            "config": {"block_dim": 2},
            "params": {"devices": 4, "size": 4096, "rounds": 3},
        },
        {"name": "ragged", "device_count": 4, "params": {"devices": 4, "size": 1003, "rounds": 2}},
        {"name": "two", "device_count": 2, "params": {"devices": 2, "size": 64, "rounds": 1}},
    ]

    def generate_args(self, params):
        shape = (params["devices"], params["size"])
        return TaskArgsBuilder(
            Tensor("x", np.random.standard_normal(shape).astype(np.float32)),
            Tensor("y", np.zeros(shape, np.float32)),
            Scalar("rounds", params["rounds"]),
        )

    def compute_golden(self, args, params):
        rows = args.x.astype(np.float64)
        for _ in range(params["rounds"]):
            rows = np.broadcast_to(rows.sum(axis=0) / 2, rows.shape)
        args.y[:] = rows


if __name__ == "__main__":
    SceneTestCase.run_module(__name__)
