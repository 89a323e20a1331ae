// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/session.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/absent_data.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/tensor/machine_memory.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/similar_names.h"
#include "pagefuse/passes/normalise/normalise.h"
#include "pagefuse/plugin/loader/load_plugin.h"
#include "pagefuse/runtime/executor.h"
#include "pagefuse/runtime/feeds.h"
#include "pagefuse/runtime/run_on_device.h"
#include "pagefuse/runtime/step_error.h"

namespace pagefuse {
namespace {

int64_t HostSteps(const ExecutionPlan& plan) {
  if (plan.device == nullptr) return 0;
  return std::count_if(plan.steps.begin() + plan.device_begin, plan.steps.end(),
                       [](const PlannedStep& step) {
                         return step.copy == StepCopy::kNone && !step.on_device &&
                                !step.only_views && !step.follows_from_shapes;
                       });
}

int64_t WeightBytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Value* value : graph.initializers()) {
    // What only parts of are read counts by its parts.
    const bool unread = value->uses().empty() && !value->is_output();
    if (!unread) bytes += value->initializer()->byte_size();
  }
  return bytes;
}

// What initialisers of the model lie in that nobody may write: mapped files, each once.
std::vector<std::shared_ptr<Buffer>> FilesOf(Model& model) {
  std::vector<std::shared_ptr<Buffer>> files;
  absl::flat_hash_set<const Buffer*> seen;
  for (const GraphScope& scope : AllGraphs(model)) {
    for (const Value* value : scope.graph->initializers()) {
      const std::shared_ptr<Buffer>& buffer = value->initializer()->buffer();
      if (buffer == nullptr || buffer->writable() || !seen.insert(buffer.get()).second) continue;
      files.push_back(buffer);
    }
  }
  return files;
}

absl::Status CheckIntact(const std::vector<std::shared_ptr<Buffer>>& files) {
  for (const std::shared_ptr<Buffer>& file : files) PF_RETURN_IF_ERROR(file->CheckIntact());
  return absl::OkStatus();
}

// A kernel that is asked for must be one of the op, in some version.
absl::Status CheckForcedKernels(const std::map<std::string, std::string>& kernels) {
  for (const auto& [name, kernel] : kernels) {
    std::vector<std::string> names, ops;
    bool found = false;
    for (const OpDef* op : OpRegistry::Global().ops()) {
      ops.push_back(op->name());
      if (op->name() != name) continue;
      for (const Kernel& known : op->kernels()) {
        names.push_back(known.name);
        found = found || known.name == kernel;
      }
    }
    if (found) continue;
    return absl::InvalidArgumentError(
        names.empty() ? StrCat("kernel \"", kernel, "\" of \"", name, "\": no such op has kernels",
                               SimilarNames(name, ops))
                      : StrCat("op \"", name, "\" has no kernel \"", kernel, "\"; it has ",
                               absl::StrJoin(names, ", ")));
  }
  return absl::OkStatus();
}

// Weights may be stored otherwise in a graph that stays as it came, and its caches in pages.
void UseStorageOptions(const PipelineOptions& from, PipelineOptions& to) {
  const auto use = [&](const char* pass, const char* asks, const char* with) {
    if (!from.options.contains(asks)) return;
    to.passes.emplace_back(pass);
    for (const char* option : {asks, with}) {
      const auto it = from.options.find(option);
      if (it != from.options.end()) to.options.insert(*it);
    }
  };
  use("quantise-weights", "weights", "weights_exclude");
  use("plan-cache-pages", "cache_pages", "cache_pages");
}

}  // namespace

struct Session::Impl {
  // What checks of a feed depend on.
  struct FeedForm {
    DataType dtype;
    std::vector<int64_t> dims;
  };

  Model model;
  SessionOptions options;
  std::unique_ptr<ThreadPool> threads;
  WorkerPool* workers = nullptr;  // those of the caller of Run, if null
  std::mutex turn;                // who has it runs, or changes what runs need
  PipelineReport report;
  std::unique_ptr<Executor> executor;
  std::vector<bool>
      updated_inputs;    // by position among the graph inputs: a run writes into its memory
  bool is_open = false;  // a run in place was not waited for
  std::map<std::string, Tensor, std::less<>> bound;
  std::shared_ptr<MemoryBudget> memory;
  std::vector<std::shared_ptr<Buffer>> files;  // that weights are mapped from
  int64_t weight_bytes = 0;
  std::vector<FeedForm> checked;                // by input: those that were found right last
  std::optional<std::vector<Tensor>> prepared;  // feeds of the next run

  absl::StatusOr<std::vector<Tensor>> FeedsInOrder(const std::map<std::string, Tensor>& feeds);
  absl::Status CheckFeeds(const std::vector<Tensor>& ordered);
  std::vector<Tensor> BoundOutputs() const;
  // Adds zeros for the inputs that have no tensor.
  absl::Status AddZeroFeeds(std::map<std::string, Tensor>& feeds) const;
  std::vector<bool> UpdatedInputs() const;
  // Of a run in place.
  absl::Status SettleLast();
  bool IsOnDevice(std::string_view input) const;
  // Runs on feeds and gives outputs that the host reads, wherever the plan has them. Feeds of inputs
  // that the device updates lie on it or on the host.
  absl::StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& feeds,
                                          const std::vector<Tensor>& outputs,
                                          const std::vector<size_t>& wanted, OutputsIn outputs_in);
  absl::StatusOr<std::vector<Tensor>> TakeFeeds(const std::map<std::string, Tensor>* feeds);
  absl::StatusOr<std::vector<Tensor>> Run(const std::map<std::string, Tensor>* feeds,
                                          const std::vector<std::string>& fetches,
                                          OutputsIn outputs_in);
};

void UseWeights(const WeightFormat& format, SessionOptions& options) {
  std::map<std::string, std::string>& passes = options.pipeline.options;
  if (!format.changes_nothing()) {
    passes["weights"] = format.name;
    return;
  }
  for (const char* option : {"weights", "weights_exclude"}) passes.erase(option);
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

absl::StatusOr<std::unique_ptr<Session>> Session::Load(const std::string& path,
                                                       const SessionOptions& options) {
  PF_ASSIGN_OR_RETURN(Model model, LoadModel(path, {.map_files = options.map_files}));
  return Create(std::move(model), options);
}

absl::StatusOr<std::unique_ptr<Session>> Session::Create(Model model,
                                                         const SessionOptions& options) {
  for (const std::string& path : options.plugins) PF_RETURN_IF_ERROR(LoadPlugin(path).status());
  PF_RETURN_IF_ERROR(CheckForcedKernels(options.force_kernel));
  if (options.num_threads < 0 || options.num_threads > ThreadPool::kMaxSize) {
    return absl::InvalidArgumentError(
        StrCat("num_threads: expected 0 to ", ThreadPool::kMaxSize, ", got ", options.num_threads));
  }
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->workers = options.workers;
  if (options.workers == nullptr && options.num_threads > 0) {
    impl->threads = std::make_unique<ThreadPool>(options.num_threads);
    impl->workers = impl->threads.get();
  }
  const ScopedWorkerPool pool_scope(impl->workers);
  impl->memory = std::make_shared<MemoryBudget>(
      options.max_memory_bytes > 0 ? options.max_memory_bytes : DefaultMemoryBytes());
  const MemoryBudgetScope memory_scope(impl->memory);
  PF_RETURN_IF_ERROR(CheckIntact(FilesOf(model)));
  PF_RETURN_IF_ERROR(InlineAllFunctions(model));
  if (options.optimise) {
    PF_ASSIGN_OR_RETURN(impl->report, RunPipeline(model, options.pipeline));
  } else if (options.load_passes) {
    PipelineOptions loading = {.passes = LoadPasses(), .disabled = options.pipeline.disabled};
    UseStorageOptions(options.pipeline, loading);
    PF_ASSIGN_OR_RETURN(impl->report, RunPipeline(model, loading));
  }
  PF_RETURN_IF_ERROR(CheckDataPresent(model));
  PF_RETURN_IF_ERROR(VerifyOps(model));
  PF_RETURN_IF_ERROR(InferShapes(model));
  impl->model = std::move(model);
  impl->weight_bytes = WeightBytes(*impl->model.graph);
  PF_ASSIGN_OR_RETURN(
      ExecutionPlan plan,
      MakePlan(impl->model, {.force_kernel = options.force_kernel, .device = options.device}));
  impl->files = FilesOf(impl->model);
  impl->executor = std::make_unique<Executor>(std::move(plan), options.limits);
  impl->updated_inputs = impl->UpdatedInputs();
  impl->executor->set_profile(options.profile);
  impl->executor->set_device_graphs(options.device_graphs);
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

const Model& Session::model() const { return impl_->model; }
const std::shared_ptr<MemoryBudget>& Session::memory() const { return impl_->memory; }
WorkerPool* Session::workers() const { return impl_->workers; }
const PipelineReport& Session::report() const { return impl_->report; }

SessionStats Session::stats() const {
  const std::lock_guard turn(impl_->turn);
  return {.weight_bytes = impl_->weight_bytes,
          .packed_weight_bytes = impl_->executor->packed_bytes(),
          .arena_bytes = impl_->executor->arena_bytes(),
          .output_bytes = impl_->executor->output_bytes(),
          .memory_bytes = impl_->memory->used(),
          .nodes = impl_->model.graph->num_nodes(),
          .inferences = impl_->executor->inferences(),
          .allocations = impl_->executor->allocations(),
          .host_steps = HostSteps(impl_->executor->plan()),
          .device_copies = impl_->executor->device_copies(),
          .replays = impl_->executor->replays(),
          .prepared = impl_->executor->prepared_runs(),
          .device_seconds = impl_->executor->device_seconds()};
}

const std::shared_ptr<DeviceContext>& Session::device() const { return impl_->options.device; }

std::string Session::KernelReport() const {
  std::string text;
  for (const PlannedStep& step : impl_->executor->plan().steps) {
    StrAppend(&text, step.node->Description(), ": ", NameOfKernel(step));
    if (step.copy != StepCopy::kNone) {
      StrAppend(&text, " of \"", impl_->executor->plan().values[step.inputs[0]].value->name(),
                "\", ", impl_->executor->BytesOf(step.inputs[0]), " bytes\n");
      continue;
    }
    if (impl_->options.device != nullptr && !step.on_device) text += " on the host";
    if (!step.device_refusals.empty()) {
      StrAppend(&text, " (", absl::StrJoin(step.device_refusals, "; "), ")");
    }
    if (!step.refusals.empty()) {
      StrAppend(&text, " (", absl::StrJoin(step.refusals, "; "), ")");
    }
    StrAppend(&text, "\n");
  }
  return text;
}

std::string Session::DeviceReport() const {
  if (impl_->options.device == nullptr) return "";
  const SessionStats counts = stats();
  std::string text = StrCat(impl_->options.device->name(), ", ", counts.host_steps, " of ",
                            counts.nodes, " nodes on the host, ", counts.device_copies,
                            counts.device_copies == 1 ? " copy" : " copies", " in the last step");
  if (const Node* breaker = impl_->executor->capture_breaker()) {
    return StrCat(text, "; no graphs of steps, as ", breaker->Description(),
                  " runs on the host behind others on the device");
  }
  StrAppend(&text, "; ", counts.replays, " steps as graphs");
  const std::string& miss = impl_->executor->capture_miss();
  if (!miss.empty()) StrAppend(&text, ", the last one not: ", miss);
  return text;
}

bool Session::IsOnDevice(std::string_view input) const { return impl_->IsOnDevice(input); }

const Node* Session::DenseReader(std::string_view input) const {
  const std::vector<Value*>& inputs = impl_->model.graph->inputs();
  const auto found = std::ranges::find(inputs, input, [](const Value* v) { return v->name(); });
  if (found == inputs.end()) return nullptr;
  return impl_->executor->dense_reader(found - inputs.begin());
}

std::vector<NodeProfile> Session::Profile() const {
  const std::lock_guard turn(impl_->turn);
  std::vector<NodeProfile> profile;
  for (const StepTiming& timing : impl_->executor->timings()) {
    const PlannedStep& step = impl_->executor->plan().steps[timing.step];
    profile.push_back({.node = step.node,
                       .kernel = NameOfKernel(step),
                       .start_us = timing.start_us,
                       .duration_us = timing.duration_us});
  }
  return profile;
}

absl::StatusOr<std::vector<Tensor>> Session::Impl::FeedsInOrder(
    const std::map<std::string, Tensor>& feeds) {
  std::vector<Tensor> ordered;
  size_t used = 0;
  for (const Value* input : model.graph->inputs()) {
    Tensor feed;
    if (auto it = feeds.find(input->name()); it != feeds.end()) {
      feed = it->second;
      ++used;
    } else if (auto found = bound.find(input->name()); found != bound.end()) {
      feed = found->second;
    }
    if (!feed.defined() && !input->initializer()) {
      return absl::InvalidArgumentError(StrCat("input \"", input->name(), "\" was not fed"));
    }
    ordered.push_back(std::move(feed));
  }
  PF_RETURN_IF_ERROR(CheckFeeds(ordered));
  if (used == feeds.size()) return ordered;
  for (const auto& [name, tensor] : feeds) {
    const Value* value = model.graph->FindValue(name);
    if (value && value->is_input()) continue;
    std::vector<std::string> names;
    for (const Value* input : model.graph->inputs()) names.push_back(input->name());
    return absl::InvalidArgumentError(
        StrCat("\"", name, "\" is fed but is no input; inputs are ", absl::StrJoin(names, ", ")));
  }
  return ordered;
}

absl::Status Session::Impl::CheckFeeds(const std::vector<Tensor>& ordered) {
  const auto same = [](const FeedForm& form, const Tensor& feed) {
    return form.dtype == feed.dtype() && form.dims == feed.dims();
  };
  if (std::equal(checked.begin(), checked.end(), ordered.begin(), ordered.end(), same)) {
    return absl::OkStatus();
  }
  PF_RETURN_IF_ERROR(pagefuse::CheckFeeds(model.graph->inputs(), ordered));
  checked.clear();
  for (const Tensor& feed : ordered) checked.push_back({feed.dtype(), feed.dims()});
  return absl::OkStatus();
}

std::vector<Tensor> Session::Impl::BoundOutputs() const {
  std::vector<Tensor> tensors;
  for (const Value* output : model.graph->outputs()) {
    auto it = bound.find(output->name());
    tensors.push_back(it == bound.end() ? Tensor() : it->second);
  }
  return tensors;
}

absl::StatusOr<std::vector<Tensor>> Session::Run(const std::map<std::string, Tensor>& feeds,
                                                 const std::vector<std::string>& fetches) {
  return impl_->Run(&feeds, fetches, OutputsIn::kHost);
}

absl::Status Session::Settle() {
  const std::lock_guard lock(impl_->turn);
  return impl_->SettleLast();
}

absl::Status Session::Impl::SettleLast() {
  return std::exchange(is_open, false) ? pagefuse::Settle(*executor) : absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> Session::RunInPlace(const std::map<std::string, Tensor>& feeds,
                                                        const std::vector<std::string>& fetches) {
  return impl_->Run(&feeds, fetches, OutputsIn::kTheirPlace);
}

absl::StatusOr<std::vector<Tensor>> Session::RunPrepared(const std::vector<std::string>& fetches) {
  return impl_->Run(nullptr, fetches, OutputsIn::kTheirPlace);
}

absl::Status Session::Prepare(const std::map<std::string, Tensor>& feeds,
                              const std::vector<std::string>& later) {
  const std::lock_guard lock(impl_->turn);
  const ScopedWorkerPool pool_scope(impl_->workers);
  const MemoryBudgetScope memory_scope(impl_->memory);
  impl_->prepared.reset();
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> ordered, impl_->FeedsInOrder(feeds));
  std::vector<size_t> places;
  const std::vector<Value*>& inputs = impl_->model.graph->inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (std::ranges::count(later, inputs[i]->name()) > 0) places.push_back(i);
  }
  impl_->executor->Prepare(ordered, places);
  impl_->prepared = std::move(ordered);
  return absl::OkStatus();
}

// The feeds of a run, which are those that were prepared where `feeds` is null.
absl::StatusOr<std::vector<Tensor>> Session::Impl::TakeFeeds(
    const std::map<std::string, Tensor>* feeds) {
  std::optional<std::vector<Tensor>> kept = std::exchange(prepared, std::nullopt);
  if (feeds != nullptr) {
    executor->ForgetPrepared();
    return FeedsInOrder(*feeds);
  }
  if (kept) return *std::move(kept);
  return absl::FailedPreconditionError("a run that was prepared: expected Prepare before it");
}

absl::StatusOr<std::vector<Tensor>> Session::Impl::Run(const std::map<std::string, Tensor>* feeds,
                                                       const std::vector<std::string>& fetches,
                                                       OutputsIn outputs_in) {
  const std::vector<Value*>& graph_outputs = model.graph->outputs();
  std::vector<size_t> wanted;
  for (const std::string& fetch : fetches) {
    size_t i = 0;
    while (i < graph_outputs.size() && graph_outputs[i]->name() != fetch) ++i;
    if (i == graph_outputs.size()) {
      return absl::NotFoundError(StrCat("\"", fetch, "\" is no output of the graph"));
    }
    wanted.push_back(i);
  }
  const std::lock_guard lock(turn);
  const ScopedWorkerPool pool_scope(workers);
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> ordered, TakeFeeds(feeds));
  PF_RETURN_IF_ERROR(CheckIntact(files));
  const MemoryBudgetScope memory_scope(memory);
  if (fetches.empty()) {
    wanted.resize(graph_outputs.size());
    std::iota(wanted.begin(), wanted.end(), size_t{0});
  }
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> outputs,
                      Run(ordered, BoundOutputs(), wanted, outputs_in));
  if (fetches.empty()) return outputs;
  std::vector<Tensor> fetched;
  for (size_t i : wanted) fetched.push_back(outputs[i]);
  return fetched;
}

bool Session::Impl::IsOnDevice(std::string_view input) const {
  const ExecutionPlan& plan = executor->plan();
  return std::ranges::any_of(plan.inputs, [&](int index) {
    return plan.values[index].on_device && plan.values[index].value->name() == input;
  });
}

absl::StatusOr<std::vector<Tensor>> Session::Impl::Run(const std::vector<Tensor>& feeds,
                                                       const std::vector<Tensor>& outputs,
                                                       const std::vector<size_t>& wanted,
                                                       OutputsIn outputs_in) {
  if (options.device == nullptr) return executor->Run(feeds, outputs);
  PF_RETURN_IF_ERROR(WithoutToken(SettleLast()));
  is_open = true;
  auto results = RunOnDevice(*executor, updated_inputs, feeds, outputs, wanted, outputs_in);
  // What was asked for before the error is no later run's.
  if (!results.ok()) SettleLast().IgnoreError();
  if (outputs_in == OutputsIn::kHost) is_open = false;
  return results;
}

absl::Status Session::Impl::AddZeroFeeds(std::map<std::string, Tensor>& feeds) const {
  std::map<std::string, Dim> sizes;
  std::vector<const Value*> missing;
  for (const Value* input : model.graph->inputs()) {
    const Tensor* tensor = nullptr;
    if (auto it = feeds.find(input->name()); it != feeds.end()) {
      tensor = &it->second;
    } else if (auto found = bound.find(input->name()); found != bound.end()) {
      tensor = &found->second;
    }
    if (tensor == nullptr) {
      if (!input->initializer()) missing.push_back(input);
      continue;
    }
    if (!input->shape() || input->shape()->rank() != tensor->rank()) continue;  // Run says so
    for (int axis = 0; axis < tensor->rank(); ++axis) {
      if (auto symbol = (*input->shape())[axis].symbol()) {
        sizes.try_emplace(*symbol, Dim(tensor->dims()[axis]));
      }
    }
  }
  for (const Value* input : missing) {
    const auto dims = input->shape() ? input->shape()->Substitute(sizes).constant() : std::nullopt;
    if (!dims) {
      return absl::InvalidArgumentError(StrCat(
          "input \"", input->name(), "\" was not fed, and the other feeds do not tell its shape ",
          input->shape() ? input->shape()->ToString() : "(of unknown rank)"));
    }
    PF_ASSIGN_OR_RETURN(feeds[input->name()], Tensor::Allocate(input->dtype(), *dims));
  }
  return absl::OkStatus();
}

std::vector<bool> Session::Impl::UpdatedInputs() const {
  const ExecutionPlan& plan = executor->plan();
  std::vector<int> memory_of(plan.values.size());  // the value whose memory a value has
  std::iota(memory_of.begin(), memory_of.end(), 0);
  std::vector<bool> updated(plan.values.size(), false);
  for (const PlannedStep& step : plan.steps) {
    for (size_t out = 0; out < step.outputs.size(); ++out) {
      const int in = step.shares_input[out];
      if (step.outputs[out] < 0 || in < 0) continue;
      memory_of[step.outputs[out]] = memory_of[step.inputs[in]];
      if (step.op->views().empty()) updated[memory_of[step.inputs[in]]] = true;
    }
  }
  std::vector<bool> by_input;
  for (const int input : plan.inputs) by_input.push_back(input >= 0 && updated[input]);
  return by_input;
}

absl::Status Session::WarmUp(const std::map<std::string, Tensor>& feeds) {
  const std::lock_guard turn(impl_->turn);
  const ScopedWorkerPool pool_scope(impl_->workers);
  std::map<std::string, Tensor> all = feeds;
  PF_RETURN_IF_ERROR(CheckIntact(impl_->files));
  const MemoryBudgetScope memory_scope(impl_->memory);
  PF_RETURN_IF_ERROR(impl_->AddZeroFeeds(all));
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> ordered, impl_->FeedsInOrder(all));
  for (size_t i = 0; i < ordered.size(); ++i) {
    if (!impl_->updated_inputs[i] || !ordered[i].defined()) continue;
    // Fresh pages: only the slots that the run touches take memory.
    PF_ASSIGN_OR_RETURN(ordered[i], Tensor::Allocate(ordered[i].dtype(), ordered[i].dims()));
  }
  const std::vector<Tensor> unbound(impl_->model.graph->outputs().size());
  // Caches of a device are no zeros that cost nothing: its first steps are a little slower.
  if (impl_->options.device != nullptr) return absl::OkStatus();
  // The first run learns the sizes, after which memory is laid out anew; the second touches that.
  for (int run = 0; run < 2; ++run) {
    PF_RETURN_IF_ERROR(impl_->executor->Run(ordered, unbound).status());
  }
  return absl::OkStatus();
}

absl::Status Session::Bind(std::string_view name, Tensor tensor) {
  const Value* value = impl_->model.graph->FindValue(name);
  if (!value || !(value->is_input() || value->is_output())) {
    return absl::NotFoundError(StrCat("\"", name, "\" is no input or output of the graph"));
  }
  if (value->is_output() && !value->is_input() && tensor.mutable_data() == nullptr &&
      tensor.byte_size() > 0) {
    return absl::InvalidArgumentError(StrCat("output \"", name, "\": the memory is read-only"));
  }
  const std::lock_guard turn(impl_->turn);
  impl_->bound.insert_or_assign(std::string(name), std::move(tensor));
  return absl::OkStatus();
}

absl::Status Session::Unbind(std::string_view name) {
  const std::lock_guard turn(impl_->turn);
  auto it = impl_->bound.find(name);
  if (it == impl_->bound.end()) {
    return absl::NotFoundError(StrCat("nothing is bound to \"", name, "\""));
  }
  impl_->bound.erase(it);
  return absl::OkStatus();
}

}  // namespace pagefuse
