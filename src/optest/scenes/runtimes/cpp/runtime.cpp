// The simulated devices of the runtime `cpp`: every device has its own threads, which run the blocks of tasks that are
// ready. The interface at the end is C, for ctypes.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "optest_call.h"

namespace {

using optest::Arguments;
using optest::Block;
using optest::Call;
using optest::Graph;
using optest::kGuard;
using optest::kPattern;
using optest::KernelEntry;
using optest::Span;
using optest::Task;
using optest::Tensor;
using Kernel = void (*)(const Block&, const Arguments&);
using Orchestration = void (*)(Graph&, const Arguments&);

constexpr int kHost = -1;
constexpr int kCopy = -1;
constexpr int kNotANumber = 0xFF;  // content of unwritten memory
constexpr std::size_t kOrderedTasks = 8192;

struct GuardBroken : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Race : std::runtime_error {
    using std::runtime_error::runtime_error;
};

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Memory {
    std::unique_ptr<unsigned char[]> bytes;
    int64_t size;
    int device;
};

struct Node {
    int func_id;
    Arguments args;
    Task task;
    int waits_for = 0;
    std::vector<int> then;
    int next_block = 0;
    int blocks_done = 0;
};

class Run final : public Graph {
public:
    explicit Run(Call& call) : call_(call), ready_(call.devices), last_(call.devices, -1) {}

    int devices() const override { return call_.devices; }

    Tensor allocate(int device, const Tensor& like) override {
        Tensor made = like;
        made.data = allocate(device, like.bytes).data, made.device = device;
        return made;
    }

    Tensor allocate(int device, int64_t bytes) override {
        require_device(device, "allocate");
        if (bytes < 0) throw std::runtime_error("allocate: " + std::to_string(bytes) + " bytes");
        Memory memory{std::make_unique<unsigned char[]>(bytes + 2 * kGuard), bytes, device};
        std::memset(memory.bytes.get(), kPattern, bytes + 2 * kGuard);
        void* data = std::memset(memory.bytes.get() + kGuard, kNotANumber, bytes);
        memory_.push_back(std::move(memory));
        return {data, bytes, bytes, device, 0, nullptr};
    }

    int submit(int func_id, std::vector<Tensor> tensors, Task task) override {
        if (!kernel(func_id)) throw std::runtime_error("submit: no kernel has func_id " + std::to_string(func_id));
        require_device(task.device, "submit");
        for (std::size_t place = 0; place < tensors.size(); ++place) {
            const int where = tensors[place].device;
            if (where != task.device && (where != kHost || call_.level > 2))
                throw std::runtime_error("task " + std::to_string(nodes_.size()) + " runs on device " +
                                         std::to_string(task.device) + ", but its tensor " + std::to_string(place) +
                                         " is in the memory of " + name_of(where) + "; copy it first");
        }
        if (task.blocks <= 0) task.blocks = call_.blocks;
        return add(func_id, std::move(tensors), std::move(task));
    }

    int copy(const Tensor& to, const Tensor& from, Task task) override {
        if (to.bytes != from.bytes)
            throw std::runtime_error("copy: " + std::to_string(from.bytes) + " bytes into " + std::to_string(to.bytes));
        task.device = to.device != kHost ? to.device : from.device != kHost ? from.device : 0;
        task.blocks = 1;
        return add(kCopy, {to, from}, std::move(task));
    }

    void run() {
        require_order();
        for (int task = 0; task < static_cast<int>(nodes_.size()); ++task)
            if (nodes_[task].waits_for == 0) ready_[nodes_[task].task.device].push_back(task);
        left_ = static_cast<int>(nodes_.size());
        std::vector<std::thread> workers;
        for (int device = 0; device < call_.devices; ++device)
            for (int row = 0; row < call_.threads; ++row)
                workers.emplace_back([this, device, row] { work(device, row); });
        for (auto& each : workers) each.join();
        if (failure_) std::rethrow_exception(failure_);
        require_guards();
    }

    int spans = 0;

private:
    const KernelEntry* kernel(int func_id) const {
        for (const KernelEntry* each = call_.kernels; each != call_.kernels + call_.kernel_count; ++each)
            if (each->func_id == func_id) return each;
        return nullptr;
    }

    static std::string name_of(int device) {
        return device == kHost ? "the host" : "device " + std::to_string(device);
    }

    void require_device(int device, const char* who) const {
        if (device < 0 || device >= devices())
            throw std::runtime_error(std::string(who) + ": there is no device " + std::to_string(device) + " of " +
                                     std::to_string(devices()));
    }

    int add(int func_id, std::vector<Tensor> tensors, Task task) {
        const int number = static_cast<int>(nodes_.size());
        Node node;
        node.func_id = func_id;
        node.args = {std::move(tensors), task.scalars};
        node.task = std::move(task);
        std::vector<int>& after = node.task.after;
        if (after.empty() && last_[node.task.device] >= 0) after.push_back(last_[node.task.device]);
        for (int each : after) {
            if (each < 0 || each >= number)
                throw std::runtime_error("task " + std::to_string(number) + " is after task " + std::to_string(each) +
                                         ", which is none before it");
            nodes_[each].then.push_back(number);
            ++node.waits_for;
        }
        last_[node.task.device] = number;
        nodes_.push_back(std::move(node));
        return number;
    }

    // A copy and another task that touch the same bytes, one of them writing, need an order. Two kernels are not looked
    // at: which elements of their tensors they touch is unknown. Above kOrderedTasks the table would be too large.
    void require_order() const {
        struct Use {
            const char *begin, *end;
            int task, device;
            bool writes, copies;
        };
        if (nodes_.size() > kOrderedTasks) return;
        std::vector<Use> uses;
        std::vector<std::vector<bool>> before(nodes_.size(), std::vector<bool>(nodes_.size()));
        for (int task = 0; task < static_cast<int>(nodes_.size()); ++task) {
            const Node& node = nodes_[task];
            for (int each : node.task.after) {
                for (int other = 0; other < each; ++other)
                    if (before[each][other]) before[task][other] = true;
                before[task][each] = true;
            }
            const bool copies = node.func_id == kCopy;
            const uint64_t writes = copies ? 1 : kernel(node.func_id)->writes;
            for (std::size_t place = 0; place < node.args.tensors.size(); ++place) {
                const Tensor& tensor = node.args[place];
                const char* begin = tensor.as<char>();
                const bool is_written = place < 64 && (writes >> place & 1);
                uses.push_back({begin, begin + tensor.bytes, task, tensor.device, is_written, copies});
            }
        }
        std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.begin < b.begin; });
        using Found = std::tuple<int, int, int>;  // two tasks and the device of the memory
        const Found none(static_cast<int>(nodes_.size()), 0, 0);
        Found found = none;
        for (auto one = uses.begin(); one != uses.end(); ++one)
            for (auto other = one + 1; other != uses.end() && other->begin < one->end; ++other) {
                const std::pair<int, int> tasks = std::minmax(one->task, other->task);
                if (tasks.first == tasks.second || before[tasks.second][tasks.first]) continue;
                if (!(one->writes || other->writes) || !(one->copies || other->copies)) continue;
                found = std::min(found, Found(tasks.first, tasks.second, one->device));
            }
        const auto [first, second, device] = found;
        if (found != none)
            throw Race("task " + std::to_string(second) + " (" + name_of(nodes_[second]) + ") is not after task " +
                       std::to_string(first) + " (" + name_of(nodes_[first]) + "): both use the same memory of " +
                       name_of(device) + ", and one of them writes it");
    }

    static std::string name_of(const Node& node) {
        const bool copies = node.func_id == kCopy;
        return (copies ? "copy to " : "kernel " + std::to_string(node.func_id) + " on ") +
               name_of(copies ? node.args[0].device : node.task.device);
    }

    // Take blocks of ready tasks of the device until all tasks are done or one has failed.
    void work(int device, int row) {
        std::unique_lock<std::mutex> lock(mutex_);
        while (true) {
            changed_.wait(lock, [&] { return left_ == 0 || failure_ || !ready_[device].empty(); });
            if (left_ == 0 || failure_) return;
            const int task = ready_[device].front();
            Node& node = nodes_[task];
            const int block = node.next_block++;
            if (node.next_block == node.task.blocks) ready_[device].pop_front();
            if (block == 0) observe(task, node, 0);
            lock.unlock();
            const double began = now_s();
            std::exception_ptr failure;
            try {
                call(node, {block, node.task.blocks, device});
            } catch (const std::exception& error) {
                failure = std::make_exception_ptr(std::runtime_error(
                    "task " + std::to_string(task) + ", kernel " + std::to_string(node.func_id) + ", block " +
                    std::to_string(block) + " on device " + std::to_string(device) + ": " + error.what()));
            } catch (...) {
                failure = std::current_exception();
            }
            const double ended = now_s();
            lock.lock();
            if (spans < call_.span_count) call_.spans[spans++] = {task, node.func_id, block, device, row, began, ended};
            if (failure && !failure_) failure_ = failure;
            if (++node.blocks_done == node.task.blocks) finish(task, node);
            changed_.notify_all();
        }
    }

    void call(const Node& node, const Block& block) const {
        if (node.func_id == kCopy) {
            std::memcpy(node.args[0].data, node.args[1].data, node.args[0].bytes);
        } else {
            reinterpret_cast<Kernel>(kernel(node.func_id)->function)(block, node.args);
        }
    }

    void finish(int task, Node& node) {
        observe(task, node, 1);
        --left_;
        for (int each : node.then)
            if (--nodes_[each].waits_for == 0) ready_[nodes_[each].task.device].push_back(each);
    }

    void observe(int task, const Node& node, int when) const {
        for (std::size_t place = 0; call_.observer && place < node.args.tensors.size(); ++place)
            call_.observer(task, node.func_id, when, static_cast<int>(place), &node.args[place]);
    }

    // Whether the memory around every allocation is as it was.
    void require_guards() const {
        for (std::size_t number = 0; number < memory_.size(); ++number) {
            const Memory& memory = memory_[number];
            for (int64_t place = 0; place < kGuard; ++place) {
                const bool before = memory.bytes[kGuard - 1 - place] != kPattern;
                if (before || memory.bytes[kGuard + memory.size + place] != kPattern)
                    throw GuardBroken("memory was written " + std::to_string(place + before) + " bytes " +
                                            (before ? "before the start" : "behind the end") + " of allocation " +
                                            std::to_string(number) + " on device " + std::to_string(memory.device));
            }
        }
    }

    Call& call_;
    std::vector<Memory> memory_;
    std::deque<Node> nodes_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::deque<int>> ready_;
    std::vector<int> last_;
    int left_ = 0;
    std::exception_ptr failure_;
};

}  // namespace

extern "C" int optest_scene_run(Call* call) {
    try {
        Run run(*call);
        Arguments args{{call->tensors, call->tensors + call->tensor_count},
                       {call->scalars, call->scalars + call->scalar_count}};
        reinterpret_cast<Orchestration>(call->orchestration)(run, args);
        run.run();
        call->span_count = run.spans;
        return optest::kDone;
    } catch (const GuardBroken& error) {
        return call->ends(optest::kOutOfBounds, error.what());
    } catch (const Race& error) {
        return call->ends(optest::kNoOrder, error.what());
    } catch (const std::exception& error) {
        return call->ends(optest::kRaised, error.what());
    } catch (...) {
        return call->ends(optest::kRaised, "an exception that is no std::exception");
    }
}
