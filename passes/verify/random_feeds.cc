// SPDX-License-Identifier: Apache-2.0
// Random inputs that a decoder graph can make sense of.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <set>

#include "absl/strings/ascii.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/verify/compare_models.h"

namespace pagefuse {
namespace {

using Sizes = std::map<std::string, int64_t>;

int64_t ValueOf(const Dim& dim, const Sizes& sizes) {
  if (!dim.known()) return 3;
  int64_t value = dim.offset();
  for (const auto& [symbol, coefficient] : dim.terms()) {
    auto it = sizes.find(symbol);
    value += coefficient * (it == sizes.end() ? 3 : it->second);
  }
  return std::max<int64_t>(value, 0);
}

bool HasWord(const std::string& name, std::initializer_list<std::string_view> words) {
  const std::string lower = absl::AsciiStrToLower(name);
  return std::ranges::any_of(
      words, [&lower](std::string_view word) { return lower.find(word) != std::string::npos; });
}

// Past and new tokens together, where the graph has a size that means their sum. A cache may be cut
// to a window beside another one that is not.
int64_t TotalTokens(const Sizes& sizes) {
  int64_t past = 0, fresh = 0;
  for (const auto& [symbol, size] : sizes) {
    if (HasWord(symbol, {"total"})) continue;
    if (HasWord(symbol, {"past"})) {
      if (past == 0 || HasWord(symbol, {"seq"})) past = size;
    } else if (HasWord(symbol, {"seq"})) {
      fresh = size;
    }
  }
  return past + fresh;
}

// A symbol of a cache whose size the cache that comes out has as a number: exporters give both names
// that end alike, `past_key_values.0.key` and `present.0.key`.
Sizes SizesOfPresents(const Graph& graph) {
  const auto ending = [](const Value& value) {
    const std::string& name = value.name();
    return name.substr(std::min(name.find('.'), name.size()));
  };
  Sizes sizes;
  for (const Value* input : graph.inputs()) {
    if (!HasWord(input->name(), {"past"}) || !input->shape()) continue;
    for (const Value* output : graph.outputs()) {
      if (!output->shape() || output->shape()->rank() != input->shape()->rank() ||
          ending(*output) != ending(*input)) {
        continue;
      }
      for (int i = 0; i < input->shape()->rank(); ++i) {
        const auto symbol = (*input->shape())[i].symbol();
        const auto size = (*output->shape())[i].constant();
        if (symbol && size) sizes.emplace(*symbol, *size);
      }
    }
  }
  return sizes;
}

// Caches that are as long as a window hold one: the widest that an op of the graph asks for.
int64_t WidestWindow(const Graph& graph) {
  int64_t widest = 0;
  for (const auto& node : graph.nodes()) {
    widest = std::max(widest, node->IntAttribute("local_window_size", 0).value_or(0));
  }
  return widest;
}

// What the sizes of one attempt are. Different ones for different symbols at first, so that mixed-up
// dims show; then equal ones of several magnitudes, for graphs that want that; at last long
// sequences, for windows of many tokens.
int64_t ChosenSize(int attempt, const std::string& symbol, size_t number) {
  static constexpr int64_t kSizes[] = {3, 2, 5, 4, 7, 6};
  static constexpr int64_t kEqual[] = {0, 8, 4, 1, 2};  // by attempt; 0: different ones
  constexpr int64_t kBatch = 2, kLong = 136;
  if (attempt == 0) return kSizes[number % std::size(kSizes)];
  if (attempt < static_cast<int>(std::size(kEqual))) return kEqual[attempt];
  return HasWord(symbol, {"batch"}) ? kBatch : kLong;
}

Sizes ChooseSizes(const Graph& graph, int attempt) {
  Sizes sizes = SizesOfPresents(graph);
  for (const Value* input : graph.inputs()) {
    if (!input->shape().has_value()) continue;
    for (const Dim& dim : input->shape()->dims()) {
      for (const auto& [symbol, coefficient] : dim.terms()) {
        if (!sizes.contains(symbol)) sizes[symbol] = ChosenSize(attempt, symbol, sizes.size());
      }
    }
  }
  const int64_t window = WidestWindow(graph);
  const int64_t total = TotalTokens(sizes);
  for (auto& [symbol, size] : sizes) {
    if (HasWord(symbol, {"total"}) && total > 0) size = total;
    if (HasWord(symbol, {"sliding", "window"}) && window > 0) size = window;
  }
  return sizes;
}

std::optional<int64_t> SizeOf(const Value* value, int64_t axis, const Sizes& sizes) {
  if (value == nullptr || !value->shape().has_value()) return std::nullopt;
  const Shape& shape = *value->shape();
  if (axis < 0) axis += shape.rank();
  if (axis < 0 || axis >= shape.rank()) return std::nullopt;
  return ValueOf(shape[static_cast<int>(axis)], sizes);
}

// The size of what an integer value indexes, looking through nodes that pass it on; nullopt if it
// is no index.
std::optional<int64_t> IndexedSize(const Value& value, const Sizes& sizes, int depth = 0) {
  constexpr int kMaxDepth = 12;
  std::optional<int64_t> smallest;
  if (depth > kMaxDepth) return smallest;
  const auto take = [&smallest](std::optional<int64_t> size) {
    if (size.has_value()) smallest = std::min(smallest.value_or(*size), *size);
  };
  for (const Use& use : value.uses()) {
    const Node& node = *use.node;
    const std::string& op = node.op_type();
    const Value* data = node.input(0);
    if ((op == "Gather" || op == "GatherElements" || op == "ScatterElements") && use.index == 1) {
      take(SizeOf(data, node.IntAttribute("axis", 0).value_or(0), sizes));
    } else if ((op == "GatherND" || op == "ScatterND") && use.index == 1) {
      take(SizeOf(data, node.IntAttribute("batch_dims", 0).value_or(0), sizes));
    } else if (op == "OneHot" || op == "TopK") {
      continue;
    } else {
      static const std::set<std::string> kPassing = {
          "Cast",     "Reshape",   "Squeeze", "Unsqueeze", "Expand",   "Gather", "Concat", "Slice",
          "Identity", "Transpose", "Flatten", "Where",     "GatherND", "Max",    "Clip"};
      if (!kPassing.contains(op)) continue;
      for (const Value* output : node.outputs()) {
        if (output != nullptr) take(IndexedSize(*output, sizes, depth + 1));
      }
    }
  }
  return smallest;
}

// Numbers beside those that the graph compares with, or bounds others by, on both sides of each.
std::vector<float> PointsBeside(const Graph& graph) {
  constexpr double kLeast = 1, kMost = 100, kStep = 1.0 / 16;
  constexpr size_t kMostPoints = 64;
  std::set<float> points;
  for (const auto& node : graph.nodes()) {
    for (const Value* input : node->inputs()) {
      const Tensor* constant = input ? input->initializer() : nullptr;
      if (!constant || !IsFloatingPoint(constant->dtype())) continue;
      const auto number = ScalarNumber(*constant);
      if (!number || !(std::abs(*number) >= kLeast && std::abs(*number) <= kMost)) continue;
      if (points.size() >= kMostPoints) break;
      for (const double factor : {1 - kStep, 1 + kStep}) {
        points.insert(
            {static_cast<float>(*number * factor), static_cast<float>(-*number * factor)});
      }
    }
  }
  return {points.begin(), points.end()};
}

class FeedMaker {
 public:
  FeedMaker(const Graph& graph, int attempt, int sample)
      : sizes_(ChooseSizes(graph, attempt)),
        points_(PointsBeside(graph)),
        random_(20240501 + attempt + 1000 * sample) {
    // In a packed batch the first tensor of data has one row a token.
    for (const Value* input : graph.inputs()) {
      if (packed_tokens_ > 0 || !input->shape().has_value() || input->shape()->empty()) continue;
      packed_tokens_ = ValueOf((*input->shape())[0], sizes_);
    }
  }

  absl::StatusOr<Tensor> Make(const Value& input) {
    if (!input.shape().has_value()) {
      return absl::UnimplementedError(
          StrCat("input \"", input.name(), "\" has no shape to make up data for"));
    }
    std::vector<int64_t> dims;
    for (const Dim& dim : input.shape()->dims()) dims.push_back(ValueOf(dim, sizes_));
    PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(input.dtype(), dims));
    const absl::Status filled =
        input.dtype() == DataType::kInt64 || input.dtype() == DataType::kInt32
            ? FillIndices(input, tensor)
            : FillNumbers(tensor);
    if (!filled.ok()) {
      return absl::UnimplementedError(StrCat("input \"", input.name(), "\": type ",
                                             DataTypeName(input.dtype()), " cannot be made up"));
    }
    return tensor;
  }

 private:
  // Floats around zero and beside bounds, small integers and the ends of signed ones, booleans that
  // are mostly true; bytes of codes that are finite in every format.
  absl::Status FillNumbers(Tensor& tensor) {
    constexpr int64_t kEvery = 8;  // element is beside a bound
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<int> bytes(0, 100);
    return DispatchType(tensor.dtype(), [&]<typename T>() {
      int64_t place = 0;
      for (T& x : tensor.mutable_values<T>()) {
        const bool beside = ++place % kEvery == 0;
        if constexpr (std::is_same_v<T, bool>) {
          x = bytes(random_) < 80;
        } else if constexpr (std::is_integral_v<T>) {
          using Ends = std::numeric_limits<T>;
          const T end = place % (2 * kEvery) == 0 ? Ends::min() : Ends::max();
          const bool ends = beside && sizeof(T) == 1 && Ends::is_signed;
          x = ends ? end : static_cast<T>(bytes(random_));
        } else {
          const float near = normal(random_);
          x = ConvertElement<T>(beside && !points_.empty() ? PointBeside() : near);
        }
      }
    });
  }

  float PointBeside() {
    return points_[std::uniform_int_distribution<size_t>(0, points_.size() - 1)(random_)];
  }

  absl::Status FillIndices(const Value& input, Tensor& tensor) {
    std::vector<int64_t> values(tensor.size());
    const int64_t last = tensor.rank() == 0 ? 1 : std::max<int64_t>(tensor.dims().back(), 1);
    const std::string& name = input.name();
    const int64_t limit = std::max<int64_t>(IndexedSize(input, sizes_).value_or(kSmall), 1);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (HasWord(name, {"mask"})) {
        values[i] = 1;
      } else if (HasWord(name, {"start_loc", "cumulative", "cu_seq"})) {
        // One token a sequence, and what is left to the last.
        values[i] = i + 1 < tensor.size() ? i : std::max(i, packed_tokens_);
      } else if (HasWord(name, {"position", "arange"})) {
        values[i] = i % last % limit;
      } else if (HasWord(name, {"len"})) {
        values[i] = 1;
      } else {
        values[i] = std::uniform_int_distribution<int64_t>(0, limit - 1)(random_);
      }
    }
    // Two tokens must not write to one slot: the result would depend on the order.
    if (HasWord(name, {"slot", "write", "block_table"}) && tensor.size() <= limit) {
      std::vector<int64_t> all(limit);
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), random_);
      std::copy_n(all.begin(), tensor.size(), values.begin());
    }
    return DispatchIndex(tensor.dtype(), [&]<typename T>() {
      std::copy(values.begin(), values.end(), tensor.mutable_values<T>().begin());
    });
  }

  static constexpr int64_t kSmall = 4;  // for integers that index nothing

  Sizes sizes_;
  std::vector<float> points_;
  int64_t packed_tokens_ = 0;
  std::mt19937 random_;
};

}  // namespace

absl::StatusOr<std::map<std::string, Tensor>> RandomFeeds(const Model& model, int attempt,
                                                          int sample) {
  FeedMaker maker(*model.graph, attempt, sample);
  std::map<std::string, Tensor> feeds;
  for (const Value* input : model.graph->inputs()) {
    if (input->initializer() != nullptr) continue;
    PF_ASSIGN_OR_RETURN(Tensor tensor, maker.Make(*input));
    feeds.emplace(input->name(), std::move(tensor));
  }
  return feeds;
}

}  // namespace pagefuse
