// SPDX-License-Identifier: Apache-2.0
// Runs a plan step by step: shapes first, then memory, then the kernel. What follows from shapes is
// computed once for runs with the same shapes (shape_plan.h).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/evaluate/run_limits.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/shape_context.h"
#include "pagefuse/runtime/execution_plan.h"
#include "pagefuse/runtime/shape_plan.h"
#include "pagefuse/runtime/step_call.h"

namespace pagefuse {

// When and how long a step ran, for profiles.
struct StepTiming {
  int step = 0;
  double start_us = 0;  // since the run began
  double duration_us = 0;
};

// Keeps the arena between runs: sizes grow to the largest seen and the plan of offsets is made anew
// when they do. Keeps outputs too, and gives their memory to the next run once nobody else holds them:
// large memory that is new costs as much as a product, page by page. What it takes of the host
// counts against the thread's budget (ir/tensor/memory_budget.h), ResourceExhausted naming the node where
// that is used up. Of a plan with a device, steps of the device are queued there, and the run returns
// before they are done; outputs may lie on the device (ExecutionPlan::values). Not thread-safe.
class Executor {
 public:
  explicit Executor(ExecutionPlan plan, const RunLimits& limits = {});

  // `feeds` by position among the graph inputs; an undefined one takes the input's initialiser.
  // `bound` holds memory for outputs, by position, undefined where the executor allocates. Feeds
  // were checked before; InvalidArgument for one in blocks where the plan does not take them so, or in
  // the host's memory where the device updates it.
  absl::StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& feeds,
                                          const std::vector<Tensor>& bound);

  // Does what the host does for a Run of these feeds, while the device may be at the run before, and asks for the
  // copy of what the device reads. The next Run has to be of the same feeds, in whose memory nothing changed but
  // the inputs `later` (by position), or ForgetPrepared is called before it. Nothing is done where the run before
  // was another one than this will be; what is wrong Run tells.
  void Prepare(const std::vector<Tensor>& feeds, const std::vector<size_t>& later);
  void ForgetPrepared() { prepared_.reset(); }

  const ExecutionPlan& plan() const { return plan_; }
  // Of a value of the plan in the last run.
  int64_t BytesOf(int value) const;
  // By position among the graph inputs: the node of the plan's DenseReader, or null.
  const Node* dense_reader(size_t input) const { return dense_readers_[input]; }
  int64_t arena_bytes() const { return host_.plan.arena_bytes + device_.plan.arena_bytes; }
  // Copies between host and device in the last run, those of inputs counted as one.
  int64_t device_copies() const { return device_copies_; }
  // Shapes that were inferred, and pieces of memory that were allocated, by all runs.
  int64_t inferences() const { return inferences_; }
  int64_t allocations() const { return allocations_; }
  // Runs that were asked of the device at once (SessionOptions::device_graphs), of all.
  int64_t replays() const { return replays_; }
  // And of these, that were prepared.
  int64_t prepared_runs() const { return prepared_runs_; }
  // What the device took for runs that it was waited for (TakeDeviceTime), from the first to the last of each.
  double device_seconds() const { return device_seconds_; }
  // Once all is done that the last run asked of the device.
  absl::Status TakeDeviceTime();
  // What the last run took for its outputs.
  int64_t output_bytes() const { return output_bytes_; }
  int64_t packed_bytes() const;
  void set_profile(bool on) { profile_ = on; }
  void set_device_graphs(bool on) { device_graphs_ = on; }
  // The first node on the host that reads what the device computed, so that runs cannot be asked for at once;
  // null if none does.
  const Node* capture_breaker() const;
  // Why the last run that could have been asked for at once was not; empty where none.
  const std::string& capture_miss() const { return capture_miss_; }
  // Once all is done that the last run asked of the device: what the op's check says of an index that a kernel
  // found out of range.
  absl::Status CheckIndexErrors();
  const std::vector<StepTiming>& timings() const { return timings_; }

 private:
  class StepPlacer;
  // Memory for values between steps, of the host or of the device.
  struct Arena {
    MemoryPlan plan;
    std::shared_ptr<Buffer> memory;
  };
  // What Prepare has done for the next run.
  struct Prepared {
    std::vector<const void*> feeds;  // where they lie
    std::vector<int> uploads;        // of uploads_: what comes later
    std::vector<int> checked;        // of CapturedRun::checked: steps whose check looks at that
  };
  absl::Status TakeFeeds(const std::vector<Tensor>& feeds);
  bool IsPrepared(const std::vector<Tensor>& feeds);
  std::optional<Prepared> FollowLater(const std::vector<size_t>& later) const;
  absl::StatusOr<bool> PrepareFrom(const std::vector<Tensor>& feeds);
  absl::Status UploadLater();
  absl::StatusOr<std::vector<Tensor>> RunSteps();
  absl::Status RunRange(int begin, int end);
  void LookAtDevicePart();
  void ForgetContents(const PlannedStep& step, KernelArgs& args) const;
  template <class Visit>
  bool VisitHostData(const Visit& visit) const;
  absl::Status RunDevicePart();
  absl::Status TimeDevicePart();
  absl::Status RunAndSettle();
  absl::StatusOr<bool> Capture();
  absl::StatusOr<bool> FitsCapture(const CapturedRun& captured);
  bool FitsMemory(const CapturedRun& captured);
  absl::StatusOr<bool> FitsValues(const CapturedRun& captured);
  absl::StatusOr<bool> FitsOutputs(const CapturedRun& captured);
  void KeepBindings(CapturedRun& captured) const;
  int64_t MemoryChanges() const;
  absl::Status IndexErrorAt(const DeviceIndexError& error) const;
  std::optional<int64_t> TokenOfElement(const DeviceIndexError& error) const;
  // That something would have to be fetched while work is captured.
  absl::Status CheckNotCapturing(const Node& node) const;
  absl::Status RunStep(int index);
  absl::Status RunCopy(int index);
  absl::Status RunDeviceStep(const PlannedStep& step, KernelArgs& args);
  absl::Status CheckStepValues(const PlannedStep& step, const KernelArgs& args);
  absl::Status UploadInputs();
  Allocator& MemoryOf(const PlannedValue& value) const;
  RunValues& values() { return shape_->values; }
  absl::Status InferOutputs(const PlannedStep& step, StepCall& call);
  absl::Status InferFrom(const PlannedStep& step, std::vector<Tensor> contents, StepCall& call);
  // Adds contents that inference read and only the device has; whether there were any.
  absl::StatusOr<bool> DownloadContents(const PlannedStep& step, const StepCall& call,
                                        const ContentsRead& read, std::vector<Tensor>& contents);
  absl::Status TakeInferred(const PlannedStep& step, int out, const ShapeContext::Known& inferred,
                            StepCall& call);
  absl::Status PlaceOutput(const PlannedStep& step, int out, TensorArg& output, int64_t bytes);
  absl::Status PlaceNewOutput(const PlannedStep& step, int out, TensorArg& output, int64_t bytes);
  absl::StatusOr<void*> StorageMemory(int storage, int64_t bytes);
  absl::StatusOr<Tensor> OutputMemory(int value, const TensorArg& output);
  absl::Status RunDecomposition(const PlannedStep& step, KernelArgs& args);
  absl::Status RunBodies(int index);
  absl::Status KeepProduced(const PlannedStep& step, int out, Tensor tensor);
  absl::StatusOr<std::vector<Tensor>> CollectOutputs();
  absl::Status TakeTimings();
  void TakeTokenRows();
  void LetGo();
  void LearnSizes();
  void LearnSizesOf(Arena& arena, Allocator& allocator, bool on_device);

  ExecutionPlan plan_;
  RunLimits limits_;
  int64_t own_body_runs_ = 0;
  int64_t* body_runs_ = &own_body_runs_;  // of the whole run: graphs in graphs count together
  Arena host_, device_;
  std::vector<int> uploads_;          // by value: graph inputs on the device
  std::vector<std::byte> upload_;     // their bytes
  std::shared_ptr<Buffer> uploaded_;  // and on the device
  int64_t output_bytes_ = 0;
  int64_t device_copies_ = 0, inferences_ = 0, allocations_ = 0;
  std::vector<std::shared_ptr<Buffer>> last_outputs_;           // by value: memory of the last run
  std::vector<std::vector<std::unique_ptr<Executor>>> bodies_;  // by step
  std::vector<const Node*> dense_readers_;                      // by input
  std::vector<int> output_positions_;    // by value: where it is a graph output first, or -1
  std::vector<std::vector<int>> dying_;  // by step: storages that nothing reads after it
  ShapePlans shapes_;
  ShapePlan* shape_ = nullptr;  // of the run in progress, or the last one
  int logit_rows_ = -1;    // the input that says which tokens logits are wanted of, by position
  int query_starts_ = -1;  // the input that says which tokens sequences have, by position
  // Of the run in progress.
  std::optional<TokenRows> tokens_;
  std::vector<Tensor> owners_;  // by value: feeds and outputs, what keeps external memory alive
  std::vector<std::shared_ptr<Buffer>> spill_;  // storages that the arena has no room for yet
  const std::vector<Tensor>* bound_ = nullptr;
  Scratch scratch_, device_scratch_;
  bool profile_ = false;
  bool grew_ = false;
  std::vector<StepTiming> timings_;
  std::vector<std::pair<int, int>> moments_;         // of timings: the device's, or -1
  std::chrono::steady_clock::time_point run_began_;  // of a profile
  // Of a plan with a device.
  bool device_graphs_ = false;
  bool captures_ = false;  // in progress
  std::optional<Prepared> prepared_;
  int breaker_ = -1;  // the step of capture_breaker
  std::string capture_miss_;
  std::vector<int> watched_;  // steps of the device that look at what the host has, constants apart
  int64_t memory_changes_ = 0, replays_ = 0, prepared_runs_ = 0;
  std::shared_ptr<Buffer> index_error_;  // a DeviceIndexError
  int first_moment_ = -1, last_moment_ = -1;
  double device_seconds_ = 0;
};

}  // namespace pagefuse
