// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/custom_ops/hosted_kernel.h"

#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/placing_kernel.h"
#include "pagefuse/plugin/custom_ops/hosted_inference.h"
#include "pagefuse/plugin/custom_ops/library_call.h"
#include "pagefuse/plugin/custom_ops/objects.h"
#include "pagefuse/plugin/custom_ops/table.h"

namespace pagefuse::ort {
namespace {

std::vector<DataType> TypesOf(const Node& node) {
  std::vector<DataType> types;
  for (const pagefuse::Value* input : node.inputs()) {
    types.push_back(input == nullptr ? DataType::kUndefined : input->dtype());
  }
  return types;
}

absl::Status Supports(const Row& row, const KernelQuery& query) {
  if (!row.refusal.empty()) return absl::UnimplementedError(row.refusal);
  if (!IsInVersion(row, query.opset)) {
    return absl::UnimplementedError(StrCat("is of versions ", row.start_version, " to ",
                                           row.end_version, " of its domain, not ", query.opset));
  }
  if (row.Takes(TypesOf(*query.node))) return absl::OkStatus();
  return absl::UnimplementedError(StrCat("takes ", row.InputTypes()));
}

// A kernel of the library's for one node.
class HostedKernel final : public PlacingKernel {
 public:
  HostedKernel(std::shared_ptr<const Row> row, const std::string& library, const Node& node)
      : row_(std::move(row)), info_{node, {library}, {}} {}
  ~HostedKernel() override {
    if (kernel_ != nullptr) row_->op->destroy(kernel_);
  }

  absl::Status Create(const std::vector<const Tensor*>& constants) {
    for (const Tensor* constant : constants) {
      const bool given = constant != nullptr && constant->dtype() != DataType::kString;
      info_.constants.push_back(given ? std::optional(Value::Of(*constant)) : std::nullopt);
    }
    Api* api = HostApiBase().get_api(kNewestVersion);
    const absl::Status status = CallLibrary([&]() -> Status* {
      if (row_->create_kernel_v2 != nullptr) {
        return row_->create_kernel_v2(row_->op, api, &info_, &kernel_);
      }
      kernel_ = row_->op->create_kernel(row_->op, api, &info_);
      return nullptr;
    });
    return Placed(status);
  }

  absl::Status Run(KernelArgs& args, OutputPlacer& placer) override {
    KernelContext context{args, placer, info_.logger, {}, {}};
    for (const TensorArg& input : args.inputs) context.inputs.push_back({input});
    context.outputs.resize(args.outputs.size());
    const absl::Status status = CallLibrary([&]() -> Status* {
      if (row_->compute_v2 != nullptr) return row_->compute_v2(kernel_, &context);
      row_->op->compute(kernel_, &context);
      return nullptr;
    });
    PF_RETURN_IF_ERROR(context.failed);
    PF_RETURN_IF_ERROR(Placed(status));
    for (size_t i = 0; i < context.outputs.size(); ++i) {
      if (context.outputs[i] || args.node->output(static_cast<int>(i)) == nullptr) continue;
      return Placed(absl::AbortedError(StrCat("it gave no output ", i)));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Placed(const absl::Status& status) const {
    return AtPlace(info_.node.Description(), AtPlace(info_.logger.library, status));
  }

  const std::shared_ptr<const Row> row_;
  KernelInfo info_;
  void* kernel_ = nullptr;
};

}  // namespace

Kernel HostedRow(std::shared_ptr<const Row> row, const std::string& library,
                 const std::string& name) {
  Kernel kernel;
  kernel.name = name;
  kernel.supports = [row](const KernelQuery& query) { return Supports(*row, query); };
  kernel.prepare =
      [row, library](const PrepareArgs& args) -> absl::StatusOr<std::unique_ptr<KernelState>> {
    auto hosted = std::make_unique<HostedKernel>(row, library, *args.query.node);
    PF_RETURN_IF_ERROR(hosted->Create(args.constants));
    return hosted;
  };
  kernel.run = [](KernelArgs& args) {
    return absl::UnimplementedError(StrCat(args.node->Description(),
                                           ": its kernel tells the shapes of its outputs itself, "
                                           "which is not possible here"));
  };
  return kernel;
}

}  // namespace pagefuse::ort
