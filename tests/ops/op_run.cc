// SPDX-License-Identifier: Apache-2.0
#include "op_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/schema/packing.h"

namespace pagefuse {
namespace {

constexpr size_t kGuard = 256;
constexpr uint8_t kGuardByte = 0xA5;
constexpr uint8_t kUnwritten = 0xCD;

// A tensor's bytes with guards before and after.
class GuardedBuffer {
 public:
  GuardedBuffer(size_t size, size_t offset, uint8_t fill) : size_(size) {
    bytes_.assign(size + 2 * kGuard + 64 + offset, kGuardByte);
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data()) + kGuard;
    start_ = kGuard + (64 - address % 64) % 64 + offset;
    std::fill_n(bytes_.begin() + start_, size, fill);
  }

  uint8_t* data() { return bytes_.data() + start_; }
  size_t size() const { return size_; }

  bool GuardsAreWhole() const {
    const auto is_guard = [](uint8_t byte) { return byte == kGuardByte; };
    return std::all_of(bytes_.begin(), bytes_.begin() + start_, is_guard) &&
           std::all_of(bytes_.begin() + start_ + size_, bytes_.end(), is_guard);
  }

 private:
  size_t size_;
  size_t start_;
  std::vector<uint8_t> bytes_;
};

// Copies the blocks of a tensor, which lie `stride` bytes apart in `from` or `to`.
void CopyBlocks(const TensorArg& arg, const uint8_t* from, int64_t from_stride, uint8_t* to,
                int64_t to_stride) {
  const int64_t count = arg.dims.empty() ? 1 : arg.dims[0];
  const int64_t bytes = ByteSize(arg.dtype, arg.dims).value_or(0) / std::max<int64_t>(count, 1);
  for (int64_t i = 0; bytes > 0 && i < count; ++i) {
    std::memcpy(to + i * to_stride, from + i * from_stride, bytes);
  }
}

// The same tensor, dense.
absl::StatusOr<Tensor> Dense(const TensorArg& arg) {
  PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(arg.dtype, arg.dims));
  const TensorArg dense{arg.dtype, arg.dims, tensor.mutable_data()};
  if (tensor.byte_size() == 0) return tensor;
  if (arg.block_stride == 0) {
    std::memcpy(tensor.mutable_data(), arg.data, tensor.byte_size());
  } else {
    CopyBlocks(arg, arg.as<const uint8_t>(), arg.block_stride, dense.as<uint8_t>(),
               dense.block_bytes());
  }
  return tensor;
}

// All buffers of one call.
struct Buffers {
  std::vector<std::unique_ptr<GuardedBuffer>> inputs;
  std::vector<std::unique_ptr<GuardedBuffer>> outputs;  // null where the memory is an input's
  std::vector<int> shared;  // by output: the input whose memory it is, or -1
};

size_t Offset(DataType type, int64_t misalignment) {
  return static_cast<size_t>(misalignment * std::max(1, BitWidth(type) / 8));
}

void FillInputs(const OpDef& op, const CaseNode& call, const RunOptions& options, Buffers& buffers,
                KernelArgs& args) {
  for (size_t i = 0; i < call.inputs().size(); ++i) {
    const Tensor& input = call.inputs()[i];
    TensorArg arg{input.dtype(), input.dims(), nullptr};
    int64_t bytes = input.byte_size();
    const bool in_blocks = i < op.inputs().size() && op.inputs()[i].in_blocks && bytes > 0;
    if (in_blocks && options.block_gap > 0) {
      arg.block_stride = arg.block_bytes() + options.block_gap;
      bytes += (arg.dims[0] - 1) * options.block_gap;
    }
    buffers.inputs.push_back(
        std::make_unique<GuardedBuffer>(bytes, Offset(arg.dtype, options.misalignment), 0));
    arg.data = buffers.inputs.back()->data();
    const auto* from = static_cast<const uint8_t*>(input.data());
    if (arg.block_stride > 0) {
      std::fill_n(arg.as<uint8_t>(), bytes, kGuardByte);
      CopyBlocks(arg, from, arg.block_stride - options.block_gap, arg.as<uint8_t>(),
                 arg.block_stride);
    } else if (bytes > 0) {
      std::memcpy(arg.data, from, bytes);
    }
    args.inputs.push_back(input.defined() ? arg : TensorArg{});
  }
}

bool IsLike(const TensorArg& input, const TensorArg& output) {
  return input.dtype == output.dtype && input.dims == output.dims;
}

// The input whose memory output `i` uses, or -1.
int SharedInput(const OpDef& op, const RunOptions& options, const KernelArgs& args, int i,
                const TensorArg& output) {
  for (const auto& [out, in] : op.aliases()) {
    if (out == i && args.input(in).present()) return in;
  }
  if (!options.in_place) return -1;
  for (const auto& [out, in] : op.in_place()) {
    if (out == i && IsLike(args.input(in), output)) return in;
  }
  // Of these ops any input will do.
  for (int in = 0; op.is_elementwise() && in < static_cast<int>(args.inputs.size()); ++in) {
    if (IsLike(args.input(in), output)) return in;
  }
  return -1;
}

absl::Status FillOutputs(const OpDef& op, CaseNode& call, const RunOptions& options,
                         Buffers& buffers, KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const std::vector<ShapeContext::Known> known, InferOutputs(op, call));
  for (int i = 0; i < call.node().num_outputs(); ++i) {
    std::optional<std::vector<int64_t>> dims;
    if (known[i].shape) dims = known[i].shape->constant();
    if (!dims) return absl::InternalError(StrCat("shape of output ", i, " is not known"));
    PF_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(known[i].dtype, *dims));
    if (bytes > int64_t{1} << 30) return absl::ResourceExhaustedError("output over 1 GiB");
    TensorArg arg{known[i].dtype, *dims, nullptr};
    buffers.shared.push_back(SharedInput(op, options, args, i, arg));
    buffers.outputs.push_back(nullptr);
    if (buffers.shared.back() >= 0) {
      arg.data = args.inputs[buffers.shared.back()].data;
      arg.block_stride = args.inputs[buffers.shared.back()].block_stride;
    } else {
      buffers.outputs.back() = std::make_unique<GuardedBuffer>(
          bytes, Offset(arg.dtype, options.misalignment), kUnwritten);
      arg.data = buffers.outputs.back()->data();
    }
    args.outputs.push_back(arg);
  }
  return absl::OkStatus();
}

// That nothing between the blocks of a tensor was written.
bool GapsAreWhole(const TensorArg& arg) {
  if (arg.block_stride == 0) return true;
  TensorArg dense = arg;
  dense.block_stride = 0;
  const int64_t bytes = dense.block_bytes();
  for (int64_t i = 0; i + 1 < arg.dims[0]; ++i) {
    const uint8_t* block = arg.as<const uint8_t>() + i * arg.block_stride;
    const auto is_guard = [](uint8_t byte) { return byte == kGuardByte; };
    if (!std::all_of(block + bytes, block + arg.block_stride, is_guard)) return false;
  }
  return true;
}

void CheckBuffers(const CaseNode& call, const Buffers& buffers, const KernelArgs& args) {
  for (size_t i = 0; i < buffers.inputs.size(); ++i) {
    EXPECT_TRUE(buffers.inputs[i]->GuardsAreWhole()) << "bytes around input " << i << " written";
    EXPECT_TRUE(GapsAreWhole(args.inputs[i])) << "bytes between blocks of input " << i;
    const bool is_output = std::count(buffers.shared.begin(), buffers.shared.end(), i) > 0;
    const Tensor& input = call.inputs()[i];
    if (is_output || input.byte_size() == 0) continue;
    EXPECT_TRUE(Dense(args.inputs[i])->IdenticalTo(input)) << "input " << i << " written";
  }
  for (size_t i = 0; i < buffers.outputs.size(); ++i) {
    if (buffers.outputs[i] == nullptr) continue;
    EXPECT_TRUE(buffers.outputs[i]->GuardsAreWhole()) << "bytes around output " << i << " written";
  }
}

// Doubles of a tensor's elements; complex ones as pairs.
std::vector<double> Decoded(const Tensor& tensor) {
  const bool is_complex =
      tensor.dtype() == DataType::kComplex64 || tensor.dtype() == DataType::kComplex128;
  DataType type = tensor.dtype();
  if (is_complex) type = type == DataType::kComplex64 ? DataType::kFloat : DataType::kDouble;
  std::vector<double> values(tensor.size() * (is_complex ? 2 : 1));
  const absl::Status status =
      DecodeToDouble(type, tensor.data(), static_cast<int64_t>(values.size()), values.data());
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

void ExpectTensorClose(const Tensor& got, const Tensor& want, Tolerance tolerance) {
  ASSERT_EQ(DataTypeName(got.dtype()), DataTypeName(want.dtype()));
  ASSERT_EQ(got.dims(), want.dims());
  if (got.IdenticalTo(want)) return;
  const std::vector<double> a = Decoded(got);
  const std::vector<double> b = Decoded(want);
  int wrong = 0;
  int different = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if ((std::isnan(a[i]) && std::isnan(b[i])) || a[i] == b[i]) continue;
    ++different;
    if (std::abs(a[i] - b[i]) <= tolerance.atol + tolerance.rtol * std::abs(b[i])) continue;
    if (++wrong <= 5) {
      ADD_FAILURE() << DataTypeName(got.dtype()) << " element " << i << " of "
                    << DimsToString(got.dims()) << ": got " << a[i] << ", want " << b[i];
    }
  }
  EXPECT_EQ(wrong, 0) << "wrong elements of " << a.size();
  if (tolerance.share == 0) return;
  const double allowed = std::max(1.0, tolerance.share * static_cast<double>(a.size()));
  EXPECT_LE(different, allowed) << "elements that differ of " << a.size();
}

}  // namespace

CaseNode::CaseNode(const OpDef& op, const OpCases& table, const OpCase& op_case)
    : opset_(op_case.opset != 0       ? op_case.opset
             : table.domain().empty() ? 28
                                      : op.since()),
      inputs_(op_case.inputs) {
  std::vector<Value*> inputs;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Tensor& tensor = inputs_[i];
    const std::string name = StrCat("in", i);
    const bool constant = std::count(op_case.constants.begin(), op_case.constants.end(), i) > 0;
    if (!tensor.defined()) {
      inputs.push_back(nullptr);
    } else if (constant) {
      inputs.push_back(graph_.AddInitializer(name, tensor));
    } else {
      inputs.push_back(graph_.AddInput(name, tensor.dtype(), Shape::FromInts(tensor.dims())));
    }
  }
  size_t count = op_case.num_outputs > 0 ? op_case.num_outputs : op_case.outputs.size();
  if (count == 0) {
    count = std::count_if(op.outputs().begin(), op.outputs().end(),
                          [](const Port& port) { return port.kind != PortKind::kOptional; });
  }
  std::vector<Value*> outputs;
  for (size_t i = 0; i < count; ++i) outputs.push_back(graph_.AddValue(StrCat("out", i)));
  node_ = graph_.AddNode(table.domain(), table.op(), std::move(inputs), std::move(outputs));
  for (const auto& [name, value] : op_case.attributes) {
    node_->SetAttribute(name, Attribute{value, "", ""});
  }
}

absl::StatusOr<std::vector<ShapeContext::Known>> InferOutputs(const OpDef& op, CaseNode& call) {
  std::vector<ShapeContext::Known> known;
  for (const Tensor& input : call.inputs()) {
    known.emplace_back();
    if (!input.defined()) continue;
    known.back() = {input.dtype(), Shape::FromInts(input.dims()), std::nullopt, &input};
  }
  ShapeContext context(call.node(), call.opset(), std::move(known));
  PF_RETURN_IF_ERROR(op.Infer(context));
  for (int i = 0; i < call.node().num_outputs(); ++i) {
    call.node().output(i)->set_dtype(context.outputs()[i].dtype);
    call.node().output(i)->set_shape(context.outputs()[i].shape);
  }
  return context.outputs();
}

absl::StatusOr<std::vector<Tensor>> RunGuarded(const OpDef& op, CaseNode& call,
                                               const RunOptions& options) {
  Buffers buffers;
  KernelArgs args;
  args.node = &call.node();
  args.opset = call.opset();
  FillInputs(op, call, options, buffers, args);
  PF_RETURN_IF_ERROR(FillOutputs(op, call, options, buffers, args));
  PF_RETURN_IF_ERROR(op.CheckValues(args));
  const KernelQuery query{&call.node(), call.opset()};
  PF_ASSIGN_OR_RETURN(const auto state, PrepareKernel(query, *options.kernel));
  Scratch scratch;
  args.state = state.get();
  args.scratch = &scratch;
  PF_RETURN_IF_ERROR(options.kernel->run(args));
  CheckBuffers(call, buffers, args);
  std::vector<Tensor> outputs;
  for (const TensorArg& arg : args.outputs) {
    PF_ASSIGN_OR_RETURN(outputs.emplace_back(), Dense(arg));
  }
  return outputs;
}

absl::StatusOr<std::vector<Tensor>> RunReference(const OpDef& op, CaseNode& call) {
  for (const Kernel& kernel : op.kernels()) {
    if (kernel.name == "reference") return RunGuarded(op, call, {.kernel = &kernel});
  }
  return EvaluateNode(call.node(), call.opset(), call.inputs(), {.decompose = true});
}

void ExpectClose(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                 const OpCases& table, const OpCase& op_case) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(StrCat("output ", i));
    const DataType type = want[i].dtype();
    const bool own = op_case.within && type == DataType::kFloat;
    ExpectTensorClose(got[i], want[i], own ? *op_case.within : table.tolerance(type));
  }
}

}  // namespace pagefuse
