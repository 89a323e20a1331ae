// SPDX-License-Identifier: Apache-2.0
// The rows of types that hosts choose by, against inference.
#include "pagefuse/ops/schema/type_rows.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/signature.h"

namespace pagefuse {
namespace {

// Ops that files call by function bodies: fused ones, and those of ai.onnx that are newer than files.
std::vector<const OpDef*> CalledOps() {
  constexpr int kOldestWrittenOpset = 21;
  std::vector<const OpDef*> ops;
  for (const OpDef* op : OpRegistry::Global().ops()) {
    const bool has_graphs = op->bodies() != nullptr;
    const bool is_newer =
        op->domain().empty() && op->since() > kOldestWrittenOpset && op->has_decomposition();
    if ((op->domain() == "pagefuse" && !has_graphs) || is_newer) ops.push_back(op);
  }
  return ops;
}

// One choice for each of several lists, in every combination.
template <typename T>
void ForEachChoice(const std::vector<std::vector<T>>& lists, std::vector<T>& chosen,
                   const std::function<void()>& visit) {
  if (chosen.size() == lists.size()) return visit();
  for (const T& each : lists[chosen.size()]) {
    chosen.push_back(each);
    ForEachChoice(lists, chosen, visit);
    chosen.pop_back();
  }
}

// A node of every combination of types and of attributes that are one of a few names.
class EveryNode {
 public:
  struct Seen {
    std::vector<DataType> inputs, outputs;
    std::string attributes;
  };

  explicit EveryNode(const OpDef& op) : op_(op), signature_(*Signature::Make(op)) {}

  // Types as files have them: bytes where an op gives float8.
  std::vector<Seen> Run() {
    std::vector<std::vector<DataType>> variables;
    for (const auto& [name, types] : op_.types()) variables.push_back(types);
    std::vector<DataType> bound;
    ForEachChoice<DataType>(variables, bound, [&] {
      std::vector<std::vector<DataType>> ports;
      for (const PortSignature& port : signature_->inputs) ports.push_back(Candidates(port, bound));
      std::vector<DataType> inputs;
      ForEachChoice<DataType>(ports, inputs, [&] { VisitAttributes(inputs); });
    });
    return std::move(seen_);
  }

 private:
  std::vector<DataType> Candidates(const PortSignature& port, const std::vector<DataType>& bound) {
    std::set<DataType> types;
    // Optional ports are given and omitted.
    const Port& declared = op_.inputs()[&port - signature_->inputs.data()];
    if (declared.kind == PortKind::kOptional) types.insert(DataType::kUndefined);
    for (const auto& [condition, name] : port.type) {
      DataType type = DataTypeFromName(name).value_or(DataType::kUndefined);
      for (size_t i = 0; i < bound.size(); ++i) {
        if (op_.types()[i].first == name) type = bound[i];
      }
      types.insert(type);
    }
    // All optional ports of an op in all combinations would be too many: those that types say, and
    // those without which there is no node.
    if (declared.kind == PortKind::kOptional && !DecidesAnything(declared.name)) {
      const bool is_omitted = declared.required_if.empty() || IsPort(declared.required_if);
      return {is_omitted ? DataType::kUndefined : *types.rbegin()};
    }
    return {types.begin(), types.end()};
  }

  bool IsPort(const std::string& name) const {
    return std::any_of(op_.inputs().begin(), op_.inputs().end(),
                       [&](const Port& port) { return port.name == name; });
  }

  bool DecidesAnything(const std::string& port) const {
    for (const PortSignature& output : signature_->outputs) {
      for (const auto& [condition, type] : output.type) {
        if (condition && condition->name == port) return true;
      }
    }
    return port == "output_scale";
  }

  void VisitAttributes(const std::vector<DataType>& inputs) {
    std::vector<std::vector<std::string>> values;
    for (const AttributeDef& def : op_.attributes()) {
      if (!def.names.empty()) values.push_back(def.names);
    }
    if (HasOutputType()) values.push_back({"", "1", "10", "16", "17", "2"});
    std::vector<std::string> chosen;
    ForEachChoice<std::string>(values, chosen, [&] { Visit(inputs, chosen); });
  }

  bool HasOutputType() const {
    return std::any_of(op_.attributes().begin(), op_.attributes().end(),
                       [](const AttributeDef& def) { return def.name == "output_dtype"; });
  }

  // That most attributes may be.
  static int64_t SomeNumber(const AttributeDef& def) {
    if (!def.numbers.empty()) return def.numbers[0];
    return absl::EndsWith(def.name, "bits") ? 4 : 16;
  }

  void SetAttributes(const std::vector<std::string>& chosen, Node& node) const {
    size_t next = 0;
    for (const AttributeDef& def : op_.attributes()) {
      if (!def.names.empty()) {
        node.SetAttribute(def.name, {.value = chosen[next++]});
      } else if (def.required && def.name == "parts") {
        node.SetAttribute(def.name, {.value = std::vector<int64_t>{8}});
      } else if (def.required) {
        const bool is_float = absl::StrContains(def.name, "scale") && def.name != "scale_dim";
        if (is_float) node.SetAttribute(def.name, {.value = 1.0F});
        if (!is_float) node.SetAttribute(def.name, {.value = SomeNumber(def)});
      }
    }
    if (HasOutputType() && !chosen.back().empty()) {
      node.SetAttribute("output_dtype", {.value = int64_t{std::stoi(chosen.back())}});
    }
  }

  void Visit(const std::vector<DataType>& inputs, const std::vector<std::string>& chosen) {
    Graph graph;
    std::vector<Value*> in, out;
    std::vector<ShapeContext::Known> known;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool is_given = inputs[i] != DataType::kUndefined;
      in.push_back(is_given ? graph.AddValue(StrCat("i", i), inputs[i]) : nullptr);
      known.push_back({.dtype = inputs[i], .shape = {}, .value = {}, .tensor = nullptr});
    }
    for (size_t i = 0; i < op_.outputs().size(); ++i) {
      const bool is_given = op_.outputs()[i].kind != PortKind::kOptional;
      out.push_back(is_given ? graph.AddValue(StrCat("o", i)) : nullptr);
    }
    Node* node = graph.AddNode(op_.domain(), op_.name(), in, out);
    SetAttributes(chosen, *node);
    ShapeContext context(*node, op_.since(), known);
    if (!op_.Infer(context).ok()) return;
    Seen seen{.inputs = inputs, .outputs = {}, .attributes = {}};
    for (const std::string& each : chosen) StrAppend(&seen.attributes, each, " ");
    for (size_t i = 0; i < out.size(); ++i) {
      DataType type = out[i] == nullptr ? DataType::kUndefined : context.outputs()[i].dtype;
      if (IsFloat8(type) && !IsCacheOf(static_cast<int>(i), inputs)) type = DataType::kUint8;
      seen.outputs.push_back(type);
    }
    seen_.push_back(std::move(seen));
  }

  bool IsCacheOf(int output, const std::vector<DataType>& inputs) const {
    return std::any_of(op_.aliases().begin(), op_.aliases().end(), [&](const auto& alias) {
      return alias.first == output && IsFloat8(inputs[alias.second]);
    });
  }

  const OpDef& op_;
  std::shared_ptr<const Signature> signature_;
  std::vector<Seen> seen_;
};

std::vector<TypeRow> OfDomain(const std::vector<TypeRow>& rows, const std::string& said_type) {
  std::vector<TypeRow> those;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(those),
               [&](const TypeRow& row) { return row.said_type == said_type; });
  return those;
}

class TypeRowsOf : public ::testing::TestWithParam<const OpDef*> {};

// A host has the types of the inputs, and takes the first row of the domain that fits them.
TEST_P(TypeRowsOf, InputsTellTheOutputsThatInferenceTells) {
  const auto rows = Must(TypeRows(*GetParam()));
  const std::vector<EveryNode::Seen> nodes = EveryNode(*GetParam()).Run();
  EXPECT_FALSE(nodes.empty()) << "no node of this op was inferred";
  for (const EveryNode::Seen& node : nodes) {
    const TypeRow* row = FindTypeRow(rows, node.inputs, node.outputs);
    ASSERT_NE(row, nullptr) << node.attributes;
    const std::vector<TypeRow> domain = OfDomain(rows, row->said_type);
    const TypeRow* taken = FindTypeRow(domain, node.inputs, {});
    ASSERT_NE(taken, nullptr);
    EXPECT_EQ(taken->outputs, row->outputs) << node.attributes << row->said_type;
  }
}

// ONNX Runtime refuses two rows of which it cannot tell one node's.
TEST_P(TypeRowsOf, NoTwoRowsOfADomainFitTheSameTypes) {
  const auto rows = Must(TypeRows(*GetParam()));
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (rows[i].said_type != rows[j].said_type) continue;
      std::vector<DataType> inputs;
      for (const auto& type : rows[i].inputs) {
        inputs.push_back(type.value_or(DataType::kUndefined));
      }
      EXPECT_EQ(FindTypeRow({rows[j]}, inputs, rows[i].outputs), nullptr) << i << " " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Called, TypeRowsOf, ::testing::ValuesIn(CalledOps()),
                         [](const auto& info) { return info.param->name(); });

TEST(TypeRows, AnAttributeThatSaysATypeHasADomain) {
  const OpDef* attention = OpRegistry::Global().Find("pagefuse", "PagedAttention", 1);
  const auto rows = Must(TypeRows(*attention));
  std::vector<DataType> inputs(attention->inputs().size());
  inputs[0] = DataType::kFloat16;
  const TypeRow* natural = FindTypeRow(rows, inputs, {});
  ASSERT_NE(natural, nullptr);
  EXPECT_EQ(natural->outputs[0], DataType::kFloat16);
  EXPECT_EQ(natural->said_type, "");
  const TypeRow* said = FindTypeRow(rows, inputs, {DataType::kFloat});
  ASSERT_NE(said, nullptr);
  EXPECT_EQ(said->said_type, "float");
}

}  // namespace
}  // namespace pagefuse
