// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/probes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"

namespace pagefuse {
namespace {

// A vocabulary that nobody declares has so many tokens at least.
constexpr int64_t kFewTokens = 16;
constexpr int64_t kFollowing = 3;
// Longer texts take too long in a graph that computes all of them again for every token.
constexpr int64_t kLongest = 4200;
constexpr int64_t kMostIdProbes = 8, kIdsOfProbe = 6;

// What a value is made of.
struct Origin {
  bool ids = false;     // the numbers of tokens
  bool places = false;  // positions, lengths, masks, sizes
  bool given = false;   // positions as an input gives them, and nothing else of places

  bool any() const { return ids || places; }
};

// Ops through which places and ids stay what they are, or become other numbers that are compared.
bool CarriesPlaces(const Node& node) {
  return IsAnyOf(node, {"Abs",       "Add",       "And",         "Cast",      "Ceil",
                        "Clip",      "Concat",    "CumSum",      "Div",       "Equal",
                        "Expand",    "Flatten",   "Floor",       "Gather",    "GatherElements",
                        "GatherND",  "Greater",   "Identity",    "Less",      "GreaterOrEqual",
                        "Max",       "Min",       "LessOrEqual", "Mod",       "Mul",
                        "Neg",       "Not",       "OneHot",      "Or",        "Range",
                        "ReduceMax", "ReduceMin", "ReduceSum",   "Reshape",   "Round",
                        "ScatterND", "Shape",     "Size",        "Slice",     "Split",
                        "Squeeze",   "Sub",       "Tile",        "Transpose", "Trilu",
                        "Unsqueeze", "Where",     "Xor"});
}

// The first integers that a type does not hold exactly, and one beside each.
std::vector<int64_t> EndsOf(DataType type) {
  switch (type) {
    case DataType::kBool:
      return {1};
    case DataType::kInt8:
      return {127};
    case DataType::kUint8:
    case DataType::kBfloat16:
      return {256};
    case DataType::kFloat16:
      return {2048};
    default:
      return {};
  }
}

class Finder {
 public:
  Finder(const Model& model, const PlainInputs& inputs) : model_(model), inputs_(inputs) {}

  ProbePoints Run() {
    origin_[inputs_.tokens].ids = true;
    if (inputs_.positions != nullptr) origin_[inputs_.positions] = {.places = true, .given = true};
    for (const Value* row : inputs_.places) origin_[row] = {.places = true, .given = true};
    if (inputs_.mask != nullptr) origin_[inputs_.mask].places = true;
    for (const auto* list : {&inputs_.segments, &inputs_.sized}) {
      for (const Value* input : *list) origin_[input].places = true;
    }
    Walk(*model_.graph);
    // Places that are counted, too, do not go on from a position that is given.
    if (counts_) points_.positions.clear();
    return std::move(points_);
  }

 private:
  void Walk(const Graph& graph) {
    for (const auto& node : graph.nodes()) {
      for (const Graph* subgraph : node->Subgraphs()) Walk(*subgraph);
      Look(*node);
    }
  }

  void Look(const Node& node) {
    Origin origin;
    bool given = false, counted = false;
    for (const Value* input : node.inputs()) {
      const auto found = input == nullptr ? origin_.end() : origin_.find(input);
      if (found == origin_.end()) continue;
      origin.ids = origin.ids || found->second.ids;
      origin.places = origin.places || found->second.places;
      (found->second.given ? given : counted) = true;
    }
    origin.given = given && !counted;
    // Sizes count tokens, whatever they are sizes of.
    if (IsAnyOf(node, {"Shape", "Size"})) origin = {.places = true};
    if (!origin.any() || !CarriesPlaces(node)) return;
    const bool shapes = IsAnyOf(node, {"Expand", "Reshape", "Slice", "Tile", "Gather"});
    counts_ = counts_ || (given && counted && !shapes);
    const bool table = IsTable(node);
    AddConstants(node, origin);
    // What a table holds says nothing of places any more.
    if (table) return;
    for (const Value* output : node.outputs()) {
      if (output != nullptr) origin_[output] = origin;
    }
  }

  // Rows that are gathered by ids or places.
  bool IsTable(const Node& node) const {
    return IsAnyOf(node, {"Gather", "GatherND", "GatherElements"}) && !node.inputs().empty() &&
           !origin_.contains(node.inputs()[0]);
  }

  void AddConstants(const Node& node, const Origin& origin) {
    if (node.Is("Cast")) {
      const DataType type = node.outputs()[0]->dtype();
      for (const int64_t end : EndsOf(type)) Add(end, origin);
    }
    for (const char* name : {"min", "max"}) {
      Add(node.FloatAttribute(name, 0).value_or(0), origin);
    }
    for (const Value* input : node.inputs()) {
      const Tensor* constant = Constant(input);
      if (constant == nullptr) continue;
      if (IsTable(node) && constant->rank() > 0) {
        Add(static_cast<double>(constant->dims()[0]), origin);
        continue;
      }
      constexpr int64_t kMostNumbers = 16;  // longer ones are tables
      const auto numbers = Numbers(*constant, kMostNumbers);
      for (const double number : numbers.value_or(std::vector<double>())) Add(number, origin);
    }
  }

  // An initialiser, or what a Constant holds: nothing is folded in a graph as it was exported.
  static const Tensor* Constant(const Value* value) {
    if (value == nullptr || value->initializer()) return ConstantOf(value);
    const Node* producer = value->producer();
    if (producer == nullptr || !producer->Is("Constant")) return nullptr;
    const Attribute* attribute = producer->attribute("value");
    return attribute == nullptr ? nullptr : std::get_if<Tensor>(&attribute->value);
  }

  void Add(double number, const Origin& origin) {
    if (!(std::abs(number) <= kLongest * 64.0) || number != std::floor(number)) return;
    const auto middle = static_cast<int64_t>(std::abs(number));
    for (int64_t point = middle - 1; point <= middle + 1; ++point) {
      if (origin.ids && point >= 0) points_.ids.insert(point);
      if (origin.places && point > 0) points_.lengths.insert(point);
      if (origin.given) points_.positions.insert(point);
    }
  }

  const Model& model_;
  const PlainInputs& inputs_;
  absl::flat_hash_map<const Value*, Origin> origin_;
  ProbePoints points_;
  bool counts_ = false;
};

class Maker {
 public:
  Maker(int64_t vocabulary, int seed)
      : vocabulary_(vocabulary > 0 ? vocabulary : kFewTokens), seed_(seed) {}

  // Tokens from all of the vocabulary, the same from run to run.
  std::vector<int64_t> Tokens(int64_t count) {
    std::vector<int64_t> tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(Next());
    return tokens;
  }

  ProbeText Text(std::vector<int64_t> prompt, int64_t following = kFollowing) {
    return {.prompt = std::move(prompt), .following = Tokens(following)};
  }
  ProbeText Text(int64_t length, int64_t following = kFollowing) {
    return Text(Tokens(length), following);
  }

  // Every other token is one of those.
  ProbeText TextWith(const std::vector<int64_t>& ids) {
    std::vector<int64_t> prompt;
    for (const int64_t id : ids) {
      prompt.push_back(id);
      prompt.push_back(Next());
    }
    ProbeText text = Text(std::move(prompt));
    text.following[0] = ids.back();
    return text;
  }

 private:
  int64_t Next() {
    // A linear congruential generator, from its high bits.
    state_ = state_ * 6364136223846793005u + 1442695040888963407u + static_cast<uint64_t>(seed_);
    return static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(vocabulary_));
  }

  int64_t vocabulary_;
  int seed_;
  uint64_t state_ = 0x9e3779b97f4a7c15u;
};

std::string NameOf(const ProbeText& text) {
  const size_t length = text.prompt.size();
  return StrCat("a prompt of ", length, length == 1 ? " token" : " tokens");
}

}  // namespace

ProbePoints FindProbePoints(const Model& exported, const PlainInputs& inputs) {
  return Finder(exported, inputs).Run();
}

std::vector<Probe> MakeProbes(const ProbePoints& points, const std::set<int64_t>& edges,
                              int64_t vocabulary, int seed) {
  Maker make(vocabulary, seed);
  std::vector<Probe> probes;
  // As few runs as show two texts at once and a token behind a past, for models of which a run takes
  // long; then a little of everything.
  probes.push_back({.name = "prompts of 4 and 2 tokens in one batch",
                    .texts = {make.Text(4, 1), make.Text(2, 0)}});
  probes.push_back({.name = "prompts of 3 and 2 tokens in one batch, in pieces of 2",
                    .texts = {make.Text(3, 1), make.Text(2, 1)},
                    .piece = 2});
  const ProbeText five = make.Text(5);
  probes.push_back(
      {.name = "prompts of 5 and 3 tokens in one batch", .texts = {five, make.Text(3)}});
  probes.push_back({.name = "a prompt of 5 tokens in pieces of 2", .texts = {five}, .piece = 2});
  for (const int64_t length : {1, 2}) {
    ProbeText text = make.Text(length);
    probes.push_back({.name = NameOf(text), .texts = {std::move(text)}});
  }
  std::vector<int64_t> ids;
  const auto add_ids = [&] {
    if (ids.empty()) return;
    ProbeText text = make.TextWith(ids);
    probes.push_back({.name = StrCat("a prompt with tokens ", ids.front(), " to ", ids.back()),
                      .texts = {std::move(text)}});
    ids.clear();
  };
  int64_t left = kMostIdProbes * kIdsOfProbe;
  for (const int64_t id : points.ids) {
    if (vocabulary > 0 && id >= vocabulary) break;
    if (left-- == 0) break;
    ids.push_back(id);
    if (static_cast<int64_t>(ids.size()) == kIdsOfProbe) add_ids();
  }
  add_ids();
  for (const int64_t position : points.positions) {
    // The edge is passed by the prompt, and by the tokens that follow.
    for (const int64_t first : {position - 2, position - 5}) {
      if (first <= 0) continue;
      ProbeText text = make.Text(4);
      text.first_position = first;
      probes.push_back({.name = StrCat("a prompt of 4 tokens from position ", first),
                        .texts = {std::move(text)}});
    }
  }
  std::set<int64_t> lengths = points.lengths;
  for (const int64_t edge : edges) lengths.insert({edge - 1, edge, edge + 1});
  for (const int64_t length : lengths) {
    // With the tokens that follow, a text ends behind the edge.
    if (length < 3 || length > kLongest) continue;
    ProbeText text = make.Text(length);
    probes.push_back({.name = NameOf(text), .texts = {std::move(text)}});
  }
  return probes;
}

}  // namespace pagefuse
