// SPDX-License-Identifier: Apache-2.0
#include "tools/run/run_feeds.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "tools/run/numpy_file.h"

#include "pagefuse/base/json_depth.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/passes/edit/graph_snapshot.h"
#include "pagefuse/passes/edit/similar_names.h"
#include "pagefuse/passes/verify/compare_models.h"

namespace pagefuse::tools {
namespace {

using Json = nlohmann::json;

std::string Described(const Value& input) {
  return StrCat("input \"", input.name(), "\" ", TypeText(input));
}

// Numbers, booleans, or lists of them; anything else is the name of a file.
std::optional<Json> ParseValue(const std::string& text) {
  if (IsNestedTooDeeply(text)) return std::nullopt;
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_number() && !json.is_boolean() && !json.is_array()) return std::nullopt;
  return json;
}

// The shape of nested lists. False where lists beside each other have different lengths, or hold what
// is no number.
bool Flatten(const Json& json, size_t depth, std::vector<int64_t>& dims,
             std::vector<double>& values) {
  if (!json.is_array()) {
    if (depth != dims.size() || !(json.is_number() || json.is_boolean())) return false;
    values.push_back(json.is_boolean() ? json.get<bool>() : json.get<double>());
    return true;
  }
  const auto length = static_cast<int64_t>(json.size());
  if (depth == dims.size() && values.empty()) dims.push_back(length);
  if (depth >= dims.size() || dims[depth] != length) return false;
  for (const Json& item : json) {
    if (!Flatten(item, depth + 1, dims, values)) return false;
  }
  return true;
}

template <typename T>
bool Holds(double value) {
  if constexpr (std::is_same_v<T, bool>) return value == 0 || value == 1;
  // 2^53: up to there a double holds every integer, and tokens and sizes stay far below.
  constexpr double kMost = 9007199254740992.0;
  if constexpr (std::is_integral_v<T>) {
    return std::trunc(value) == value && std::abs(value) <= kMost &&
           value >= static_cast<double>(std::numeric_limits<T>::lowest()) &&
           value <= static_cast<double>(std::numeric_limits<T>::max());
  }
  if constexpr (std::is_floating_point_v<T>) {
    return std::abs(value) <= std::numeric_limits<T>::max();
  } else {
    return std::isfinite(ConvertElement<float>(ConvertElement<T>(static_cast<float>(value))));
  }
}

absl::StatusOr<Tensor> TensorOfValues(const Value& input, std::vector<int64_t> dims,
                                      const std::vector<double>& values) {
  PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(input.dtype(), std::move(dims)));
  PF_RETURN_IF_ERROR(DispatchType(input.dtype(), [&]<typename T>() -> absl::Status {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const double value = values.size() == 1 ? values[0] : values[i];
      if (!Holds<T>(value)) {
        return absl::InvalidArgumentError(StrCat(Described(input), ": expected numbers of type ",
                                                 DataTypeName(input.dtype()), ", got ", value));
      }
      if constexpr (std::is_arithmetic_v<T>) {
        tensor.mutable_values<T>()[i] = static_cast<T>(value);
      } else {
        tensor.mutable_values<T>()[i] = ConvertElement<T>(static_cast<float>(value));
      }
    }
    return absl::OkStatus();
  }));
  return tensor;
}

// The dim with the sizes in place of its symbols, as far as they are known.
Dim Bound(const Dim& dim, const std::map<std::string, int64_t>& sizes) {
  if (!dim.known()) return dim;
  Dim bound = dim.offset();
  for (const auto& [symbol, coefficient] : dim.terms()) {
    const auto size = sizes.find(symbol);
    bound =
        bound + (size == sizes.end() ? Dim::Symbol(symbol) : Dim(size->second)) * Dim(coefficient);
  }
  return bound;
}

std::optional<std::vector<int64_t>> Constants(const Value& input) {
  if (!input.shape()) return std::nullopt;
  std::vector<int64_t> sizes;
  for (const Dim& dim : input.shape()->dims()) {
    const auto size = dim.constant();
    if (!size) return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

}  // namespace

absl::StatusOr<RunFeeds> RunFeeds::Read(const std::vector<std::string>& arguments,
                                        const Model& model) {
  RunFeeds feeds(model.Clone());
  for (const std::string& argument : arguments) PF_RETURN_IF_ERROR(feeds.Add(argument));
  feeds.BindSizes();
  PF_RETURN_IF_ERROR(feeds.Fill());
  return feeds;
}

absl::StatusOr<const Value*> RunFeeds::Input(const std::string& name) const {
  std::vector<std::string> names;
  for (const Value* input : model_.graph->inputs()) {
    if (input->name() == name) return input;
    names.push_back(input->name());
  }
  const std::string similar = SimilarNames(name, names);
  constexpr size_t kMostTold = 8;
  if (names.size() > kMostTold) names.resize(kMostTold);
  return absl::NotFoundError(
      StrCat("the model has no input \"", name, "\"",
             similar.empty() ? StrCat("; inputs: ", absl::StrJoin(names, ", ")) : similar));
}

absl::Status RunFeeds::Add(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) return AddFile("", argument);
  const std::string name = argument.substr(0, equals), rest = argument.substr(equals + 1);
  if (name.empty() || rest.empty()) {
    return absl::InvalidArgumentError(
        StrCat("-i: expected [NAME=]FILE or NAME=VALUE, got \"", argument, "\""));
  }
  return ParseValue(rest) ? AddValue(name, rest) : AddFile(name, rest);
}

absl::Status RunFeeds::AddFile(const std::string& name, const std::string& path) {
  PF_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  if (IsNpz(bytes)) {
    PF_ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors, LoadNpz(path));
    if (!name.empty() && tensors.size() != 1) {
      return absl::InvalidArgumentError(StrCat("-i ", name, "=", path, ": expected one array, got ",
                                               tensors.size(), "; leave \"", name,
                                               "=\" out to take them by their names"));
    }
    for (auto& [own, tensor] : tensors) {
      PF_RETURN_IF_ERROR(Give(name.empty() ? own : name, std::move(tensor)));
    }
    return absl::OkStatus();
  }
  std::string own;
  const absl::StatusOr<Tensor> tensor = IsNpy(bytes) ? ParseNpy(bytes) : ImportTensor(bytes, &own);
  PF_RETURN_IF_ERROR(InFile(path, tensor.status()));
  if (!name.empty()) own = name;
  // An array without a name can only be the one input that there is.
  if (own.empty() && model_.graph->inputs().size() == 1) own = model_.graph->inputs()[0]->name();
  if (own.empty()) {
    return absl::InvalidArgumentError(StrCat("\"", path, "\" has no name: use NAME=", path));
  }
  return Give(own, *tensor);
}

absl::Status RunFeeds::AddValue(const std::string& name, const std::string& text) {
  PF_ASSIGN_OR_RETURN(const Value* input, Input(name));
  const Json json = *ParseValue(text);
  std::vector<int64_t> dims;
  std::vector<double> values;
  if (!Flatten(json, 0, dims, values)) {
    return absl::InvalidArgumentError(
        StrCat(Described(*input), ": expected numbers in lists of equal lengths, got ", text));
  }
  if (dims.empty()) {
    PF_RETURN_IF_ERROR(CheckNew(name));
    fills_[name] = values[0];
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(Tensor tensor, TensorOfValues(*input, std::move(dims), values));
  return Give(name, std::move(tensor));
}

absl::Status RunFeeds::CheckNew(const std::string& name) const {
  PF_RETURN_IF_ERROR(Input(name).status());
  if (!given_.contains(name) && !fills_.contains(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("input \"", name, "\" is given twice"));
}

absl::Status RunFeeds::Give(const std::string& name, Tensor tensor) {
  PF_RETURN_IF_ERROR(CheckNew(name));
  given_[name] = std::move(tensor);
  return absl::OkStatus();
}

void RunFeeds::BindSizes() {
  std::map<std::string, int64_t> sizes;
  for (const Value* input : model_.graph->inputs()) {
    const auto given = given_.find(input->name());
    if (given == given_.end() || !input->shape()) continue;
    const int rank = std::min(input->shape()->rank(), given->second.rank());
    for (int i = 0; i < rank; ++i) {
      // Sizes that contradict each other are the session's to refuse.
      const auto symbol = (*input->shape())[i].symbol();
      if (symbol) sizes.emplace(*symbol, given->second.dims()[i]);
    }
  }
  for (Value* input : model_.graph->inputs()) {
    if (!input->shape()) continue;
    std::vector<Dim> dims;
    for (const Dim& dim : input->shape()->dims()) dims.push_back(Bound(dim, sizes));
    input->set_shape(Shape(dims));
  }
}

absl::Status RunFeeds::Fill() {
  for (const auto& [name, value] : fills_) {
    PF_ASSIGN_OR_RETURN(const Value* input, Input(name));
    auto dims = Constants(*input);
    if (!dims) {
      return absl::InvalidArgumentError(
          StrCat(Described(*input), ": expected a list, as nothing tells how many times ", value));
    }
    PF_ASSIGN_OR_RETURN(given_[name], TensorOfValues(*input, *std::move(dims), {value}));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, Tensor>> RunFeeds::Make(std::optional<int> seed,
                                                             int attempt) const {
  std::map<std::string, Tensor> feeds = given_;
  if (seed) {
    auto random = RandomFeeds(model_, attempt, *seed);
    PF_RETURN_IF_ERROR(random.status());
    feeds.merge(*random);
    return feeds;
  }
  for (const Value* input : model_.graph->inputs()) {
    if (input->initializer() != nullptr || feeds.contains(input->name())) continue;
    return absl::InvalidArgumentError(StrCat(Described(*input), " is not given: use -i ",
                                             input->name(),
                                             "=..., or --random SEED to make it up"));
  }
  return feeds;
}

}  // namespace pagefuse::tools
