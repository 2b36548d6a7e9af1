// Included before the source of every scene in CUDA: copies tensors to the GPU, between guard zones, and back.
#include <cuda_runtime.h>

#include <memory>
#include <stdexcept>

#include "optest_call.h"

namespace optest_cuda {

inline void require(cudaError_t status, const char* what) {
    if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

}  // namespace optest_cuda

extern "C" int optest_scene_run(optest::Call* call) {
    using namespace optest_cuda;
    using namespace optest;
    try {
        require(cudaSetDevice(call->devices), "cudaSetDevice");
        std::vector<std::unique_ptr<void, cudaError_t (*)(void*)>> memory;
        std::vector<std::vector<unsigned char>> held;
        Arguments args{{call->tensors, call->tensors + call->tensor_count},
                       {call->scalars, call->scalars + call->scalar_count}};
        for (Tensor& each : args.tensors) {
            held.emplace_back(each.bytes + 2 * kGuard, kPattern);
            std::memcpy(held.back().data() + kGuard, each.data, each.bytes);
            void* data = nullptr;
            require(cudaMalloc(&data, held.back().size()), "cudaMalloc");
            memory.emplace_back(data, cudaFree);
            require(cudaMemcpy(data, held.back().data(), held.back().size(), cudaMemcpyHostToDevice), "cudaMemcpy");
            each.data = static_cast<char*>(data) + kGuard, each.device = 0;
        }
        reinterpret_cast<void (*)(const optest::Arguments&)>(call->orchestration)(args);
        require(cudaGetLastError(), "launch");
        require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        for (int place = 0; place < call->tensor_count; ++place) {
            std::vector<unsigned char>& bytes = held[place];
            require(cudaMemcpy(bytes.data(), memory[place].get(), bytes.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
            std::memcpy(call->tensors[place].data, bytes.data() + kGuard, call->tensors[place].bytes);
            for (int64_t i = 0; i < kGuard; ++i)
                if (bytes[i] != kPattern || bytes[bytes.size() - 1 - i] != kPattern)
                    return call->ends(kOutOfBounds, "memory was written beyond tensor " + std::to_string(place));
        }
        return kDone;
    } catch (const std::exception& error) {
        return call->ends(cudaDeviceSynchronize() == cudaSuccess ? kRaised : kDeviceLost, error.what());
    }
}
