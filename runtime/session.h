// SPDX-License-Identifier: Apache-2.0
// A session: a loaded, optimised and planned model that runs on named feeds.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/base/device.h"
#include "pagefuse/base/parallel.h"
#include "pagefuse/base/thread_pool.h"
#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ir/tensor/memory_budget.h"
#include "pagefuse/ops/evaluate/run_limits.h"
#include "pagefuse/ops/kernels/formats/weight_format.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {

// More threads than any machine has cores are a mistake, and too many end the process.
inline constexpr int kMaxThreads = ThreadPool::kMaxSize;

struct SessionOptions {
  // Rewrites before planning. `optimise` false runs the graph as it came, after the passes that
  // take away large copies and passes over memory (LoadPasses in pipeline.h), unless `load_passes`
  // is false too.
  bool optimise = true;
  bool load_passes = true;
  PipelineOptions pipeline = {};
  RunLimits limits = {};
  // Bytes that the session may hold at one time: packed weights, the arena, tensors between nodes,
  // what Loops and Scans gather, outputs as long as somebody holds them, and the cache of an
  // engine. The weights as they were loaded and what the caller feeds are not of it. A run that
  // would need more ends in ResourceExhausted naming the node. 0: four fifths of what the machine,
  // or the control group that the process is in, has, less what the process holds already.
  int64_t max_memory_bytes = 0;
  // Load: files of weights are mapped, and must keep their length meanwhile (ir/onnx/onnx_io.h); false:
  // they are read into memory.
  bool map_files = true;
  // Threads that work on one run, its caller included: 1 starts none. 0 leaves it to the thread
  // that calls Run: by default it uses as many as the process may have CPUs (UsableCpus).
  int num_threads = 0;
  // A host's threads in place of ours; then num_threads counts for nothing. Outlives the session.
  WorkerPool* workers = nullptr;
  // Where kernels run that it has (ops/cuda/cuda.h opens one); other nodes, and all of them where it is
  // null, run on the host. One session has a device at a time.
  std::shared_ptr<DeviceContext> device = nullptr;
  // What a run asks of the device is captured the second time that inputs have these shapes, and asked for
  // at once from then on, where no node on the host reads what the device computed. Results are the same.
  bool device_graphs = true;
  std::map<std::string, std::string> force_kernel = {};  // op name -> kernel name
  bool profile = false;
  // Files of ops, rules and kernels that are loaded first (loader/load_plugin.h), for the process.
  std::vector<std::string> plugins = {};
};

// Lets weights have that format: it is written into the session's graph (options of the pass
// quantise-weights).
void UseWeights(const WeightFormat& format, SessionOptions& options);

// A run's statistics, in bytes and counts.
struct SessionStats {
  int64_t weight_bytes = 0;         // constants, mapped or owned
  int64_t packed_weight_bytes = 0;  // copies made for kernels
  int64_t arena_bytes = 0;          // the largest arena so far
  int64_t output_bytes = 0;         // outputs of the last run that its caller gave no memory for
  int64_t memory_bytes = 0;         // held now, of what max_memory_bytes bounds
  int64_t nodes = 0;
  int64_t inferences = 0;   // of shapes, by all runs; a run like the last one makes none
  int64_t allocations = 0;  // of memory between nodes and for outputs, by all runs
  // With a device: nodes that run on the host, but for sizes and for what reads nothing that the device computed.
  int64_t host_steps = 0;
  int64_t device_copies = 0;  // between host and device in the last run
  int64_t replays = 0;        // runs that were asked of the device at once, of all, and
  int64_t prepared =
      0;  // of these, what the host does was done while it was at the one before (Prepare)
  double device_seconds =
      0;  // between the first and the last that runs asked of the device, of all
};

// One executed node of the last run.
struct NodeProfile {
  const Node* node = nullptr;
  std::string kernel;
  double start_us = 0;  // since the run began
  double duration_us = 0;
};

// Thread-safe: runs of one session take turns, those of different sessions go on at once.
class Session {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Load(const std::string& path,
                                                       const SessionOptions& options = {});
  // Takes the model over.
  static absl::StatusOr<std::unique_ptr<Session>> Create(Model model,
                                                         const SessionOptions& options = {});
  ~Session();

  const Model& model() const;
  // What the session's memory counts against (SessionOptions::max_memory_bytes).
  const std::shared_ptr<MemoryBudget>& memory() const;
  // The threads that its runs are shared among; null: those of the caller.
  WorkerPool* workers() const;
  const PipelineReport& report() const;
  SessionStats stats() const;
  // One line a node: node, kernel, and why better ones were refused; with a device also copies, with
  // the bytes that the last run copied.
  std::string KernelReport() const;
  // A line: the device, nodes and copies of the last run beside it, and how often runs were asked for at once
  // or which node on the host costs that. Empty where there is none.
  std::string DeviceReport() const;
  // Null: the host.
  const std::shared_ptr<DeviceContext>& device() const;

  // Whether the device updates this input of the graph in its own memory: feeds that lie there are updated,
  // others are copied there and back.
  bool IsOnDevice(std::string_view input) const;

  // The first node that reads this input of the graph, or an output in its memory, and takes a dense
  // tensor only; null if a tensor of blocks (Tensor::Blocks) may be fed to it.
  const Node* DenseReader(std::string_view input) const;

  // Times of the last run, in order; empty unless SessionOptions::profile.
  std::vector<NodeProfile> Profile() const;

  // Runs on feeds by input name and returns `fetches` (empty: all outputs, in order). Feeds are
  // checked against the inputs' types and shapes, symbols included: InvalidArgument naming input,
  // expected and found. Nothing is kept of the feeds. An output that aliases an input (a KV cache)
  // is that feed's memory, which must be writable. An output's memory stays with the session
  // and serves later runs, once no Tensor holds it any more. FailedPrecondition if a mapped file of
  // weights has become shorter since it was loaded.
  absl::StatusOr<std::vector<Tensor>> Run(const std::map<std::string, Tensor>& feeds,
                                          const std::vector<std::string>& fetches = {});
  // The same, but that what the device computed stays in its memory, and that it may compute still: what is
  // asked of the device behind it sees the results. Settle waits for them, and has the errors that the device
  // found; without it the next run has.
  absl::StatusOr<std::vector<Tensor>> RunInPlace(const std::map<std::string, Tensor>& feeds,
                                                 const std::vector<std::string>& fetches = {});
  absl::Status Settle();
  // With a device: does what the host does for a run in place of these feeds, while the device may be at the last
  // one, and asks for the copy of what it reads; errors are those of feeds. Then RunPrepared is that run, where
  // nothing changed in the memory of the feeds but the contents of the inputs `later`. The feeds are kept until then,
  // or until another run.
  absl::Status Prepare(const std::map<std::string, Tensor>& feeds,
                       const std::vector<std::string>& later);
  absl::StatusOr<std::vector<Tensor>> RunPrepared(const std::vector<std::string>& fetches = {});

  // Makes the first Run with feeds of these shapes cost what later ones cost: runs on them until
  // memory between nodes and in kernels has its size, weights and code are in memory and tables are
  // made. Nothing that the caller owns is written: caches that the graph updates in place are stood
  // in for by zeros, bound outputs are left alone. Results of later runs are the same with and
  // without. An input that is neither fed nor bound is zeros, if the other feeds tell its shape;
  // feed what must be consistent (starts, lengths, tables). Errors are those of Run, and
  // InvalidArgument for an input whose shape is not known. With a device nothing is run: caches there are
  // no zeros that cost nothing.
  absl::Status WarmUp(const std::map<std::string, Tensor>& feeds);

  // Binds memory to an input or output for all later runs; a bound output is written in place and
  // must have the run's shape.
  absl::Status Bind(std::string_view name, Tensor tensor);
  absl::Status Unbind(std::string_view name);

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagefuse
