// SPDX-License-Identifier: Apache-2.0
// The declared ports of an op in parsed form, and the values of their sizes at one node.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/tensor/shape.h"
#include "pagefuse/ops/schema/shape_language.h"

namespace pagefuse {

class OpDef;
class ShapeContext;

struct PortSignature {
  ShapePattern shape;
  Choice<std::string> type;  // type variables, type names, attributes that name a type
  bool type_is_in_attribute = false;
  std::optional<PortCondition> required_if, only_if;
};

struct Signature {
  // What a name in a size is: a dim of the ports, an integer attribute, or one of OpDef::Let.
  enum class NameKind { kDim, kAttribute, kLet };
  struct NameMeaning {
    NameKind kind = NameKind::kDim;
    int index = 0;  // of the attribute, of the Let
  };

  // InvalidArgument naming op and port if a text is not in the language or says a name that the op
  // does not have.
  static absl::StatusOr<std::shared_ptr<const Signature>> Make(const OpDef& op);

  bool is_declared = false;  // some port has a declared shape
  SizeNames names;
  std::vector<NameMeaning> meanings;         // of the names
  std::vector<Choice<SizeExpression>> lets;  // empty where a function tells
  std::vector<PortSignature> inputs, outputs;
};

// What names stand for at one node.
struct DeclaredSizes {
  explicit DeclaredSizes(const Signature& signature)
      : names(signature.names),
        values(signature.names.size()),
        sources(signature.names.size(), -1) {}

  // Unknown for a name that no port tells. The op must have the name.
  const Dim& Find(std::string_view name) const;

  const SizeNames& names;
  std::vector<Dim> values;
  std::vector<int> sources;  // the input that told; -1: none
  // What "..." and its like stand for.
  struct Rest {
    std::string name;
    std::vector<Dim> dims;
    int source;
  };
  std::vector<Rest> rests;
};

// Whether a condition holds at a node.
bool Holds(const PortCondition& condition, const OpDef& op, const ShapeContext& c);
// The first whose condition holds.
template <typename T>
const T& Chosen(const Choice<T>& choice, const OpDef& op, const ShapeContext& c) {
  size_t i = 0;
  while (i + 1 < choice.size() && !Holds(*choice[i].first, op, c)) ++i;
  return choice[i].second;
}
// What is so at this node of what a condition asks for: `format = bf16`, `"indices"`, `no
// "indices"`.
std::string Circumstance(const PortCondition& condition, const OpDef& op, const ShapeContext& c);
template <typename T>
std::vector<std::string> Circumstances(const Choice<T>& choice, const OpDef& op,
                                       const ShapeContext& c) {
  std::vector<std::string> result;
  for (const auto& [condition, what] : choice) {
    if (!condition) continue;
    std::string text = Circumstance(*condition, op, c);
    if (std::find(result.begin(), result.end(), text) == result.end()) {
      result.push_back(std::move(text));
    }
  }
  return result;
}

}  // namespace pagefuse
