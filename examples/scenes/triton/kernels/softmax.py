import triton
import triton.language as tl


@triton.jit
def softmax_of_row(x, y, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    offset = tl.program_id(0) * columns + at
    value = tl.load(x + offset, mask=at < columns, other=-float("inf"))
    e = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + offset, e / tl.sum(e, axis=0), mask=at < columns)


def softmax(args):
    rows, columns = args.x.shape
    softmax_of_row[(rows,)](args.x, args.y, columns, BLOCK=triton.next_power_of_2(columns))
