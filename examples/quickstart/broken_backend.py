"""A backend with three bugs, to see what optest says about them.

OPTEST_PLUGINS=broken_backend optest run --plan plan.yaml --backend broken
"""

import numpy as np

from optest.backends import BackendDriver, Fault, Reason, backend_manager


class BrokenBackend(BackendDriver):
    kind = "demo"
    name = "broken"

    def run(self, case, inputs):
        match case.descriptor.name:
            case "matmul":
                a, b = (np.asarray(x, np.float32) for x in inputs)
                a, b = a[..., :-1], b[..., :-1, :]  # forgets the last product
                return ((a @ b).astype(inputs[0].dtype),)
            case "relu":
                return (np.where(inputs[0] > 0, inputs[0], 0).astype(inputs[0].dtype),)  # loses NaN
            case "softmax":
                e = np.exp(np.asarray(inputs[0], np.float32))  # no shift: overflows
                return ((e / e.sum(axis=case.attributes["dim"], keepdims=True)).astype(inputs[0].dtype),)
        raise Fault(Reason.UNSUPPORTED, f"{case.descriptor.name} has no kernel")


backend_manager.register(BrokenBackend())
