#include "tools/check/paging_check.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tools/check/paged_case.h"
#include "tools/check/testcase.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"

namespace pagefuse::tools {
namespace {

constexpr int64_t kMostTokens = 61;
constexpr int kPagingSteps = 3;

// Prompts that an export can take: side by side with the shorter one padded on the left, or one after
// the other. Not every export can express padding (GroupQueryAttention counts tokens from the start of
// a row), and V4 counts it among the tokens of a window.
struct Prompts {
  int64_t batch = 1;
  std::vector<int64_t> lengths = {};  // of each run
  int64_t padding = 0;                // columns that the second row lacks
};

std::vector<Prompts> WaysToAsk(const Model& model) {
  std::vector<Prompts> ways = {{.lengths = {24, 19}},
                               // Longer than published windows of which each becomes one row.
                               {.lengths = {136, 131}}};
  const bool counts_from_the_start = std::any_of(
      model.graph->nodes().begin(), model.graph->nodes().end(),
      [](const auto& node) { return node->Is("GroupQueryAttention", "com.microsoft"); });
  if (!counts_from_the_start)
    ways.insert(ways.begin(), {.batch = 2, .lengths = {24}, .padding = 5});
  return ways;
}

bool IsPast(const Value& value) { return absl::StartsWith(value.name(), "past"); }

std::vector<const Value*> Pasts(const Model& model) {
  std::vector<const Value*> pasts;
  for (const Value* input : model.graph->inputs()) {
    if (IsPast(*input)) pasts.push_back(input);
  }
  return pasts;
}

absl::StatusOr<Tensor> Integers(const Value& input, std::vector<int64_t> dims,
                                const std::vector<int64_t>& numbers) {
  PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(input.dtype(), std::move(dims)));
  const absl::Status filled = DispatchIndex(tensor.dtype(), [&]<typename T>() {
    std::copy(numbers.begin(), numbers.end(), tensor.mutable_values<T>().begin());
  });
  if (filled.ok()) return tensor;
  return absl::UnimplementedError(
      StrCat("input \"", input.name(), "\": expected integers, got ", DataTypeName(input.dtype())));
}

// Whether a cache comes out as long as it went in: a buffer for the last tokens.
bool KeepsLength(const Value& past, const Value& present) {
  constexpr int kLength = 2;
  if (!past.shape() || !present.shape() || past.shape()->rank() != 4) return false;
  const auto length = (*past.shape())[kLength].symbol();
  return length && present.shape()->rank() == 4 && (*present.shape())[kLength].symbol() == length;
}

// An empty past: of what is no number the first dim is the batch, others are what the present has,
// else the length. Buffers are as long as their windows.
absl::StatusOr<Tensor> EmptyPast(const Value& input, const Value& present, int64_t batch) {
  if (!input.shape()) {
    return absl::UnimplementedError(StrCat("input \"", input.name(), "\" has no shape"));
  }
  int64_t length = 0;
  for (const Use& use : KeepsLength(input, present) ? input.uses() : std::vector<Use>{}) {
    length = std::max(length, use.node->IntAttribute("local_window_size", 0).value_or(0));
  }
  const bool alike = present.shape() && present.shape()->rank() == input.shape()->rank();
  std::vector<int64_t> dims;
  for (int i = 0; i < input.shape()->rank(); ++i) {
    const auto size = (*input.shape())[i].constant();
    const auto after = alike ? (*present.shape())[i].constant() : std::nullopt;
    dims.push_back(size.value_or(after.value_or(i == 0 ? batch : length)));
  }
  return Tensor::Allocate(input.dtype(), dims);
}

// One step: `past` columns before it, `length` new ones, in `batch` rows of which all but the first
// lack `padding` columns.
struct Step {
  int64_t past = 0, length = 0, batch = 0, padding = 0;

  std::vector<int64_t> Ids(int64_t seed) const {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < batch * length; ++i) ids.push_back(1 + (i * 17 + seed) % kMostTokens);
    return ids;
  }
  std::vector<int64_t> Mask() const {
    std::vector<int64_t> mask;
    for (int64_t row = 0; row < batch; ++row) {
      for (int64_t i = 0; i < past + length; ++i) mask.push_back(row == 0 || i >= padding ? 1 : 0);
    }
    return mask;
  }
  std::vector<int64_t> Positions() const {
    std::vector<int64_t> positions;
    for (int64_t row = 0; row < batch; ++row) {
      for (int64_t i = past; i < past + length; ++i) {
        positions.push_back(row == 0 ? i : std::max<int64_t>(0, i - padding));
      }
    }
    return positions;
  }
};

// 1 for an export without pasts, or with some that keep a window.
int PagingSteps(const Model& model) {
  const std::vector<const Value*> pasts = Pasts(model);
  const auto& outputs = model.graph->outputs();
  if (pasts.empty() || outputs.size() != pasts.size() + 1) return 1;
  // What a buffer lost cannot be asked for again.
  for (size_t i = 0; i < pasts.size(); ++i) {
    if (KeepsLength(*pasts[i], *outputs[i + 1])) return 1;
  }
  return kPagingSteps;
}

class CaseMaker {
 public:
  // Types of `model` are inferred.
  CaseMaker(const Model& model, const Prompts& prompts)
      : model_(model), prompts_(prompts), pasts_(Pasts(model)) {}

  absl::StatusOr<TestCase> Make() {
    TestCase test_case;
    test_case.name = "paging";
    test_case.model = model_.Clone();
    test_case.whole_model = true;
    test_case.single_op = false;
    for (const int64_t length : prompts_.lengths) {
      PF_RETURN_IF_ERROR(AddSteps(length, test_case.data_sets));
    }
    return test_case;
  }

 private:
  absl::Status AddSteps(int64_t prompt, std::vector<TestDataSet>& sets) const {
    std::vector<Tensor> caches;
    for (int i = 0; i < PagingSteps(model_); ++i) {
      const Step step{.past = i == 0 ? 0 : prompt + i - 1,
                      .length = i == 0 ? prompt : 1,
                      .batch = prompts_.batch,
                      .padding = prompts_.padding};
      TestDataSet data{.name = StrCat("step ", i + 1), .feeds = {}, .outputs = {}};
      PF_ASSIGN_OR_RETURN(data.feeds, Feeds(step, i * 29 + prompt, caches));
      absl::StatusOr<std::vector<Tensor>> outputs = EvaluateModel(model_, data.feeds);
      if (!outputs.ok()) {
        return absl::UnimplementedError(StrCat("the graph does not run on made-up tokens: ",
                                               StdView(outputs.status().message())));
      }
      data.outputs = *std::move(outputs);
      caches = Presents(data.outputs);
      sets.push_back(std::move(data));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::map<std::string, Tensor>> Feeds(const Step& step, int64_t seed,
                                                      const std::vector<Tensor>& caches) const {
    std::map<std::string, Tensor> feeds;
    size_t past = 0;
    for (const Value* input : model_.graph->inputs()) {
      if (input->initializer() != nullptr) continue;
      absl::StatusOr<Tensor> tensor =
          absl::UnimplementedError(StrCat("input \"", input->name(), "\" is none of a decoder's"));
      const std::string& name = input->name();
      if (name == "input_ids") {
        tensor = Integers(*input, {step.batch, step.length}, step.Ids(seed));
      } else if (name == "position_ids") {
        tensor = Integers(*input, {step.batch, step.length}, step.Positions());
      } else if (name == "attention_mask") {
        tensor = Integers(*input, {step.batch, step.past + step.length}, step.Mask());
      } else if (IsPast(*input)) {
        tensor = caches.empty() ? EmptyPast(*input, PresentOf(past), step.batch) : caches[past];
        ++past;
      }
      PF_ASSIGN_OR_RETURN(feeds[name], std::move(tensor));
    }
    return feeds;
  }

  // Behind the logits, in the order of the pasts.
  std::vector<Tensor> Presents(const std::vector<Tensor>& outputs) const {
    if (outputs.size() != pasts_.size() + 1) return {};
    return {outputs.begin() + 1, outputs.end()};
  }
  const Value& PresentOf(size_t past) const {
    const auto& outputs = model_.graph->outputs();
    return outputs.size() == pasts_.size() + 1 ? *outputs[past + 1] : *pasts_[past];
  }

  const Model& model_;
  const Prompts& prompts_;
  std::vector<const Value*> pasts_;
};

absl::Status CheckPagingOf(const Model& model, const Prompts& prompts,
                           const SessionOptions& session, std::optional<double> tolerance) {
  PF_ASSIGN_OR_RETURN(TestCase test_case, CaseMaker(model, prompts).Make());
  if (tolerance) {
    CompareRule rule;
    rule.kind = CompareRule::Kind::kAllclose;
    rule.rtol = rule.atol = *tolerance;
    test_case.rules["logits"] = rule;
  }
  std::vector<std::string> notes;
  PF_RETURN_IF_ERROR(CheckPagedCase(std::move(test_case), session, &notes));
  for (const std::string& note : notes) {
    if (absl::StrContains(note, "not compared, ")) return absl::UnimplementedError(note);
  }
  return absl::OkStatus();
}

// The inputs of a decoder, and pasts that are not quantised already.
absl::Status CheckDecoder(const Model& model) {
  for (const char* name : {"input_ids", "attention_mask"}) {
    const Value* input = model.graph->FindValue(name);
    if (input != nullptr && input->is_input()) continue;
    return absl::UnimplementedError(StrCat("the graph has no input \"", name, "\" of a decoder"));
  }
  for (const Value* past : Pasts(model)) {
    if (IsFloatingPoint(past->dtype())) continue;
    return absl::UnimplementedError(StrCat("input \"", past->name(), "\" holds ",
                                           DataTypeName(past->dtype()),
                                           " codes, which rows of floats differ from"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> CheckPaging(const Model& model, const PipelineOptions& options,
                                std::optional<double> tolerance) {
  PF_RETURN_IF_ERROR(CheckDecoder(model));
  Model inferred = model.Clone();
  PF_RETURN_IF_ERROR(InferShapes(inferred));
  SessionOptions session;
  session.pipeline = options;
  session.pipeline.verify = false;
  session.pipeline.feeds.clear();
  session.pipeline.options.erase("kv_cache");
  session.pipeline.options.erase("indexer_cache");
  absl::Status status;
  for (const Prompts& prompts : WaysToAsk(model)) {
    status = CheckPagingOf(inferred, prompts, session, tolerance);
    if (!absl::IsUnimplemented(status)) break;
  }
  PF_RETURN_IF_ERROR(status);
  return PagingSteps(inferred);
}

}  // namespace pagefuse::tools
