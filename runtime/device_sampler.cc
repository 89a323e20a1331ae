// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/device_sampler.h"

#include <map>
#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/kernels/rows/sample_settings.h"

namespace pagefuse {
namespace {

constexpr char kGraph[] = R"(
    <ir_version: 10, opset_import: ["" : 24, "pagefuse" : 1]>
    sample (float[r, v] logits, double[r, 7] settings, int64[r] random, int32[s] edit_starts,
            int32[e] edit_tokens, double[e] edit_bias, int32[e] edit_counts) => (int64[r] tokens) {
      tokens = pagefuse.SampleTokens (logits, settings, random, edit_starts, edit_tokens, edit_bias,
                                      edit_counts)
    })";

struct Columns {
  std::vector<double> settings;
  std::vector<int64_t> random;
  std::vector<int32_t> starts = {0}, tokens;
  std::vector<double> bias;
  std::vector<int32_t> counts;

  void Add(const DrawPlan& plan) {
    settings.insert(settings.end(),
                    {plan.settings.temperature, static_cast<double>(plan.settings.top_k),
                     plan.settings.min_p, plan.settings.top_p, plan.penalties.repetition,
                     plan.penalties.frequency, plan.penalties.presence});
    random.push_back(static_cast<int64_t>(plan.random));
    for (const auto& [token, edit] : plan.edits) {
      tokens.push_back(static_cast<int32_t>(token));
      bias.push_back(edit.bias);
      counts.push_back(static_cast<int32_t>(edit.count));
    }
    starts.push_back(static_cast<int32_t>(tokens.size()));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceSampler>> DeviceSampler::Create(
    std::shared_ptr<DeviceContext> device) {
  PF_ASSIGN_OR_RETURN(Model parsed, ParseModel(kGraph));
  auto model = std::make_unique<Model>(std::move(parsed));
  PF_RETURN_IF_ERROR(InferShapes(*model));
  PlanOptions options;
  options.device = std::move(device);
  options.device_inputs = {"logits"};
  PF_ASSIGN_OR_RETURN(ExecutionPlan plan, MakePlan(*model, options));
  if (!plan.steps.back().on_device) return nullptr;
  return std::unique_ptr<DeviceSampler>(new DeviceSampler(std::move(model), std::move(plan)));
}

absl::Status DeviceSampler::Draw(const Tensor& logits, std::span<const DrawPlan> plans) {
  tokens_ = Tensor();
  Columns columns;
  for (const DrawPlan& plan : plans) columns.Add(plan);
  const auto rows = static_cast<int64_t>(plans.size());
  const auto edits = static_cast<int64_t>(columns.tokens.size());
  std::vector<Tensor> feeds = {
      logits,
      Tensor::Of<double>({rows, kSampleSettings}, columns.settings),
      Tensor::Of<int64_t>({rows}, columns.random),
      Tensor::Of<int32_t>({rows + 1}, columns.starts),
      Tensor::Of<int32_t>({edits}, columns.tokens),
      Tensor::Of<double>({edits}, columns.bias),
      Tensor::Of<int32_t>({edits}, columns.counts),
  };
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> results, executor_.Run(feeds, {Tensor()}));
  tokens_ = std::move(results[0]);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> DeviceSampler::Take() {
  std::vector<int64_t> tokens(static_cast<size_t>(tokens_.size()));
  PF_RETURN_IF_ERROR(executor_.plan().device->CopyToHost(tokens.data(), tokens_.data(),
                                                         tokens.size() * sizeof(int64_t)));
  PF_RETURN_IF_ERROR(executor_.TakeDeviceTime());
  return tokens;
}

}  // namespace pagefuse
