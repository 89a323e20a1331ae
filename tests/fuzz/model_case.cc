// SPDX-License-Identifier: Apache-2.0
#include "model_case.h"

#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "random.h"
#include "value_mutator.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/graph/verify.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/verify/compare_models.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse::fuzz {
namespace {

// What a case may take. A model that needs more is refused in the middle of its run.
constexpr RunLimits kLimits = {.max_tensor_bytes = 1 << 20, .max_body_runs = 100};
constexpr int64_t kMaxFeedElements = 1 << 14;
constexpr int kPipelines = 3;

enum class Feeds { kSensible, kEqualSizes, kOddNumbers, kOddNumbersAgain };

// Bad input is the caller's fault or more than is there; Internal says that it is ours.
void CheckIsOurAnswer(const absl::Status& status) {
  if (!absl::IsInternal(status)) return;
  std::fprintf(stderr, "internal error: %s\n", status.ToString().c_str());
  PF_CHECK(!absl::IsInternal(status));
}

void CheckRoundTrips(const Model& model, const std::string& base_dir) {
  const absl::StatusOr<std::string> bytes = ExportModel(model);
  PF_CHECK(bytes.ok());
  const absl::StatusOr<Model> again = ImportModel(*bytes, {.base_dir = base_dir});
  PF_CHECK(again.ok());
  const absl::StatusOr<std::string> bytes_again = ExportModel(*again);
  PF_CHECK(bytes_again.ok() && *bytes == *bytes_again);
  const std::string text = PrintModel(model);
  const absl::StatusOr<Model> parsed = ParseModel(text);
  if (!parsed.ok()) return;  // what has no text form prints as what does not parse
  PF_CHECK(Verify(*parsed).ok());
  PF_CHECK(PrintModel(*parsed) == text);
}

// The elements of an input, with every symbol at the largest size that feeds are made with.
bool IsSmall(const Value& input) {
  constexpr int64_t kLargestSize = 8;
  if (!input.shape()) return true;
  int64_t elements = 1;
  for (const Dim& dim : input.shape()->dims()) {
    int64_t size = dim.known() ? std::abs(dim.offset() / 2) : 0;
    if (size > kMaxFeedElements) return false;
    size = dim.known() ? std::abs(dim.offset()) : kLargestSize;
    for (const auto& [symbol, coefficient] : dim.terms()) {
      if (std::abs(coefficient / 2) > kMaxFeedElements) return false;
      size += std::abs(coefficient) * kLargestSize;
    }
    elements *= size;
    if (elements > kMaxFeedElements) return false;
  }
  return true;
}

// Numbers that no exporter means: out of range, negative, NaN.
void MakeOdd(Random& random, Tensor& tensor) {
  const auto spoil = [&](auto values, auto odd) {
    for (auto& value : values) {
      if (random.OneIn(5)) value = static_cast<std::decay_t<decltype(value)>>(odd());
    }
  };
  switch (tensor.dtype()) {
    case DataType::kInt64:
      return spoil(tensor.mutable_values<int64_t>(), [&] { return OddInt(random); });
    case DataType::kInt32:
      return spoil(tensor.mutable_values<int32_t>(), [&] { return OddInt(random); });
    case DataType::kFloat:
      return spoil(tensor.mutable_values<float>(), [&] { return OddFloat(random); });
    default:
      return;
  }
}

absl::StatusOr<std::map<std::string, Tensor>> MakeFeeds(const Model& model, Feeds kind) {
  for (const Value* input : model.graph->inputs()) {
    if (!IsSmall(*input)) return absl::UnimplementedError("a feed would be large");
  }
  PF_ASSIGN_OR_RETURN(auto feeds, RandomFeeds(model, kind == Feeds::kEqualSizes ? 2 : 0));
  if (kind == Feeds::kOddNumbers || kind == Feeds::kOddNumbersAgain) {
    Random random(static_cast<uint64_t>(kind));
    for (auto& [name, tensor] : feeds) MakeOdd(random, tensor);
  }
  return feeds;
}

SessionOptions MakeOptions(int pipeline, Feeds kind) {
  static constexpr const char* kCaches[] = {"none", "fp8_per_tensor", "int8_per_token_head",
                                            "fp8_per_token_head"};
  SessionOptions options;
  options.num_threads = 1;
  options.limits = kLimits;
  options.optimise = pipeline > 0;
  options.pipeline.page = pipeline == 2;
  if (pipeline == 1 && kind == Feeds::kEqualSizes) options.pipeline.options = {{"weights", "bf16"}};
  if (pipeline == 2) {
    options.pipeline.options = {{"kv_cache", kCaches[static_cast<int>(kind)]},
                                {"block_size", "4"},
                                {"absorb_mla", kind == Feeds::kOddNumbers ? "on" : "off"}};
  }
  return options;
}

}  // namespace

const char* ReachedName(Reached reached) {
  static constexpr const char* kNames[] = {"refused", "imported", "inferred", "loaded", "ran"};
  return kNames[static_cast<int>(reached)];
}

CaseResult RunModelCase(std::string_view bytes, int variant, const std::string& base_dir) {
  absl::StatusOr<Model> model = ImportModel(bytes, {.base_dir = base_dir});
  if (!model.ok()) return {Reached::kNothing, model.status()};
  PF_CHECK(Verify(*model).ok());
  CheckRoundTrips(*model, base_dir);
  Model inferred = model->Clone();
  const absl::Status fits = InferShapes(inferred);
  CheckIsOurAnswer(fits);
  if (!fits.ok()) return {Reached::kImported, fits};
  PF_CHECK(Verify(inferred).ok());

  const int pipeline = variant % kPipelines;
  const auto kind = static_cast<Feeds>(variant / kPipelines);
  auto session = Session::Create(model->Clone(), MakeOptions(pipeline, kind));
  CheckIsOurAnswer(session.status());
  if (!session.ok()) return {Reached::kInferred, session.status()};
  auto feeds = MakeFeeds((*session)->model(), kind);
  if (!feeds.ok()) return {Reached::kLoaded, feeds.status()};
  const absl::Status ran = (*session)->Run(*feeds).status();
  CheckIsOurAnswer(ran);
  (void)(*session)->Run(*feeds);  // with the memory of the first run
  if (pipeline == 0) {
    EvaluateOptions options = {.force_kernel = "reference", .limits = kLimits};
    options.decompose = kind == Feeds::kEqualSizes;
    CheckIsOurAnswer(EvaluateModel(*model, *feeds, options).status());
  }
  return {ran.ok() ? Reached::kRan : Reached::kLoaded, ran};
}

}  // namespace pagefuse::fuzz
