// Comes before the source of every scene in CUDA: tensors onto the device, between guard zones, and back.
#include <cuda_runtime.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "optest_scene.h"

namespace optest_cuda {

constexpr int64_t kGuard = 1 << 16;
constexpr int kPattern = 0xA5;

inline void require(cudaError_t status, const char* what) {
    if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

struct Memory {
    char* bytes = nullptr;
    explicit Memory(int64_t size) { require(cudaMalloc(reinterpret_cast<void**>(&bytes), size), "cudaMalloc"); }
    Memory(Memory&& other) noexcept : bytes(other.bytes) { other.bytes = nullptr; }
    ~Memory() { cudaFree(bytes); }
};

struct CallTensor {
    void* data;
    int64_t bytes, elements;
    const int64_t* shape;
    int32_t rank;
};

}  // namespace optest_cuda

// The status is 0, or with a message 2 for memory that was written, 3 for a device that is lost to this process, 1 for
// the rest.
extern "C" int optest_scene_run(const optest_cuda::CallTensor* tensors, int tensor_count, const double* scalars, int scalar_count,
                                void (*launch)(const optest::Arguments&), int device, char* message, int64_t message_bytes) {
    using namespace optest_cuda;
    int status = 0;
    std::string text;
    try {
        require(cudaSetDevice(device), "cudaSetDevice");
        std::vector<Memory> memory;
        optest::Arguments args;
        args.scalars.assign(scalars, scalars + scalar_count);
        for (int place = 0; place < tensor_count; ++place) {
            const CallTensor& each = tensors[place];
            memory.emplace_back(each.bytes + 2 * kGuard);
            char* data = memory.back().bytes;
            require(cudaMemset(data, kPattern, each.bytes + 2 * kGuard), "cudaMemset");
            require(cudaMemcpy(data + kGuard, each.data, each.bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
            args.tensors.push_back({data + kGuard, each.bytes, each.elements, 0, each.rank, each.shape});
        }
        launch(args);
        require(cudaGetLastError(), "launch");
        require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        for (int place = 0; place < tensor_count; ++place) {
            const int64_t bytes = tensors[place].bytes;
            std::vector<unsigned char> held(bytes + 2 * kGuard);
            require(cudaMemcpy(held.data(), memory[place].bytes, held.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
            std::memcpy(tensors[place].data, held.data() + kGuard, bytes);
            for (int64_t i = 0; i < kGuard; ++i)
                if (held[kGuard - 1 - i] != kPattern || held[kGuard + bytes + i] != kPattern)
                    status = 2, text = "memory was written beyond tensor " + std::to_string(place);
        }
    } catch (const std::exception& error) {
        status = cudaDeviceSynchronize() == cudaSuccess ? 1 : 3, text = error.what();
    }
    std::strncpy(message, text.c_str(), message_bytes - 1);
    message[message_bytes - 1] = 0;
    return status;
}
