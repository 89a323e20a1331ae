// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/tokens/token_roles.h"

#include <algorithm>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/infer/symbolic_arithmetic.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/analysis/tokens/last_rows.h"
#include "pagefuse/passes/analysis/tokens/token_rules.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/slice_cuts.h"

namespace pagefuse {
namespace {

constexpr int kMatchInputs = 3;  // query, key, value

absl::Status Stopped(const Node& node, std::string_view why) {
  return absl::FailedPreconditionError(StrCat(node.Description(), " ", why));
}

// Sizes say how a view, a repetition or a cut is made; everywhere else they are numbers.
bool TakesSizes(const Node& node, int input) {
  return node.Is("ConstantOfShape") ||
         (input > 0 && IsAnyOf(node, {"Reshape", "Expand", "Slice", "Tile", "Pad"}));
}

bool Mentions(const Dim& dim, const std::string& symbol) {
  return dim.Substitute({{symbol, Dim(0)}}) != dim;
}

class Tracer {
 public:
  Tracer(const Graph& graph, const TokenSources& sources, const SymbolicContents& contents)
      : graph_(graph), sources_(sources), contents_(contents) {
    // A mask is as long as the past and the new tokens, whatever its dim is called.
    const Value* padding = sources.padding;
    if (padding && sources.past.known() && padding->shape() && padding->shape()->rank() == 2) {
      const auto symbol = (*padding->shape())[1].symbol();
      if (symbol && !Mentions(sources.past, *symbol) && !Mentions(sources.sequence, *symbol)) {
        total_[*symbol] = sources.past + sources.sequence;
      }
    }
  }

  absl::StatusOr<TokenTrace> Run() {
    MarkLive();
    for (const auto& node : graph_.nodes()) {
      if (live_.contains(node.get())) PF_RETURN_IF_ERROR(Visit(*node));
    }
    for (const Value* output : graph_.outputs()) PF_RETURN_IF_ERROR(CheckOutput(output));
    return std::move(trace_);
  }

 private:
  bool IsMatch(const Node* node) const { return node && sources_.matches.contains(node); }
  std::vector<BesideMatch> Beside(const Node& match) const {
    const auto it = sources_.beside.find(&match);
    return it == sources_.beside.end() ? std::vector<BesideMatch>() : it->second;
  }
  bool IsPresent(const Value* value) const {
    return IsMatch(value->producer()) && value->producer_index() > 0;
  }
  bool IsKnown(const Value* value) const {
    const auto it = contents_.find(value);
    return it != contents_.end() &&
           std::ranges::all_of(it->second, [](const Dim& dim) { return dim.known(); });
  }

  // The nodes that outputs depend on once the matches are paged, sizes aside.
  void MarkLive() {
    std::vector<const Value*> open;
    for (const Value* output : graph_.outputs()) {
      if (!IsPresent(output)) open.push_back(output);
    }
    for (const Node* match : sources_.matches) {
      for (int i = 0; i < kMatchInputs; ++i) open.push_back(match->input(i));
      for (const BesideMatch& beside : Beside(*match)) open.push_back(beside.value);
    }
    while (!open.empty()) {
      const Value* value = open.back();
      open.pop_back();
      const Node* node = value->producer();
      if (!node || node->graph() != &graph_ || IsKnown(value) || !live_.insert(node).second)
        continue;
      if (IsMatch(node)) continue;
      for (const Value* read : ValuesRead(*node)) open.push_back(read);
    }
  }

  // A table that ends is cut to no more rows than it has: where the graph runs, there are as many as
  // tokens, but for a single one, which is repeated.
  Dim Normal(const Dim& dim) const {
    const Dim normal = total_.empty() ? dim : dim.Substitute(total_);
    return NumberInMin(normal, sources_.sequence).value_or(0) > 1 ? sources_.sequence : normal;
  }

  absl::StatusOr<TokenDependence> RoleOf(const Node& reader, const Value* value) {
    if (value->IsConstant()) return TokenDependence{};
    if (const auto it = trace_.values.find(value); it != trace_.values.end()) return it->second;
    if (IsKnown(value)) {
      const bool numbers = Shape(contents_.at(value)).constant().has_value();
      return TokenDependence{.role = numbers ? TokenRole::kFixed : TokenRole::kSizes};
    }
    if (value == sources_.padding) {
      return TokenDependence{.role = TokenRole::kIndex, .index = IndexExpr(1)};
    }
    const auto& rows = sources_.rows;
    if (std::ranges::find(rows, value) != rows.end()) {
      const bool one = sources_.batch.constant() == 1;
      return TokenDependence{.role = TokenRole::kRows, .axes = {one ? -1 : 0, 1}};
    }
    return Stopped(reader, StrCat("reads \"", value->name(), "\", which is ",
                                  value->is_input() ? "an input of no known meaning"
                                                    : "not computed from tokens"));
  }

  absl::Status Visit(const Node& node) {
    if (!node.Subgraphs().empty()) return VisitSubgraphs(node);
    std::vector<TokenDependence> inputs;
    for (int i = 0; i < node.num_inputs(); ++i) {
      const bool read = node.input(i) && !(IsMatch(&node) && i >= kMatchInputs) &&
                        !node.Is("Shape") && !node.Is("Size");
      TokenDependence role;
      if (read) {
        PF_ASSIGN_OR_RETURN(role, RoleOf(node, node.input(i)));
      }
      inputs.push_back(std::move(role));
    }
    for (const BesideMatch& beside : Beside(node)) PF_RETURN_IF_ERROR(CheckBeside(node, beside));
    PF_ASSIGN_OR_RETURN(const TokenDependence result, Depends(node, inputs));
    for (const Value* output : node.outputs()) {
      if (output) trace_.values[output] = result;
    }
    return absl::OkStatus();
  }

  absl::Status CheckBeside(const Node& match, const BesideMatch& beside) {
    PF_ASSIGN_OR_RETURN(const TokenDependence of, RoleOf(match, beside.value));
    const auto stopped = [&](std::string_view expected) {
      const Value* value = beside.value;  // as the file calls it
      while (value->producer() && value->producer()->Is("Identity")) {
        value = value->producer()->input(0);
      }
      return Stopped(
          match, StrCat("has the ", beside.what, " \"", value->name(), "\": expected ", expected));
    };
    if (!beside.by_token) {
      if (of.role == TokenRole::kFixed) return absl::OkStatus();
      return stopped("numbers that are the same for all tokens and in every step");
    }
    const bool by_token = of.role == TokenRole::kRows && of.axes.token == 1 &&
                          of.axes.per_token == 1 && of.axes.batch <= 0;
    return by_token ? absl::OkStatus() : stopped("rows of tokens along axis 1");
  }

  absl::Status VisitSubgraphs(const Node& node) {
    for (const Value* read : ValuesRead(node)) {
      PF_ASSIGN_OR_RETURN(const TokenDependence role, RoleOf(node, read));
      if (role.role != TokenRole::kFixed) {
        return Stopped(node, StrCat("has a body, which is not followed, and reads \"", read->name(),
                                    "\", which depends on tokens"));
      }
    }
    for (const Value* output : node.outputs()) {
      if (output) trace_.values[output] = {};
    }
    return absl::OkStatus();
  }

  absl::StatusOr<TokenDependence> Depends(const Node& node,
                                          const std::vector<TokenDependence>& inputs) {
    const auto any = [&](TokenRole role) {
      return std::ranges::any_of(inputs,
                                 [&](const TokenDependence& input) { return input.role == role; });
    };
    if (any(TokenRole::kLastRows)) return LastRows(node, inputs);
    if (any(TokenRole::kRows)) return Rows(node, inputs);
    const bool moves = any(TokenRole::kIndex) || any(TokenRole::kSizes) || any(TokenRole::kGrid);
    if (!moves) return SizesOf(node);
    // A table of floats holds numbers, also where they count.
    const bool table = inputs[0].role == TokenRole::kFixed && node.output(0) &&
                       IsFloatingPoint(node.output(0)->dtype());
    auto index = table ? std::nullopt : IndexOf(node.output(0));
    if (index) return *std::move(index);
    if (any(TokenRole::kGrid)) return Grid();
    if (const auto cut = CutOfTable(node, inputs)) {
      trace_.cuts.push_back(*cut);
      return TokenDependence{.role = TokenRole::kRows, .axes = {.batch = -1, .token = cut->axis}};
    }
    if (any(TokenRole::kIndex)) return RowsOrGrid(node, inputs);
    if (node.Is("ConstantOfShape") || node.Is("Expand")) return Spread(node);
    return TokenDependence{.role = TokenRole::kSizes};
  }

  // Of a node that reads no more than sizes of its inputs, if that.
  absl::StatusOr<TokenDependence> SizesOf(const Node& node) const {
    const bool sizes = node.Is("Shape") || node.Is("Size");
    return TokenDependence{.role = sizes ? TokenRole::kSizes : TokenRole::kFixed};
  }

  // The value as an affine function of its own places where nothing is padded, if it is one.
  // Comparisons count where they come out the same everywhere: `mask == 0` of a mask of ones.
  std::optional<TokenDependence> IndexOf(Value* value) const {
    if (!value) return std::nullopt;
    IndexingAnalysis reader(contents_, Trust::kNothing);
    reader.Know(total_);
    if (sources_.padding) reader.TakeAs(sources_.padding, 1);
    const auto places = reader.Places(value);
    if (!places.ok()) return std::nullopt;
    TokenDependence of{.role = TokenRole::kIndex, .at = places->at};
    if (value->dtype() == DataType::kBool) {
      const auto conditions = reader.ReadConditions(*places);
      const auto truth = conditions.ok() ? TruthOf(*conditions) : std::nullopt;
      if (!truth) return std::nullopt;
      of.index = IndexExpr(*truth ? 1 : 0);
      return of;
    }
    of.index = reader.ReadIndex(*places);
    IndexExpr rest = of.index;
    for (const IndexExpr& axis : of.at) rest = rest - axis.Times(of.index.Step(axis));
    return rest.is_constant() && rest.constant().known() ? std::optional(of) : std::nullopt;
  }

  // Rows [past, past + sequence) along one axis of what is fixed.
  std::optional<TokenTrace::TableCut> CutOfTable(const Node& node,
                                                 const std::vector<TokenDependence>& inputs) const {
    if (!node.Is("Slice") || inputs[0].role != TokenRole::kFixed) return std::nullopt;
    const auto cut = OnlyCut(node, contents_);
    const auto& to = node.output(0)->shape();
    if (!cut || !to) return std::nullopt;
    const auto offset = (Normal(cut->start) - sources_.past).constant();
    if (!offset || *offset < 0 || !EndsWithTokens(*cut, (*to)[cut->axis])) return std::nullopt;
    return TokenTrace::TableCut{
        .slice = const_cast<Node*>(&node), .axis = cut->axis, .offset = *offset};
  }

  // True for a cut of as many rows as there are new tokens, whether or not its length is known to
  // be that for short tables.
  bool EndsWithTokens(const SliceCut& cut, const Dim& length) const {
    if (ProvablyEqual(Normal(length), sources_.sequence)) return true;
    return ProvablyEqual(Normal(cut.end) - Normal(cut.start), sources_.sequence);
  }

  // The same number everywhere: an axis as long as batch or sequence runs over them.
  absl::StatusOr<TokenDependence> Spread(const Node& node) {
    PF_ASSIGN_OR_RETURN(const TokenAxes axes, AxesByLength(node, node.output(0), -1));
    return TokenDependence{.role = axes.none() ? TokenRole::kFixed : TokenRole::kRows,
                           .axes = axes};
  }

  // Which axes of a value run over batch and tokens, told by their length; `token` is known.
  absl::StatusOr<TokenAxes> AxesByLength(const Node& node, const Value* value, int token) const {
    if (!value->shape())
      return Stopped(node, StrCat("has to do with \"", value->name(), "\" of unknown shape"));
    TokenAxes axes{.batch = -1, .token = token};
    for (int axis = 0; axis < value->shape()->rank(); ++axis) {
      const Dim dim = Normal((*value->shape())[axis]);
      if (dim.is_constant() || axis == token) continue;
      if (axes.token < 0 && ProvablyEqual(dim, sources_.sequence)) {
        axes.token = axis;
      } else if (axes.batch < 0 && ProvablyEqual(dim, sources_.batch)) {
        axes.batch = axis;
      } else if (axes.none() && ProvablyEqual(dim, sources_.batch * sources_.sequence)) {
        axes = {.batch = axis, .token = axis};
      } else {
        return Stopped(node, StrCat("has to do with \"", value->name(), "\" ",
                                    value->shape()->ToString(), ", whose axis ", axis,
                                    " runs neither over the batch nor over its tokens alone"));
      }
    }
    return axes;
  }

  // An index that is read as numbers: the position of each token, scaled and moved, or one number.
  absl::StatusOr<TokenAxes> PlaceAxes(const Node& node, const Value* value,
                                      const TokenDependence& index) {
    if (!value->shape())
      return Stopped(node, StrCat("reads \"", value->name(), "\" of unknown shape"));
    int token = -1;
    int64_t step = 0;
    for (int axis = 0; axis < static_cast<int>(index.at.size()); ++axis) {
      const Dim along = index.index.Step(index.at[axis]);
      if (along.constant() == 0) continue;
      if (token >= 0 || !along.is_constant() ||
          !ProvablyEqual(Normal((*value->shape())[axis]), sources_.sequence)) {
        return Stopped(node, StrCat("reads \"", value->name(), "\" ", value->shape()->ToString(),
                                    ", which counts along axis ", axis,
                                    ", as more than the positions of tokens"));
      }
      token = axis;
      step = *along.constant();
    }
    // A number that is the same for all tokens does not say where they are.
    Dim offset = Normal(index.index.constant());
    if (step != 0) offset = offset - sources_.past * Dim(step);
    if (!offset.is_constant()) {
      return Stopped(node, StrCat("reads \"", value->name(), "\", which depends on the number ",
                                  offset.ToString(), " of tokens"));
    }
    PF_ASSIGN_OR_RETURN(const TokenAxes axes, AxesByLength(node, value, token));
    const bool noted =
        std::ranges::any_of(trace_.places, [&](const auto& place) { return place.value == value; });
    if (token >= 0 && !noted) {
      trace_.places.push_back(
          {.value = value, .axis = token, .step = step, .offset = *offset.constant()});
    }
    return axes;
  }

  absl::StatusOr<TokenAxes> RowAxes(const Node& node, int input, const TokenDependence& role) {
    const Value* value = node.input(input);
    switch (role.role) {
      case TokenRole::kRows:
        return role.axes;
      case TokenRole::kIndex:
        return PlaceAxes(node, value, role);
      case TokenRole::kSizes:
        if (TakesSizes(node, input)) return TokenAxes{};
        return Stopped(node, StrCat("reads \"", value->name(),
                                    "\", which depends on the sizes of the batch, as a number"));
      case TokenRole::kGrid:
        return Stopped(node, StrCat("reads \"", value->name(),
                                    "\", which depends on the places of tokens or on their number "
                                    "in a way that is not followed"));
      default:
        return TokenAxes{};
    }
  }

  absl::StatusOr<TokenDependence> Rows(const Node& node,
                                       const std::vector<TokenDependence>& inputs) {
    TokenDependence index = inputs.size() > 1 ? inputs[1] : TokenDependence{};
    index.index = index.index - IndexExpr(index.index.constant() - Normal(index.index.constant()));
    if (inputs[0].role == TokenRole::kRows &&
        SelectsLastRows(node, inputs[0].axes, index, sources_, contents_)) {
      trace_.selections.push_back(const_cast<Node*>(&node));
      return TokenDependence{.role = TokenRole::kLastRows};
    }
    std::vector<TokenAxes> axes;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int input = static_cast<int>(i);
      const Value* value = node.input(input);
      TokenAxes of;
      if (value) {
        PF_ASSIGN_OR_RETURN(of, RowAxes(node, input, inputs[i]));
      }
      if (value && !value->shape()) {
        return Stopped(node, StrCat("reads \"", value->name(), "\" of unknown shape"));
      }
      axes.push_back(of);
    }
    if (!node.output(0) || !node.output(0)->shape()) {
      return Stopped(node, "has an output of unknown shape");
    }
    const TokenRule rule = FindTokenRule(node);
    if (node.Is("DynamicQuantizeLinear")) {
      return Stopped(node,
                     "scales all tokens of a run by the largest number among them: what a token "
                     "gets depends on those that run beside it");
    }
    if (!rule) return Stopped(node, "is not known to work on each token alone");
    PF_ASSIGN_OR_RETURN(const TokenAxes result,
                        rule(RowsNode(node, std::move(axes), sources_, contents_)));
    return TokenDependence{.role = TokenRole::kRows, .axes = result};
  }

  static TokenDependence Grid() { return {.role = TokenRole::kGrid}; }

  // Without any row of a token: a function of positions, or of more than them.
  absl::StatusOr<TokenDependence> RowsOrGrid(const Node& node,
                                             const std::vector<TokenDependence>& inputs) {
    const size_t places = trace_.places.size();
    auto rows = Rows(node, inputs);
    if (rows.ok()) return rows;
    trace_.places.resize(places);
    return Grid();
  }

  absl::StatusOr<TokenDependence> LastRows(const Node& node,
                                           const std::vector<TokenDependence>& inputs) {
    std::vector<bool> last;
    for (size_t i = 0; i < inputs.size(); ++i) {
      last.push_back(inputs[i].role == TokenRole::kLastRows);
      const bool sizes =
          inputs[i].role == TokenRole::kSizes && TakesSizes(node, static_cast<int>(i));
      if (last.back() || inputs[i].role == TokenRole::kFixed || sizes) continue;
      return Stopped(node, StrCat("joins rows of last tokens with \"",
                                  node.input(static_cast<int>(i))->name(), "\""));
    }
    const LastRowUse use = UseOfLastRows(node, last, contents_);
    if (use == LastRowUse::kOther) {
      return Stopped(node, "does something else than row by row work to rows of last tokens");
    }
    if (use == LastRowUse::kView) trace_.last_row_views.push_back(const_cast<Node*>(&node));
    if (use == LastRowUse::kAlongLast) trace_.along_last_axis.push_back(const_cast<Node*>(&node));
    return TokenDependence{.role = TokenRole::kLastRows};
  }

  absl::Status CheckOutput(const Value* output) const {
    if (IsPresent(output)) return absl::OkStatus();
    const auto it = trace_.values.find(output);
    const TokenRole role = it == trace_.values.end() ? TokenRole::kSizes : it->second.role;
    if (role == TokenRole::kRows || role == TokenRole::kLastRows) return absl::OkStatus();
    return absl::FailedPreconditionError(
        StrCat("output \"", output->name(), "\" holds no row for each token"));
  }

  const Graph& graph_;
  const TokenSources& sources_;
  const SymbolicContents& contents_;
  std::map<std::string, Dim> total_;  // what the length of the mask stands for
  absl::flat_hash_set<const Node*> live_;
  TokenTrace trace_;
};

}  // namespace

absl::StatusOr<TokenTrace> TraceTokens(const Graph& graph, const TokenSources& sources,
                                       const SymbolicContents& contents) {
  return Tracer(graph, sources, contents).Run();
}

}  // namespace pagefuse
