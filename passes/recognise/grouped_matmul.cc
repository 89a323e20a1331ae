// grouped-matmul: a copy of the expert's matrix for every row, multiplied by the row, becomes a
// product that reads each matrix once.
//
//   weights [E, N, K] -- Gather (expert_ids [T]) -- MatMul (columns [T, K, 1])
//     =>  x = Squeeze (columns)
//         Unsqueeze (pagefuse.GroupedMatMul <transB = 1> (x, expert_ids, weights))
//
// GatherND by indices [T, 1], as exporters of torch write it, stands for Gather as well.
//
// At published sizes the copies of one prompt would take tens of gigabytes.
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/rule.h"

namespace pagefuse {
namespace {

absl::Status Miss(std::string_view text) {
  return absl::FailedPreconditionError(std::string(text));
}

Condition IsVector() {
  return {"expert_ids is a vector", [](const Match& match) -> absl::Status {
            const Value* ids = match.value("expert_ids");
            if (ids->shape() && ids->shape()->rank() == 1) return absl::OkStatus();
            return Miss("\"expert_ids\" is no vector");
          }};
}

Condition IsIndexColumn() {
  return {"expert_ids are indices of one number", [](const Match& match) -> absl::Status {
            const auto& shape = match.value("expert_ids")->shape();
            if (shape && shape->rank() == 2 && (*shape)[1] == Dim(1)) return absl::OkStatus();
            return Miss("\"expert_ids\" is no column");
          }};
}

// One column [T, K, 1] (row [T, 1, K]) for each expert id; `one` is its dim of size 1.
Condition OneEach(std::string name, int one) {
  return {name + " has one vector for each expert id",
          [name, one](const Match& match) -> absl::Status {
            const auto& shape = match.value(name)->shape();
            const auto& ids = match.value("expert_ids")->shape();
            const auto& weights = match.value("weights")->shape();
            if (!weights || weights->rank() != 3) return Miss("\"weights\" are not matrices");
            if (!shape || shape->rank() != 3 || (*shape)[one] != Dim(1)) {
              return Miss(StrCat("\"", name, "\" is no batch of vectors"));
            }
            if (ProvablyEqual((*shape)[0], (*ids)[0])) return absl::OkStatus();
            return Miss(StrCat("\"", name, "\" has not as many vectors as there are expert ids"));
          }};
}

// How the copies are made, and what the op's ids are then.
struct Copies {
  const char* gather;
  const char* make_ids;
  const char* ids;
  Condition (*indices)();
};
constexpr Copies kGather = {"Gather <axis = 0>", "", "expert_ids", IsVector};
constexpr Copies kGatherNd = {"GatherND",
                              "  last_axis = Constant <value_ints: ints = [-1]> ()\n  ids = "
                              "Squeeze (expert_ids, last_axis)\n",
                              "ids", IsIndexColumn};

Rule ForColumns(const char* name, const Copies& copies) {
  return Rule(name, "matrices gathered for columns")
      .MatchText(
          StrCat("(weights, expert_ids, columns) => (products) {\n  matrices = ", copies.gather,
                 " (weights, expert_ids)\n  products = MatMul (matrices, columns)\n}"))
      .Where(copies.indices())
      .Where(OneEach("columns", 2))
      .ReplaceWith(StrCat("(weights, expert_ids, columns) => (products) {\n", copies.make_ids,
                          "  last = Constant <value_ints: ints = [-1]> ()\n",
                          "  x = Squeeze (columns, last)\n",
                          "  y = pagefuse.GroupedMatMul <transB = 1> (x, ", copies.ids,
                          ", weights)\n  products = Unsqueeze (y, last)\n}"));
}

Rule ForRows(const char* name, const Copies& copies) {
  return Rule(name, "matrices gathered for rows")
      .MatchText(StrCat("(weights, expert_ids, rows) => (products) {\n  matrices = ", copies.gather,
                        " (weights, expert_ids)\n  products = MatMul (rows, matrices)\n}"))
      .Where(copies.indices())
      .Where(OneEach("rows", 1))
      .ReplaceWith(StrCat("(weights, expert_ids, rows) => (products) {\n", copies.make_ids,
                          "  middle = Constant <value_ints: ints = [1]> ()\n",
                          "  x = Squeeze (rows, middle)\n", "  y = pagefuse.GroupedMatMul (x, ",
                          copies.ids, ", weights)\n  products = Unsqueeze (y, middle)\n}"));
}

}  // namespace

std::unique_ptr<Pass> RecogniseGroupedMatMul() {
  std::vector<Rule> rules;
  rules.push_back(ForColumns("grouped-matmul", kGather));
  rules.push_back(ForRows("grouped-matmul-rows", kGather));
  rules.push_back(ForColumns("grouped-matmul-nd", kGatherNd));
  rules.push_back(ForRows("grouped-matmul-nd-rows", kGatherNd));
  return MakeRulePass("grouped-matmul",
                      "Multiplies rows by their experts' matrices without copies of them.",
                      std::move(rules));
}

}  // namespace pagefuse
