#include "tools/paging_check.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tools/paged_case.h"
#include "tools/testcase.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/kernels/numeric/dispatch.h"
#include "pagefuse/ops/evaluate.h"

namespace pagefuse::tools {
namespace {

constexpr int64_t kBatch = 2;
constexpr int64_t kPrompt = 24;  // tokens of the longer prompt
constexpr int64_t kPadding = 5;  // columns that the shorter one lacks, on the left
constexpr int64_t kMostTokens = 61;

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

// An empty past: a dim that is no number is the batch if it is the first, else the length.
absl::StatusOr<Tensor> EmptyPast(const Value& input) {
  if (!input.shape()) {
    return absl::UnimplementedError(StrCat("input \"", input.name(), "\" has no shape"));
  }
  std::vector<int64_t> dims;
  for (int i = 0; i < input.shape()->rank(); ++i) {
    dims.push_back((*input.shape())[i].constant().value_or(i == 0 ? kBatch : 0));
  }
  return Tensor::Allocate(input.dtype(), dims);
}

// One step: `past` columns before it, `length` new ones.
struct Step {
  int64_t past = 0, length = 0;

  std::vector<int64_t> Ids(int step) const {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < kBatch * length; ++i) {
      ids.push_back(1 + (i * 17 + step * 29) % kMostTokens);
    }
    return ids;
  }
  std::vector<int64_t> Mask() const {
    std::vector<int64_t> mask;
    for (int64_t row = 0; row < kBatch; ++row) {
      for (int64_t i = 0; i < past + length; ++i) mask.push_back(row == 0 || i >= kPadding ? 1 : 0);
    }
    return mask;
  }
  std::vector<int64_t> Positions() const {
    std::vector<int64_t> positions;
    for (int64_t row = 0; row < kBatch; ++row) {
      for (int64_t i = past; i < past + length; ++i) {
        positions.push_back(row == 0 ? i : std::max<int64_t>(0, i - kPadding));
      }
    }
    return positions;
  }
};

class CaseMaker {
 public:
  explicit CaseMaker(const Model& model) : model_(model), pasts_(Pasts(model)) {}

  absl::StatusOr<TestCase> Make() {
    TestCase test_case;
    test_case.name = "paging";
    test_case.model = model_.Clone();
    test_case.whole_model = true;
    test_case.single_op = false;
    std::vector<Tensor> caches;
    for (int i = 0; i < PagingSteps(model_); ++i) {
      const Step step = i == 0 ? Step{0, kPrompt} : Step{kPrompt + i - 1, 1};
      TestDataSet data{.name = StrCat("step ", i + 1), .feeds = {}, .outputs = {}};
      PF_ASSIGN_OR_RETURN(data.feeds, Feeds(step, i, caches));
      absl::StatusOr<std::vector<Tensor>> outputs = EvaluateModel(model_, data.feeds);
      if (!outputs.ok()) {
        return absl::UnimplementedError(StrCat("the graph does not run on made-up tokens: ",
                                               StdView(outputs.status().message())));
      }
      data.outputs = *std::move(outputs);
      caches = Presents(data.outputs);
      test_case.data_sets.push_back(std::move(data));
    }
    return test_case;
  }

 private:
  absl::StatusOr<std::map<std::string, Tensor>> Feeds(const Step& step, int number,
                                                      const std::vector<Tensor>& caches) const {
    std::map<std::string, Tensor> feeds;
    size_t past = 0;
    for (const Value* input : model_.graph->inputs()) {
      if (input->initializer() != nullptr) continue;
      absl::StatusOr<Tensor> tensor =
          absl::UnimplementedError(StrCat("input \"", input->name(), "\" is none of a decoder's"));
      const std::string& name = input->name();
      if (name == "input_ids") {
        tensor = Integers(*input, {kBatch, step.length}, step.Ids(number));
      } else if (name == "position_ids") {
        tensor = Integers(*input, {kBatch, step.length}, step.Positions());
      } else if (name == "attention_mask") {
        tensor = Integers(*input, {kBatch, step.past + step.length}, step.Mask());
      } else if (IsPast(*input)) {
        tensor = caches.empty() ? EmptyPast(*input) : caches[past++];
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

  const Model& model_;
  std::vector<const Value*> pasts_;
};

}  // namespace

int PagingSteps(const Model& model) {
  const size_t pasts = Pasts(model).size();
  return pasts > 0 && model.graph->outputs().size() == pasts + 1 ? kPagingSteps : 1;
}

absl::Status CheckPaging(const Model& model, const PipelineOptions& options,
                         std::optional<double> tolerance) {
  TestCase alone;
  alone.model = model.Clone();
  if (!IsDecoderCase(alone)) return absl::UnimplementedError("the graph is no decoder");
  PF_ASSIGN_OR_RETURN(TestCase test_case, CaseMaker(model).Make());
  if (tolerance) {
    CompareRule rule;
    rule.kind = CompareRule::Kind::kAllclose;
    rule.rtol = rule.atol = *tolerance;
    test_case.rules["logits"] = rule;
  }
  SessionOptions session;
  session.pipeline = options;
  session.pipeline.verify = false;
  session.pipeline.feeds.clear();
  session.pipeline.options.erase("kv_cache");
  session.pipeline.options.erase("indexer_cache");
  std::vector<std::string> notes;
  PF_RETURN_IF_ERROR(CheckPagedCase(std::move(test_case), session, &notes));
  for (const std::string& note : notes) {
    if (absl::StrContains(note, "not compared, ")) return absl::UnimplementedError(note);
  }
  return absl::OkStatus();
}

}  // namespace pagefuse::tools
