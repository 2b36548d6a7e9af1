#include "optest_scene.h"

namespace {
enum Kernel { kAdd = 0, kHalve = 1 };

struct Device {
    optest::Tensor row, received;
    int last;  // the task that all further ones of the device come after
};

int64_t first(int64_t size, int chunk, int count) { return size * chunk / count; }
}  // namespace

extern "C" void ring_allreduce(optest::Graph& graph, const optest::Arguments& args) {
    const int n = graph.devices();
    const int64_t size = args[0].size(1);
    std::vector<Device> devices(n);
    for (int d = 0; d < n; ++d) {
        Device& device = devices[d];
        const optest::Tensor from = args[0].part(d * size, size);
        device.row = graph.allocate(d, from);
        device.received = graph.allocate(d, from);
        device.last = graph.copy(device.row, from);
    }
    const auto chunk = [&](const optest::Tensor& of, int number) {
        const int64_t begin = first(size, number % n, n);
        return of.part(begin, first(size, number % n + 1, n) - begin);
    };
    for (int round = 0; round < static_cast<int>(args.scalar(0)); ++round) {
        for (int step = 0; step < 2 * (n - 1); ++step) {
            const std::vector<Device> before = devices;  // a step waits for the one before, not for its neighbour's
            for (int d = 0; d < n; ++d) {
                const int to = (d + 1) % n;
                const optest::Task task{.device = to, .after = {before[d].last, before[to].last}};
                if (step < n - 1) {  // first device d gets the whole sum of chunk d + 1,
                    const int number = d - step + n;
                    graph.copy(chunk(before[to].received, number), chunk(before[d].row, number), task);
                    devices[to].last =
                        graph.submit(kAdd, {chunk(before[to].received, number), chunk(before[to].row, number)}, {.device = to});
                } else {  // then that goes around
                    const int number = d - step + 2 * n;
                    devices[to].last = graph.copy(chunk(before[to].row, number), chunk(before[d].row, number), task);
                }
            }
        }
        const std::vector<Device> before = devices;
        for (int d = 0; d < n; ++d)  // the neighbour has read what is now overwritten
            devices[d].last =
                graph.submit(kHalve, {before[d].row}, {.device = d, .after = {before[d].last, before[(d + 1) % n].last}});
    }
    for (int d = 0; d < n; ++d) graph.copy(args[1].part(d * size, size), devices[d].row);
}
