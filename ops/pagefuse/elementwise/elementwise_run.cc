// SPDX-License-Identifier: Apache-2.0
// Runs a chain tile by tile: every node's own kernel, on a part of its operands.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/synchronization/mutex.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/pagefuse/elementwise/elementwise_chain.h"
#include "pagefuse/ops/pagefuse/elementwise/elementwise_tiles.h"

namespace pagefuse::pagefuse_ops {
namespace {

// Where the slots of one thread's scratch memory start; the last is the end of all. They are apart
// by more than a page, so that what is read does not share the low bits of its address with what
// is written.
std::vector<int64_t> SlotOffsets(const Chain& chain, int64_t elements) {
  constexpr int64_t kLine = 64;
  std::vector<int64_t> offsets = {0};
  for (const int64_t width : chain.slot_widths) {
    offsets.push_back(offsets.back() + (elements * width + kLine - 1) / kLine * kLine + kLine);
  }
  return offsets;
}

std::vector<std::vector<int64_t>> OperandDims(const Chain& chain, const KernelArgs& args) {
  std::vector<std::vector<int64_t>> dims;
  for (const TensorArg& input : args.inputs) dims.push_back(input.dims);
  for (const TensorArg& constant : chain.constants) dims.push_back(constant.dims);
  return dims;
}

// A chain cut into tiles: what follows from dims.
struct TiledChain {
  TiledChain(const Chain& of, const KernelArgs& args)
      : chain(of),
        opset(args.opset),
        plan(args.output(0).dims, OperandDims(of, args)),
        slots(SlotOffsets(of, plan.tile_size())) {}

  const Chain& chain;
  int64_t opset;
  TilePlan plan;
  std::vector<int64_t> slots;
};

// Where the operands of a call lie, inputs and then constants, and its output.
struct ChainMemory {
  std::vector<std::byte*> operands;
  std::byte* output = nullptr;
};

// The arguments of the chain's kernels, made once a thread: from tile to tile only addresses
// change, and dims where a tile is smaller.
class TileRunner {
 public:
  explicit TileRunner(const TiledChain& tiled)
      : tiled_(tiled),
        data_(tiled.chain.values.size()),
        offsets_(tiled.chain.values.size() - tiled.chain.steps.size()) {
    const Chain& chain = tiled.chain;
    for (size_t k = 0; k < offsets_.size(); ++k) repeats_.push_back(tiled.plan.RepeatsOf(k));
    for (const ChainStep& step : chain.steps) {
      repeats_.push_back(RepeatsOf(step));
      KernelArgs args;
      args.node = step.node;
      args.opset = tiled.opset;
      for (int input : step.inputs) args.inputs.push_back({TypeOf(input), {}, nullptr});
      args.outputs.push_back({TypeOf(step.output), {}, nullptr});
      args_.push_back(std::move(args));
    }
  }

  // Intermediate values go there from now on.
  void UseScratch(std::byte* scratch) {
    for (size_t v = 0; v < data_.size(); ++v) {
      const int slot = tiled_.chain.values[v].slot;
      if (slot >= 0) data_[v] = scratch + tiled_.slots[slot];
    }
  }

  absl::Status Run(int64_t index, const ChainMemory& memory) {
    const Chain& chain = tiled_.chain;
    const TilePlan::Tile tile = tiled_.plan.At(index);
    if (tile.rows != rows_) SetDims(tile);
    tiled_.plan.OffsetsAt(tile, offsets_);
    for (size_t k = 0; k < offsets_.size(); ++k) {
      data_[k] = memory.operands[k] + offsets_[k] * WidthOf(static_cast<int>(k));
    }
    data_[chain.result] = memory.output + tile.position * WidthOf(chain.result);
    for (size_t i = 0; i < args_.size(); ++i) {
      const ChainStep& step = chain.steps[i];
      for (size_t k = 0; k < step.inputs.size(); ++k) {
        if (step.inputs[k] >= 0) args_[i].inputs[k].data = data_[step.inputs[k]];
      }
      args_[i].outputs[0].data = data_[step.output];
      PF_RETURN_IF_ERROR(step.kernel->run(args_[i]));
    }
    return absl::OkStatus();
  }

 private:
  DataType TypeOf(int value) const {
    return value < 0 ? DataType::kUndefined : tiled_.chain.values[value].dtype;
  }

  int64_t WidthOf(int value) const { return BitWidth(TypeOf(value)) / 8; }

  // A result is repeated where all operands are.
  std::vector<bool> RepeatsOf(const ChainStep& step) const {
    std::vector<bool> repeats;
    for (int input : step.inputs) {
      if (input < 0) continue;
      if (repeats.empty()) repeats.assign(repeats_[input].size(), true);
      for (size_t axis = 0; axis < repeats.size(); ++axis) {
        repeats[axis] = repeats[axis] && repeats_[input][axis];
      }
    }
    return repeats;
  }

  void SetDims(const TilePlan::Tile& tile) {
    rows_ = tile.rows;
    for (size_t i = 0; i < args_.size(); ++i) {
      const ChainStep& step = tiled_.chain.steps[i];
      for (size_t k = 0; k < step.inputs.size(); ++k) {
        if (step.inputs[k] < 0) continue;
        args_[i].inputs[k].dims = tiled_.plan.DimsOf(tile, repeats_[step.inputs[k]]);
      }
      args_[i].outputs[0].dims = tiled_.plan.DimsOf(tile, repeats_[step.output]);
    }
  }

  const TiledChain& tiled_;
  std::vector<std::vector<bool>> repeats_;  // by value: axes along which it is repeated
  std::vector<KernelArgs> args_;            // by step
  std::vector<void*> data_;                 // by value
  std::vector<int64_t> offsets_;            // by operand
  int64_t rows_ = -1;
};

}  // namespace

// A chain on operands of certain dims, as often as they come in a row.
class ChainCall {
 public:
  ChainCall(const Chain& chain, const KernelArgs& args)
      : tiled_(chain, args), output_dims_(args.output(0).dims) {
    for (const TensorArg& input : args.inputs) {
      input_dims_.push_back(input.dims);
      memory_.operands.push_back(nullptr);
    }
    for (const TensorArg& constant : chain.constants) {
      memory_.operands.push_back(constant.as<std::byte>());
    }
  }

  // Whether these are its dims, and it has arguments for as many workers.
  bool Fits(const KernelArgs& args) const {
    const auto same = [](const TensorArg& arg, const std::vector<int64_t>& dims) {
      return arg.dims == dims;
    };
    return workers_ == MaxWorkers() && args.output(0).dims == output_dims_ &&
           std::ranges::equal(args.inputs, input_dims_, same);
  }

  absl::Status Run(const KernelArgs& args) {
    for (size_t k = 0; k < args.inputs.size(); ++k) {
      memory_.operands[k] = args.inputs[k].as<std::byte>();
    }
    memory_.output = args.output(0).as<std::byte>();
    const int64_t bytes = tiled_.slots.back();
    auto* scratch =
        static_cast<std::byte*>(args.scratch->Get(static_cast<size_t>(workers_ * bytes)));
    absl::Mutex mutex;
    absl::Status first_error;
    // As many bytes as the nodes' kernels count.
    const TilePlan& plan = tiled_.plan;
    const auto steps = static_cast<int64_t>(tiled_.chain.steps.size());
    ParallelFor(plan.num_tiles(), plan.tile_size() * 4 * steps,
                [&](int64_t begin, int64_t end, int worker) {
                  std::optional<TileRunner>& runner = runners_[worker];
                  if (!runner) runner.emplace(tiled_);
                  runner->UseScratch(scratch + worker * bytes);
                  absl::Status status;
                  for (int64_t i = begin; i < end && status.ok(); ++i) {
                    status = runner->Run(i, memory_);
                  }
                  if (status.ok()) return;
                  const absl::MutexLock lock(&mutex);
                  first_error.Update(status);
                });
    return first_error;
  }

 private:
  const TiledChain tiled_;
  std::vector<std::vector<int64_t>> input_dims_;
  std::vector<int64_t> output_dims_;
  ChainMemory memory_;
  const int64_t workers_ = MaxWorkers();
  PerWorker<std::optional<TileRunner>> runners_;
};

absl::Status RunChain(KernelArgs& args) {
  auto& chain = *static_cast<Chain*>(args.state);
  if (args.output(0).size() == 0) return absl::OkStatus();
  if (chain.last_call == nullptr || !chain.last_call->Fits(args)) {
    chain.last_call = std::make_shared<ChainCall>(chain, args);
  }
  return chain.last_call->Run(args);
}

}  // namespace pagefuse::pagefuse_ops
