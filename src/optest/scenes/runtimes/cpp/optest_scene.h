// Interface for orchestration and kernels of a scene in C++.
//
//   extern "C" void kernel_entry(const optest::Block& block, const optest::Arguments& args);
//   extern "C" void FUNCTION(optest::Graph& graph, const optest::Arguments& args);
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace optest {

// A tensor in the memory of a device, or of the host (device -1). It is dense; `shape` has `rank` sizes.
struct Tensor {
    void* data;
    int64_t bytes;
    int64_t elements;
    int32_t device;
    int32_t rank;
    const int64_t* shape;
    int32_t dtype = -1;  // index of the scene's tensor with this dtype; -1: bytes

    template <class T>
    T* as() const { return static_cast<T*>(data); }

    int64_t size(int dimension) const { return shape[dimension]; }

    // `count` elements from `first` on, as a one-dimensional tensor without `shape`.
    Tensor part(int64_t first, int64_t count) const {
        const int64_t width = elements ? bytes / elements : 0;
        return {static_cast<char*>(data) + first * width, count * width, count, device, 0, nullptr, dtype};
    }
};

struct Arguments {
    std::vector<Tensor> tensors;
    std::vector<double> scalars;

    const Tensor& operator[](std::size_t place) const { return tensors.at(place); }
    double scalar(std::size_t place) const { return scalars.at(place); }
};

// The part of a task that a call of the kernel computes: block `index` of `count`, on a device.
struct Block {
    int index;
    int count;
    int device;

    // The half-open range of `total` elements that this block computes.
    int64_t begin(int64_t total) const { return total * index / count; }
    int64_t end(int64_t total) const { return total * (index + 1) / count; }
};

// How a task runs. It begins when the tasks of `after` have ended; without any, when the last one before it on its
// device has. A copy and another task that use the same memory need an order if one of them writes it; the
// `signature` in CALLABLE declares which tensors a kernel writes.
struct Task {
    int blocks = 0;   // 0: the case's config.block_dim
    int device = 0;   // of a copy: the device of its target
    std::vector<int> after;
    std::vector<double> scalars;
};

class Graph {
public:
    virtual ~Graph() = default;
    virtual int devices() const = 0;
    // Allocate a tensor on `device`, like another or of so many bytes, until the run ends; unwritten floats are NaN.
    virtual Tensor allocate(int device, const Tensor& like) = 0;
    virtual Tensor allocate(int device, int64_t bytes) = 0;
    // Both return the number of the task, for `after` of later ones.
    virtual int submit(int func_id, std::vector<Tensor> tensors, Task task = {}) = 0;
    virtual int copy(const Tensor& to, const Tensor& from, Task task = {}) = 0;
};

}  // namespace optest
