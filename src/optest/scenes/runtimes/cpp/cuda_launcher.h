// Comes before the source of every scene in CUDA: tensors onto the GPU, between guard zones, and back.
#include <cuda_runtime.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "optest_scene.h"

namespace optest_cuda {

constexpr int64_t kGuard = 1 << 16;
constexpr unsigned char kPattern = 0xA5;

struct CallTensor {
    void* data;
    int64_t bytes, elements;
    const int64_t* shape;
    int32_t rank;
};

inline void require(cudaError_t status, const char* what) {
    if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

}  // namespace optest_cuda

// The status is 0, or with a message 2 for memory that was written, 3 for a GPU that is lost to this process, 1 for the
// rest.
extern "C" int optest_scene_run(const optest_cuda::CallTensor* tensors, int tensor_count, const double* scalars,
                                int scalar_count, void (*launch)(const optest::Arguments&), int device, char* message,
                                int64_t message_bytes) {
    using namespace optest_cuda;
    int status = 0;
    std::string text;
    try {
        require(cudaSetDevice(device), "cudaSetDevice");
        std::vector<std::unique_ptr<void, cudaError_t (*)(void*)>> memory;
        std::vector<std::vector<unsigned char>> held;
        optest::Arguments args;
        args.scalars.assign(scalars, scalars + scalar_count);
        for (int place = 0; place < tensor_count; ++place) {
            const CallTensor& each = tensors[place];
            held.emplace_back(each.bytes + 2 * kGuard, kPattern);
            std::memcpy(held.back().data() + kGuard, each.data, each.bytes);
            void* data = nullptr;
            require(cudaMalloc(&data, held.back().size()), "cudaMalloc");
            memory.emplace_back(data, cudaFree);
            require(cudaMemcpy(data, held.back().data(), held.back().size(), cudaMemcpyHostToDevice), "cudaMemcpy");
            void* first = static_cast<char*>(data) + kGuard;
            args.tensors.push_back({first, each.bytes, each.elements, 0, each.rank, each.shape});
        }
        launch(args);
        require(cudaGetLastError(), "launch");
        require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        for (int place = 0; place < tensor_count; ++place) {
            std::vector<unsigned char>& bytes = held[place];
            require(cudaMemcpy(bytes.data(), memory[place].get(), bytes.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
            std::memcpy(tensors[place].data, bytes.data() + kGuard, tensors[place].bytes);
            for (int64_t i = 0; i < kGuard; ++i)
                if (bytes[i] != kPattern || bytes[bytes.size() - 1 - i] != kPattern)
                    status = 2, text = "memory was written beyond tensor " + std::to_string(place);
        }
    } catch (const std::exception& error) {
        status = cudaDeviceSynchronize() == cudaSuccess ? 1 : 3, text = error.what();
    }
    std::strncpy(message, text.c_str(), message_bytes - 1);
    message[message_bytes - 1] = 0;
    return status;
}
