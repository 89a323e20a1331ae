// SPDX-License-Identifier: Apache-2.0
#include "plugin/ort/op_row.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "plugin/ort/kernel_info.h"
#include "plugin/ort/node_kernel.h"
#include "plugin/ort/ort_status.h"
#include "plugin/ort/ort_worker_pool.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::ort {
namespace {

constexpr int kNoEndVersion = 0x7fffffff;
constexpr char kLogFunction[] = "Compute";

const OpRow& RowOf(const CustomOp* self) { return *static_cast<const OpRow*>(self); }

// What the host keeps of a node.
struct HostedKernel {
  HostedKernel(const OpRow& row, NodeSpec node)
      : row(row), spec(std::move(node)), kernel(row.op, spec, ForcedKernel(row)) {}

  static std::string ForcedKernel(const OpRow& row) {
    const auto forced = row.settings.force_kernel.find(row.op.name());
    return forced == row.settings.force_kernel.end() ? "" : forced->second;
  }

  const OpRow& row;
  const NodeSpec spec;
  NodeKernel kernel;
  std::atomic<bool> told_of_copies{false};
};

// A call, as it is served by the host.
class HostedCall final : public CallHost {
 public:
  HostedCall(HostedKernel& node, KernelContext* context)
      : node_(node), api_(node.row.api), context_(context) {}

  absl::StatusOr<std::vector<TensorArg>> Inputs() const {
    std::vector<TensorArg> inputs(node_.spec.inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (node_.spec.inputs[i].dtype == DataType::kUndefined) continue;
      const Value* value = nullptr;
      PF_RETURN_IF_ERROR(FromOrtStatus(api_, kKernelContextGetInput(api_, context_, i, &value)));
      PF_ASSIGN_OR_RETURN(inputs[i], ArgOf(api_, value));
    }
    return inputs;
  }

  absl::StatusOr<void*> Output(int output, const std::vector<int64_t>& dims) override {
    Value* value = nullptr;
    PF_RETURN_IF_ERROR(FromOrtStatus(
        api_, kKernelContextGetOutput(api_, context_, output, dims.data(), dims.size(), &value)));
    if (value == nullptr) {
      return absl::InternalError(StrCat(Place(), ": the host gives no memory for output ", output));
    }
    void* data = nullptr;
    PF_RETURN_IF_ERROR(FromOrtStatus(api_, kGetTensorMutableData(api_, value, &data)));
    return data;
  }

  void KernelChosen(std::string_view kernel) override {
    if (node_.row.settings.log != LogChoice::kKernels) return;
    Warn(StrCat(Place(), ": kernel ", kernel.empty() ? "decomposition" : kernel));
  }

  void Copied(int input, int output, int64_t bytes) override {
    if (node_.row.settings.log == LogChoice::kNothing) return;
    copied_.push_back({input, output, bytes});
  }

  // Once for a node, whatever is copied later.
  void TellOfCopies() {
    if (copied_.empty() || node_.told_of_copies.exchange(true)) return;
    for (const auto& [input, output, bytes] : copied_) {
      Warn(StrCat(node_.spec.inputs[input].name, " is copied at each step (", SizeText(bytes),
                  "): bind it to ", node_.spec.outputs[output].name));
    }
  }

 private:
  struct Copy {
    int input, output;
    int64_t bytes;
  };

  // node "layers.0.attn" (pagefuse.PagedAttention)
  std::string Place() const {
    const std::string& domain = node_.row.op.domain();
    return StrCat("node \"", node_.spec.name, "\" (", domain, domain.empty() ? "" : ".",
                  node_.row.op.name(), ")");
  }

  static std::string SizeText(int64_t bytes) {
    constexpr int64_t kUnit = 1024;
    if (bytes >= kUnit * kUnit) return StrCat(bytes / (kUnit * kUnit), " MiB");
    return bytes >= kUnit ? StrCat(bytes / kUnit, " KiB") : StrCat(bytes, " bytes");
  }

  void Warn(const std::string& message) const {
    const Logger* logger = nullptr;
    Status* status = kKernelContextGetLogger(api_, context_, &logger);
    if (status == nullptr) {
      status = kLoggerLogMessage(api_, logger, LoggingLevel::kWarning, message.c_str(), kLogFile, 0,
                                 kLogFunction);
    }
    if (status != nullptr) kReleaseStatus(api_, status);
  }

  HostedKernel& node_;
  Api* api_;
  KernelContext* context_;
  std::vector<Copy> copied_;
};

absl::Status Compute(HostedKernel& node, KernelContext* context) {
  OrtWorkerPool pool(node.row.api, context);
  const ScopedWorkerPool scope(&pool);
  HostedCall call(node, context);
  PF_ASSIGN_OR_RETURN(std::vector<TensorArg> inputs, call.Inputs());
  PF_RETURN_IF_ERROR(node.kernel.Run(std::move(inputs), call));
  call.TellOfCopies();
  return absl::OkStatus();
}

Status* CreateKernel(const CustomOp* self, Api* api, const KernelInfo* info, void** kernel) {
  return Answer(api, [&]() -> absl::Status {
    const OpRow& row = RowOf(self);
    PF_ASSIGN_OR_RETURN(NodeSpec spec, ReadNodeSpec(api, info, row.op));
    *kernel = new HostedKernel(row, std::move(spec));
    return absl::OkStatus();
  });
}

Status* ComputeNode(void* kernel, KernelContext* context) {
  auto& node = *static_cast<HostedKernel*>(kernel);
  return Answer(node.row.api, [&] { return Compute(node, context); });
}

Characteristic CharacteristicOf(const Port& port) {
  switch (port.kind) {
    case PortKind::kRequired:
      return Characteristic::kRequired;
    case PortKind::kOptional:
      return Characteristic::kOptional;
    case PortKind::kVariadic:
      return Characteristic::kVariadic;
  }
  return Characteristic::kRequired;
}

}  // namespace

OpRow::OpRow(Api* api, const OpDef& op, const TypeRow& types, const Settings& settings,
             bool infers_shapes)
    : CustomOp(), api(api), op(op), types(types), settings(settings) {
  version = kApiVersion;
  name = [](const CustomOp* self) { return RowOf(self).op.name().c_str(); };
  execution_provider = [](const CustomOp*) -> const char* { return nullptr; };
  input_type = [](const CustomOp* self, size_t i) {
    return static_cast<ElementType>(RowOf(self).types.inputs[i].value_or(DataType::kUndefined));
  };
  input_count = [](const CustomOp* self) { return RowOf(self).op.inputs().size(); };
  output_type = [](const CustomOp* self, size_t i) {
    return static_cast<ElementType>(RowOf(self).types.outputs[i]);
  };
  output_count = [](const CustomOp* self) { return RowOf(self).op.outputs().size(); };
  destroy = [](void* kernel) { delete static_cast<HostedKernel*>(kernel); };
  input_characteristic = [](const CustomOp* self, size_t i) {
    return CharacteristicOf(RowOf(self).op.inputs()[i]);
  };
  output_characteristic = [](const CustomOp* self, size_t i) {
    return CharacteristicOf(RowOf(self).op.outputs()[i]);
  };
  input_memory_type = [](const CustomOp*, size_t) { return kDefaultMemoryType; };
  const auto one = [](const CustomOp*) { return 1; };
  variadic_input_min_arity = variadic_output_min_arity = one;
  variadic_input_homogeneity = variadic_output_homogeneity = one;
  create_kernel_v2 = CreateKernel;
  compute_v2 = ComputeNode;
  if (infers_shapes) infer_output_shapes = InferRowShapes;
  // A file that imports an older version of the domain than an op is of runs the body.
  start_version = [](const CustomOp* self) {
    const OpDef& op = RowOf(self).op;
    return op.domain().empty() ? 1 : op.since();  // ops of ai.onnx are in a domain of ours
  };
  end_version = [](const CustomOp*) { return kNoEndVersion; };
}

}  // namespace pagefuse::ort
