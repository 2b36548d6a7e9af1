// Interface between optest and its runtimes in C++: `optest_scene_run(Call*)` runs a scene once.
#pragma once

#include <cstring>
#include <string>

#include "optest_scene.h"

namespace optest {

enum Status : int { kDone, kRaised, kOutOfBounds, kNoOrder, kDeviceLost };

constexpr int64_t kGuard = 1 << 16;  // a tile or a row behind the end falls into it
constexpr unsigned char kPattern = 0xA5;

// A kernel, with a bit for each of its tensors that it writes.
struct KernelEntry {
    void* function;
    uint64_t writes;
    int32_t func_id;
};

// The time of one block of a task.
struct Span {
    int32_t task, func_id, block, device, row;
    double began_s, ended_s;
};

struct Call {
    const Tensor* tensors;
    const double* scalars;
    const KernelEntry* kernels;
    void* orchestration;
    void (*observer)(int task, int func_id, int when, int place, const Tensor* tensor);
    Span* spans;
    int32_t tensor_count, scalar_count, kernel_count;
    int32_t span_count;  // capacity of `spans`, then the number written
    int32_t devices;     // their number in a simulation, else the device id
    int32_t threads, blocks, level;
    char message[4096];

    int ends(Status status, const std::string& text) {
        std::strncpy(message, text.c_str(), sizeof message - 1);
        return status;
    }
};

}  // namespace optest
