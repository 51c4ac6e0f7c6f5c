// A c10d backend that runs on a CPU and looks to torch's FlightRecorderHook like one with a device of its own.
//
// Operations run one after another on the device (a thread, with gloo to move the data), and the host goes on; a
// batch of sends and receives is answered at once. The end of an operation is noticed once a second, or with the next
// operation of the group. An operation that takes longer than the timeout has the abort hooks called, once.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/extension.h>

namespace {

using namespace c10d;
using Clock = std::chrono::steady_clock;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<Work>;
using Launch = std::function<std::vector<WorkPtr>()>;

constexpr auto NOTICED_EVERY = std::chrono::seconds(1);
constexpr auto FOREVER = std::chrono::hours(24);

// An operation that was issued.
struct Operation {
  Launch launch;
  uint64_t key;
  Clock::time_point issued = Clock::now();
  std::atomic<bool> done{false};
};
using OperationPtr = std::shared_ptr<Operation>;

// What runs operations in the order in which they were issued, those of all groups of this process.
class Device {
 public:
  static Device& instance() {
    static auto* device = new Device();  // never torn down: its thread may hang in an operation
    return *device;
  }

  OperationPtr enqueue(Launch launch) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto operation = std::make_shared<Operation>();
    operation->launch = std::move(launch);
    operation->key = ++issued_;
    queue_.push_back(operation);
    changed_.notify_all();
    return operation;
  }

  // Waits, as a host does that reads the loss.
  void synchronize() {
    std::unique_lock<std::mutex> guard(mutex_);
    const auto last = issued_;
    changed_.wait(guard, [&] { return ended_ >= last; });
  }

 private:
  Device() {
    std::thread([this] { run(); }).detach();
  }

  void run() {
    std::unique_lock<std::mutex> guard(mutex_);
    while (true) {
      changed_.wait(guard, [this] { return !queue_.empty(); });
      auto operation = queue_.front();
      queue_.pop_front();
      guard.unlock();
      for (auto& work : operation->launch()) work->wait(FOREVER);
      operation->launch = nullptr;
      operation->done = true;
      guard.lock();
      ++ended_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<OperationPtr> queue_;
  uint64_t issued_ = 0, ended_ = 0;
};

// The handle of an operation: waiting for it is the device's affair, so the host goes on.
class DeviceWork : public Work {
 public:
  DeviceWork(int rank, OpType type, OperationPtr operation, Tensors outputs)
      : Work(rank, type), operation_(std::move(operation)), outputs_(std::move(outputs)) {}

  bool isCompleted() override { return operation_ == nullptr || operation_->done; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
  Tensors result() override { return outputs_; }
  uint64_t getCompletionKey() const override { return operation_ == nullptr ? 0 : operation_->key; }

 private:
  OperationPtr operation_;  // none: answered at once
  Tensors outputs_;
};

class Relay : public Backend {
 public:
  Relay(c10::intrusive_ptr<Backend> inner, std::string name, std::string completion, int64_t timeout_ms)
      : Backend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        name_(std::move(name)),
        hooked_(completion != "without"),
        notices_(completion == "late"),
        options_(c10::make_intrusive<Options>(name_, std::chrono::milliseconds(timeout_ms))) {
    if (hooked_) watchdog_ = std::thread([this] { watch(); });
  }

  ~Relay() override {
    {
      std::lock_guard<std::mutex> guard(mutex_);
      ended_ = true;
      changed_.notify_all();
    }
    if (watchdog_.joinable()) watchdog_.join();
  }

  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsCoalescing() const override { return true; }

  bool supportsAbortHooks() const override { return hooked_; }
  void registerAbortHook(int64_t id, AbortHook hook) override {
    std::lock_guard<std::mutex> guard(hooks_mutex_);
    abort_hooks_[id] = std::move(hook);
  }
  void unregisterAbortHook(int64_t id) override {
    std::lock_guard<std::mutex> guard(hooks_mutex_);
    abort_hooks_.erase(id);
  }
  bool supportsCompletionHooks() const override { return hooked_; }
  void registerCompletionHook(int64_t id, CompletionHook hook) override {
    std::lock_guard<std::mutex> guard(hooks_mutex_);
    completion_hooks_[id] = std::move(hook);
  }
  void unregisterCompletionHook(int64_t id) override {
    std::lock_guard<std::mutex> guard(hooks_mutex_);
    completion_hooks_.erase(id);
  }

  WorkPtr broadcast(Tensors& tensors, const BroadcastOptions& options) override {
    return issue(OpType::BROADCAST, tensors, [=, in = inner_]() mutable { return in->broadcast(tensors, plain(options)); });
  }
  WorkPtr allreduce(Tensors& tensors, const AllreduceOptions& options) override {
    return issue(OpType::ALLREDUCE, tensors, [=, in = inner_]() mutable { return in->allreduce(tensors, plain(options)); });
  }
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const AllgatherOptions& options) override {
    return issue(OpType::ALLGATHER, outputs.at(0), [=, in = inner_]() mutable {
      return in->allgather(outputs, inputs, plain(options));
    });
  }
  WorkPtr barrier(const BarrierOptions& options) override {
    return issue(OpType::BARRIER, {}, [=, in = inner_]() mutable { return in->barrier(plain(options)); });
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return transfer(OpType::SEND, tensors, [=, in = inner_]() mutable { return in->send(tensors, to, tag); });
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return transfer(OpType::RECV, tensors, [=, in = inner_]() mutable { return in->recv(tensors, from, tag); });
  }

  void startCoalescing() override { batching_ = true; }
  WorkPtr endCoalescing() override {
    batching_ = false;
    return enqueue(OpType::COALESCED, {}, [batch = std::exchange(batch_, {})] {
      std::vector<WorkPtr> works;
      for (auto& one : batch) works.push_back(one());
      return works;
    });
  }

 private:
  using One = std::function<WorkPtr()>;

  // The options for gloo: it must neither wait by itself nor give up.
  template <class Given>
  static Given plain(Given options) {
    options.timeout = FOREVER;
    options.asyncOp = true;
    return options;
  }

  WorkPtr issue(OpType type, Tensors outputs, One one) {
    return enqueue(type, std::move(outputs), [one = std::move(one)] { return std::vector<WorkPtr>{one()}; });
  }

  WorkPtr transfer(OpType type, Tensors tensors, One one) {
    if (!batching_) return issue(type, std::move(tensors), std::move(one));
    batch_.push_back(std::move(one));
    return c10::make_intrusive<DeviceWork>(getRank(), type, nullptr, std::move(tensors));
  }

  WorkPtr enqueue(OpType type, Tensors outputs, Launch launch) {
    notice();
    std::lock_guard<std::mutex> guard(mutex_);
    auto operation = Device::instance().enqueue(std::move(launch));
    if (hooked_) pending_.push_back(operation);
    return c10::make_intrusive<DeviceWork>(getRank(), type, operation, std::move(outputs));
  }

  void watch() {
    std::unique_lock<std::mutex> guard(mutex_);
    while (!changed_.wait_for(guard, NOTICED_EVERY, [this] { return ended_; })) {
      const bool late = !pending_.empty() && !pending_.front()->done &&
          Clock::now() - pending_.front()->issued > options_->timeout;
      guard.unlock();
      notice();
      if (late) abortOnce();
      guard.lock();
    }
  }

  // Tells of operations that have ended, in their order.
  void notice() {
    std::vector<uint64_t> found;
    {
      std::lock_guard<std::mutex> guard(mutex_);
      for (; !pending_.empty() && pending_.front()->done; pending_.pop_front()) found.push_back(pending_.front()->key);
    }
    std::lock_guard<std::mutex> guard(hooks_mutex_);
    for (auto key : found)
      for (auto& [_, hook] : completion_hooks_)
        if (notices_) hook(CompletionHookArgs{key, std::nullopt});
  }

  void abortOnce() {
    if (std::exchange(aborted_, true)) return;
    std::map<int64_t, AbortHook> hooks;
    {
      std::lock_guard<std::mutex> guard(hooks_mutex_);
      hooks = abort_hooks_;
    }
    for (auto& [_, hook] : hooks) hook();
  }

  c10::intrusive_ptr<Backend> inner_;
  const std::string name_;
  const bool hooked_, notices_;
  c10::intrusive_ptr<Options> options_;
  std::mutex mutex_, hooks_mutex_;
  std::condition_variable changed_;
  std::deque<OperationPtr> pending_;
  std::map<int64_t, AbortHook> abort_hooks_;
  std::map<int64_t, CompletionHook> completion_hooks_;
  bool batching_ = false, ended_ = false, aborted_ = false;
  std::vector<One> batch_;
  std::thread watchdog_;
};

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def(
      "relay",
      [](c10::intrusive_ptr<Backend> inner, std::string name, std::string completion, int64_t timeout_ms)
          -> c10::intrusive_ptr<Backend> {
        return c10::make_intrusive<Relay>(std::move(inner), std::move(name), std::move(completion), timeout_ms);
      });
  module.def(
      "synchronize", [] { Device::instance().synchronize(); }, py::call_guard<py::gil_scoped_release>());
}
