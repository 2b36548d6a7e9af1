"""c = a @ b in square tiles of c, which the blocks of one task share out among them."""

import numpy as np

from optest.scenes import ArgDirection as D
from optest.scenes import SceneTestCase, TaskArgsBuilder, Tensor, scene_test


@scene_test(level=2, runtime="cpp", platforms=["cpusim"])
class TestMatmulTiled(SceneTestCase):
    CALLABLE = {
        "orchestration": {
            "source": "kernels/orchestration.cpp",
            "function_name": "matmul",
            "signature": [D.IN, D.IN, D.OUT],
        },
        "incores": [{"func_id": 0, "source": "kernels/matmul.cpp", "core_type": "aic"}],
    }
    RTOL = ATOL = 1e-4  # sums of up to 128 products in float32
    CASES = [
        {"name": "whole_tiles", "config": {"block_dim": 4}, "params": {"m": 64, "k": 128, "n": 96}},
        {"name": "ragged", "config": {"block_dim": 3}, "params": {"m": 70, "k": 45, "n": 51}},
        {"name": "less_than_a_tile", "params": {"m": 5, "k": 7, "n": 3}},
    ]

    def generate_args(self, params):
        m, k, n = params["m"], params["k"], params["n"]
        return TaskArgsBuilder(
            Tensor("a", np.random.standard_normal((m, k)).astype(np.float32)),
            Tensor("b", np.random.standard_normal((k, n)).astype(np.float32)),
            Tensor("c", np.full((m, n), np.nan, np.float32)),
        )

    def compute_golden(self, args, params):
        args.c[:] = args.a.astype(np.float64) @ args.b.astype(np.float64)


if __name__ == "__main__":
    SceneTestCase.run_module(__name__)
