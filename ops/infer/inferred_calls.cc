// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/infer/inferred_calls.h"

#include <map>
#include <set>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/content_key.h"

namespace pagefuse {
namespace {

// Known contents of more bytes are told apart by their place in memory.
constexpr int64_t kMaxComparedBytes = 4096;

void AppendInput(std::string& key, const Node& call, int i, const ShapeContext::Known& known) {
  if (call.input(i) == nullptr) {
    key += '-';
    return;
  }
  StrAppend(&key, "(", DataTypeName(known.dtype));
  AppendText(key, known.shape ? known.shape->ToString() : "");
  AppendText(key, known.value ? Shape(*known.value).ToString() : "");
  if (known.tensor != nullptr) AppendTensor(key, *known.tensor, kMaxComparedBytes);
}

void CollectSymbols(const std::optional<std::vector<Dim>>& dims, std::set<std::string>& symbols) {
  if (!dims) return;
  for (const Dim& dim : *dims) {
    for (const auto& [symbol, coefficient] : dim.terms()) symbols.insert(symbol);
  }
}

std::optional<std::vector<Dim>> DimsOf(const std::optional<Shape>& shape) {
  return shape ? std::optional(shape->dims()) : std::nullopt;
}

// New names for the symbols that were made up in the body.
std::map<std::string, Dim> NewNames(const std::vector<InferredOutput>& outputs,
                                    const std::vector<ShapeContext::Known>& inputs,
                                    std::string_view scope) {
  std::set<std::string> given, found;
  for (const ShapeContext::Known& input : inputs) {
    CollectSymbols(DimsOf(input.shape), given);
    CollectSymbols(input.value, given);
  }
  for (const InferredOutput& output : outputs) {
    CollectSymbols(DimsOf(output.shape), found);
    CollectSymbols(output.value, found);
  }
  std::map<std::string, Dim> names;
  for (const std::string& symbol : found) {
    const bool made_up = symbol.find(ShapeContext::kFreshPrefix) != std::string::npos;
    if (made_up && !given.contains(symbol)) {
      names.emplace(symbol, ShapeContext::FreshName(scope, symbol));
    }
  }
  return names;
}

}  // namespace

std::optional<std::string> InferredCalls::KeyOf(const Function& function, const Node& call,
                                                const std::vector<Known>& inputs) {
  std::string key;
  AppendBytes(key, &function);
  for (int i = 0; i < call.num_inputs(); ++i) AppendInput(key, call, i, inputs[i]);
  for (const auto& [name, attribute] : call.attributes()) {
    AppendText(key, name);
    if (!AppendAttribute(key, attribute, kMaxComparedBytes)) return std::nullopt;
  }
  return key;
}

std::optional<std::vector<InferredOutput>> InferredCalls::Find(const std::string& key,
                                                               const std::vector<Known>& inputs,
                                                               std::string_view scope) const {
  const auto call = calls_.find(key);
  if (call == calls_.end()) return std::nullopt;
  std::vector<InferredOutput> outputs = call->second;
  const std::map<std::string, Dim> names = NewNames(outputs, inputs, scope);
  if (names.empty()) return outputs;
  for (InferredOutput& output : outputs) {
    if (output.shape) output.shape = output.shape->Substitute(names);
    if (output.value) output.value = Shape(*output.value).Substitute(names).dims();
  }
  return outputs;
}

}  // namespace pagefuse
