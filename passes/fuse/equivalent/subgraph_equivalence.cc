// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/equivalent/subgraph_equivalence.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/fuse/equivalent/attribute_numbers.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
namespace {

// Pools of exports with a fixed number of blocks are compared on as they are.
constexpr int64_t kMaxPortBytes = int64_t{1} << 28;

// Magnitudes at which scales are at their floor, around it, and far from it. Where sums may be
// exact, a round follows in which they are, and so large that nothing that is added to them shows; where
// rows are copied, one in which floats have all their bits. Scores lie on both sides of each constant.
std::vector<ProbeRound> Rounds(bool narrow, const ComputedRegion& region, const Draft& draft) {
  std::vector<ProbeRound> rounds = {{.seed = 1, .exponent = 0}, {.seed = 2, .exponent = 3}};
  for (int exponent : {-13, -33, -9, 9, 30, -100}) {
    // What float16 cannot hold says nothing.
    if (narrow && (exponent < -13 || exponent > 9)) continue;
    rounds.push_back({.seed = static_cast<uint32_t>(200 + exponent), .exponent = exponent});
  }
  rounds.push_back({.seed = 3, .zero = true});
  for (const float bound : BoundsOf(region.nodes)) rounds.push_back({.seed = 8, .bound = bound});
  if (draft.copies_rows) rounds.push_back({.seed = 7, .exponent = 1, .all_bits = true});
  if (draft.has_exact_sums) rounds.push_back({.seed = 6, .exponent = 12, .exact = true});
  return rounds;
}

bool IsIndexType(DataType type) { return type == DataType::kInt64 || type == DataType::kInt32; }

// A replacement text as a model.
absl::StatusOr<Model> ModelOf(const std::string& text) {
  PF_ASSIGN_OR_RETURN(const Function function, ParseFunction(NormaliseFunctionText(text, nullptr)));
  Model model;
  model.graph = function.body;
  model.opset_imports = {{"", kNewestOpset}, {"pagefuse", 1}};
  return model;
}

// The region and the texts on the same numbers.
class RegionComparison {
 public:
  RegionComparison(const ComputedRegion& region, const RegionScope& scope,
                   const std::vector<FusionPort>& specs, const std::vector<OutputSpec>& outputs,
                   const Draft& draft)
      : region_(region), scope_(scope), specs_(specs), outputs_(outputs), draft_(draft) {}

  absl::Status Prepare() {
    for (size_t i = 0; i < specs_.size(); ++i) {
      const Value& value = *region_.ports[i];
      const auto dims =
          value.shape() ? NumbersOf(value.shape()->dims(), scope_.sizes) : std::nullopt;
      if (!dims) {
        return MatchFailure("the shape of ", value, " is not known");
      }
      const auto bytes = ByteSize(value.dtype(), *dims);
      if (!bytes.ok() || *bytes > kMaxPortBytes) {
        return MatchFailure(value, " ", DimsToString(*dims), " is too large to compare on");
      }
      const auto limit = draft_.limits.find(specs_[i].name);
      ports_.push_back({.role = specs_[i].role,
                        .dtype = value.dtype(),
                        .dims = *dims,
                        .limit = limit == draft_.limits.end() ? 0 : limit->second,
                        .step = draft_.step});
      narrow_ = narrow_ || value.dtype() == DataType::kFloat16;
    }
    return absl::OkStatus();
  }

  bool narrow() const { return narrow_; }
  bool HasSlots() const { return HasRole(ProbeRole::kSlots); }
  bool HasRole(ProbeRole role) const {
    return std::ranges::any_of(ports_, [role](const ProbePort& port) { return port.role == role; });
  }

  // What the region gives; constants stay what they are.
  absl::Status Run(const ProbeRound& round) {
    exact_ = round.exact;
    PF_ASSIGN_OR_RETURN(feeds_, MakeProbe(ports_, round));
    if (draft_.arrange) PF_RETURN_IF_ERROR(Arrange(round.seed));
    for (size_t i = 0; i < feeds_.size(); ++i) {
      if (const Tensor* constant = ConstantOf(region_.ports[i])) feeds_[i] = *constant;
      // A value that is another port too.
      const auto first = std::ranges::find(region_.ports, region_.ports[i]);
      feeds_[i] = feeds_[first - region_.ports.begin()];
    }
    PF_ASSIGN_OR_RETURN(found_, EvaluateRegion(region_, scope_, feeds_));
    return absl::OkStatus();
  }

  // FailedPrecondition if the region writes what the op refuses: slots that its cache has not.
  absl::Status CheckSlots() {
    if (!HasSlots() && !HasRole(ProbeRole::kBlocks)) return absl::OkStatus();
    if (!Run({.seed = 5, .beyond = true}).ok()) return absl::OkStatus();
    for (size_t i = 0; i < outputs_.size(); ++i) {
      for (size_t port = 0; port < specs_.size(); ++port) {
        if (specs_[port].name != outputs_[i].cache) continue;
        if (found_[i].IdenticalTo(feeds_[port])) continue;
        return MatchFailure(*outputs_[i].value, ": slots are written that the op's cache has not");
      }
    }
    return absl::OkStatus();
  }

  // Unimplemented if the text does not run on these numbers. Of numbers beyond what its format holds,
  // which an op refuses, there is nothing to compare.
  absl::Status Compare(const Model& text) const {
    std::map<std::string, Tensor> named;
    for (size_t i = 0; i < specs_.size(); ++i) named[specs_[i].name] = feeds_[i];
    const auto expected = EvaluateModel(text, named);
    if (absl::IsDataLoss(expected.status())) return absl::OkStatus();
    if (!expected.ok()) return absl::UnimplementedError(expected.status().message());
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Tensor before = outputs_[i].cache.empty() ? Tensor() : named.at(outputs_[i].cache);
      ResultRule rule = draft_.rules[i];
      if (exact_) rule.share = 0;
      const absl::Status same = CompareResults(rule, (*expected)[i], found_[i], before);
      if (same.ok()) continue;
      return MatchFailure(*outputs_[i].value, ": ", StdView(same.message()));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Arrange(uint32_t seed) {
    PortIntegers integers;
    for (size_t i = 0; i < feeds_.size(); ++i) {
      if (!IsIndexType(feeds_[i].dtype())) continue;
      PF_ASSIGN_OR_RETURN(integers[specs_[i].name], IntegerValues(feeds_[i]));
    }
    draft_.arrange(seed, integers);
    for (size_t i = 0; i < feeds_.size(); ++i) {
      const auto it = integers.find(specs_[i].name);
      if (it == integers.end()) continue;
      const std::vector<int64_t>& wide = it->second;
      const bool narrow = feeds_[i].dtype() == DataType::kInt32;
      feeds_[i] = narrow ? Tensor::Of<int32_t>(feeds_[i].dims(),
                                               std::vector<int32_t>(wide.begin(), wide.end()))
                         : Tensor::Of<int64_t>(feeds_[i].dims(), wide);
    }
    return absl::OkStatus();
  }

  const ComputedRegion& region_;
  const RegionScope& scope_;
  const std::vector<FusionPort>& specs_;
  const std::vector<OutputSpec>& outputs_;
  const Draft& draft_;
  std::vector<ProbePort> ports_;
  std::vector<Tensor> feeds_, found_;
  bool narrow_ = false;
  bool exact_ = false;  // the round that ran last
};

// Leaves of `texts` those that give the same in the round.
absl::Status Narrow(RegionComparison& comparison, const ProbeRound& round,
                    std::vector<std::pair<std::string, Model>>& texts) {
  PF_RETURN_IF_ERROR(comparison.Run(round));
  absl::Status last;
  std::erase_if(texts, [&](const auto& text) {
    const absl::Status same = comparison.Compare(text.second);
    if (!same.ok()) last = same;
    return !same.ok();
  });
  return texts.empty() ? last : absl::OkStatus();
}

// How many exponents of exact powers of two the graph rounds otherwise than the op, of how many.
// Float logarithms do not round them all alike; who rounds every one of them up means another
// function.
absl::StatusOr<int> CountOtherPowers(RegionComparison& comparison, const Model& text) {
  constexpr int kLeast = -11, kMost = 9;
  int others = 0;
  for (int exponent = kLeast; exponent <= kMost; ++exponent) {
    PF_RETURN_IF_ERROR(comparison.Run({.seed = 77, .exponent = exponent, .powers = true}));
    others += comparison.Compare(text).ok() ? 0 : 1;
  }
  if (others <= kMost - kLeast) return others;
  return MatchFailure("it rounds exponents of exact powers of two otherwise");
}

// Where the graph and the op differ on what the graph leaves open: slots of padding, and exponents
// of some exact powers of two.
absl::StatusOr<std::string> Assumptions(RegionComparison& comparison, const Model& text) {
  std::string assumes;
  if (comparison.HasSlots()) {
    // Where padding is taken out before a port, there are fewer rows than slots.
    PF_RETURN_IF_ERROR(comparison.Run({.seed = 77, .padding = true}));
    const absl::Status same = comparison.Compare(text);
    if (absl::IsUnimplemented(same)) return same;
    if (!same.ok()) assumes = "slots are not negative";
  }
  PF_ASSIGN_OR_RETURN(const int others, CountOtherPowers(comparison, text));
  if (others == 0) return assumes;
  return StrCat(assumes, assumes.empty() ? "" : "; ",
                "exponents of exact powers of two are rounded as the op does");
}

}  // namespace

absl::StatusOr<FoundText> FindSameText(const ComputedRegion& region, const ComparedScopes& scopes,
                                       const std::vector<FusionPort>& specs,
                                       const std::vector<OutputSpec>& outputs, const Draft& draft) {
  RegionComparison comparison(region, scopes.alike, specs, outputs, draft);
  PF_RETURN_IF_ERROR(comparison.Prepare());
  std::vector<std::pair<std::string, Model>> left;
  for (const std::string& text : draft.texts) {
    PF_ASSIGN_OR_RETURN(Model model, ModelOf(text));
    left.emplace_back(text, std::move(model));
  }
  if (left.empty()) return MatchFailure("there is nothing to compare with");
  for (const ProbeRound& round : Rounds(comparison.narrow(), region, draft)) {
    const absl::Status same = Narrow(comparison, round, left);
    if (same.ok()) continue;
    if (!left.empty()) return same;
    return MatchFailure("numbers near 2^", round.exponent, ": ", StdView(same.message()));
  }
  PF_RETURN_IF_ERROR(comparison.CheckSlots());
  for (const RegionScope& apart : scopes.apart) {
    RegionComparison other(region, apart, specs, outputs, draft);
    constexpr ProbeRound kRound = {.seed = 4};
    // A graph that does not run at these sizes wants some of them alike, and so may the op.
    if (!other.Prepare().ok() || !other.Run(kRound).ok()) continue;
    const absl::Status same = other.Compare(left.front().second);
    if (absl::IsFailedPrecondition(same)) return same;
    // The op may want sizes alike that the graph leaves apart, but not one that a constant has.
    const bool constant = std::ranges::any_of(region.ports, ConstantOf);
    if (!same.ok() && constant) {
      return MatchFailure("a constant is as long as a symbol of one size only");
    }
  }
  PF_ASSIGN_OR_RETURN(std::string assumes, Assumptions(comparison, left.front().second));
  return FoundText{left.front().first, std::move(assumes)};
}

}  // namespace pagefuse
