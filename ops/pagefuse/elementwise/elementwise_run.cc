// Runs a chain tile by tile: every node's own kernel, on a part of its operands.
#include <cstddef>
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

// What all threads share.
struct ChainCall {
  const Chain& chain;
  const TilePlan& plan;
  const std::vector<TensorArg>& operands;  // inputs, then constants
  const TensorArg& output;
  int64_t opset;
  std::vector<int64_t> slots;
};

// The arguments of the chain's kernels, made once a thread: from tile to tile only addresses
// change, and dims where a tile is smaller.
class TileRunner {
 public:
  TileRunner(const ChainCall& call, std::byte* scratch)
      : call_(call), data_(call.chain.values.size()), offsets_(call.operands.size()) {
    const Chain& chain = call.chain;
    for (size_t k = 0; k < call.operands.size(); ++k) repeats_.push_back(call.plan.RepeatsOf(k));
    for (const ChainStep& step : chain.steps) {
      repeats_.push_back(RepeatsOf(step));
      KernelArgs args;
      args.node = step.node;
      args.opset = call.opset;
      for (int input : step.inputs) args.inputs.push_back({TypeOf(input), {}, nullptr});
      args.outputs.push_back({TypeOf(step.output), {}, nullptr});
      args_.push_back(std::move(args));
    }
    for (size_t v = 0; v < data_.size(); ++v) {
      const int slot = chain.values[v].slot;
      if (slot >= 0) data_[v] = scratch + call.slots[slot];
    }
  }

  absl::Status Run(int64_t index) {
    const TilePlan::Tile tile = call_.plan.At(index);
    if (tile.rows != rows_) SetDims(tile);
    call_.plan.OffsetsAt(tile, offsets_);
    for (size_t k = 0; k < offsets_.size(); ++k) {
      data_[k] = AddressOf(call_.operands[k], offsets_[k]);
    }
    const Chain& chain = call_.chain;
    data_[chain.result] = AddressOf(call_.output, tile.position);
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
    return value < 0 ? DataType::kUndefined : call_.chain.values[value].dtype;
  }

  static std::byte* AddressOf(const TensorArg& tensor, int64_t element) {
    return tensor.as<std::byte>() + element * (BitWidth(tensor.dtype) / 8);
  }

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
      const ChainStep& step = call_.chain.steps[i];
      for (size_t k = 0; k < step.inputs.size(); ++k) {
        if (step.inputs[k] < 0) continue;
        args_[i].inputs[k].dims = call_.plan.DimsOf(tile, repeats_[step.inputs[k]]);
      }
      args_[i].outputs[0].dims = call_.plan.DimsOf(tile, repeats_[step.output]);
    }
  }

  const ChainCall& call_;
  std::vector<std::vector<bool>> repeats_;  // by value: axes along which it is repeated
  std::vector<KernelArgs> args_;            // by step
  std::vector<void*> data_;                 // by value
  std::vector<int64_t> offsets_;            // by operand
  int64_t rows_ = -1;
};

}  // namespace

absl::Status RunChain(KernelArgs& args) {
  const auto& chain = *static_cast<const Chain*>(args.state);
  const TensorArg& output = args.output(0);
  if (output.size() == 0) return absl::OkStatus();
  std::vector<TensorArg> operands = args.inputs;
  operands.insert(operands.end(), chain.constants.begin(), chain.constants.end());
  std::vector<std::vector<int64_t>> dims;
  for (const TensorArg& operand : operands) dims.push_back(operand.dims);
  const TilePlan plan(output.dims, dims);
  const ChainCall call{chain,  plan,       operands,
                       output, args.opset, SlotOffsets(chain, plan.tile_size())};
  const int64_t bytes = call.slots.back();
  auto* scratch =
      static_cast<std::byte*>(args.scratch->Get(static_cast<size_t>(MaxWorkers() * bytes)));
  PerWorker<std::optional<TileRunner>> runners;
  absl::Mutex mutex;
  absl::Status first_error;
  // As many bytes as the nodes' kernels count.
  const auto tile_bytes = plan.tile_size() * 4 * static_cast<int64_t>(chain.steps.size());
  ParallelFor(plan.num_tiles(), tile_bytes, [&](int64_t begin, int64_t end, int worker) {
    std::optional<TileRunner>& runner = runners[worker];
    if (!runner) runner.emplace(call, scratch + worker * bytes);
    absl::Status status;
    for (int64_t i = begin; i < end && status.ok(); ++i) status = runner->Run(i);
    if (status.ok()) return;
    const absl::MutexLock lock(&mutex);
    first_error.Update(status);
  });
  return first_error;
}

}  // namespace pagefuse::pagefuse_ops
