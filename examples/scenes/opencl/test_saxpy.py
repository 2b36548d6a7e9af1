"""y += alpha * x in OpenCL: one kernel, enqueued over all elements. oclsim is a CPU's OpenCL, opencl any other."""

import numpy as np

from optest.scenes import ArgDirection as D
from optest.scenes import Scalar, SceneTestCase, TaskArgsBuilder, Tensor, scene_test


@scene_test(level=2, runtime="opencl", platforms=["oclsim", "opencl"])
class TestSaxpy(SceneTestCase):
    CALLABLE = {
        "signature": [D.IN, D.INOUT],
        "incores": [{"source": "kernels/saxpy.cl", "function_name": "saxpy", "local_size": [64]}],
    }
    CASES = [
        {"name": "whole_groups", "params": {"size": 4096}},
        {"name": "ragged", "params": {"size": 1001}},
    ]

    def generate_args(self, params):
        size = params["size"]
        return TaskArgsBuilder(
            Tensor("x", np.random.standard_normal(size).astype(np.float32)),
            Tensor("y", np.random.standard_normal(size).astype(np.float32)),
            Scalar("alpha", 1.5),
            Scalar("size", size),
        )

    def compute_golden(self, args, params):
        args.y += args.alpha * args.x


if __name__ == "__main__":
    SceneTestCase.run_module(__name__)
