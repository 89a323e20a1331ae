// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/lower/call_bodies.h"

#include <algorithm>
#include <memory>
#include <set>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/body_domains.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/schema/default_attribute.h"
#include "pagefuse/ops/schema/type_rows.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/lower/lower.h"
#include "pagefuse/passes/normalise/normalise.h"

namespace pagefuse {
namespace {

// AttributeProto.AttributeType of what a node may be given.
int32_t OnnxType(const Attribute& attribute) {
  enum : int32_t { kFloat = 1, kInt = 2, kString = 3, kFloats = 6, kInts = 7 };
  if (std::holds_alternative<float>(attribute.value)) return kFloat;
  if (std::holds_alternative<int64_t>(attribute.value)) return kInt;
  if (std::holds_alternative<std::string>(attribute.value)) return kString;
  if (std::holds_alternative<std::vector<float>>(attribute.value)) return kFloats;
  if (std::holds_alternative<std::vector<int64_t>>(attribute.value)) return kInts;
  if (const auto* outer = std::get_if<AttributeRef>(&attribute.value)) return outer->onnx_type;
  return 0;
}

// What the call has for an attribute, or what the op says where it has none.
std::optional<Attribute> ValueOf(const Node& call, const OpDef& op, std::string_view name) {
  if (const Attribute* given = call.attribute(name)) return *given;
  return DefaultAttribute(op, name);
}

// A reference to a float stays one. Others decide what a node computes, and not only with which
// number: older runtimes may lack the node, and what stands for it depends on that.
bool IsWrittenOut(const Node& node, const Attribute& value) {
  return !std::holds_alternative<float>(value.value) &&
         !std::holds_alternative<AttributeRef>(value.value) && !node.Is("Constant");
}

// References say of what type they are; those to what the call does not have go.
void TypeReferences(Function& function, const Node& call, const OpDef& op) {
  std::set<std::string> names;
  for (const auto& node : function.body->nodes()) {
    std::vector<std::string> gone;
    for (const auto& [name, attribute] : node->attributes()) {
      const auto* reference = std::get_if<AttributeRef>(&attribute.value);
      if (reference == nullptr) continue;
      const std::optional<Attribute> value = ValueOf(call, op, reference->name);
      if (!value.has_value()) {
        gone.push_back(name);
        continue;
      }
      if (IsWrittenOut(*node, *value)) {
        node->SetAttribute(name, *value);
        continue;
      }
      names.insert(reference->name);
      node->SetAttribute(name, MakeAttribute(AttributeRef{reference->name, OnnxType(*value)}));
    }
    for (const std::string& name : gone) node->RemoveAttribute(name);
  }
  function.attributes.assign(names.begin(), names.end());
}

template <typename Values>
Value* FindPort(const Values& formal, std::string_view name) {
  const auto found =
      std::ranges::find_if(formal, [&](const Value* value) { return value->name() == name; });
  return found == formal.end() ? nullptr : *found;
}

// The ports of the body are those of the call: a text lists what it uses.
absl::Status SetPorts(Graph& body, const Node& call, const OpDef& op) {
  const std::vector<Value*> used = body.inputs();
  while (!body.inputs().empty()) body.RemoveInput(0);
  for (int i = 0; i < call.num_inputs(); ++i) {
    const std::string& name = op.inputs()[i].name;
    Value* formal = FindPort(used, name);
    if (formal == nullptr) {
      formal = body.AddValue(body.UniqueName(name));
    }
    body.MarkInput(formal);
    if (call.input(i) == nullptr) continue;
    formal->set_dtype(call.input(i)->dtype());
    formal->set_shape(call.input(i)->shape());
  }
  const std::vector<Value*> made = body.outputs();
  while (!body.outputs().empty()) body.RemoveOutput(0);
  for (int i = 0; i < call.num_outputs(); ++i) {
    const std::string& name = op.outputs()[i].name;
    Value* formal = FindPort(made, name);
    if (formal == nullptr && call.output(i) != nullptr) {
      return absl::FailedPreconditionError(
          StrCat(call.Description(), ": its body does not compute output ", i, " \"", name, "\""));
    }
    // An output that the call leaves out, in front of others: something has to stand there.
    if (formal == nullptr) formal = body.AddInitializer(body.UniqueName(name), Tensor::Scalar(0.F));
    body.AddOutput(formal);
  }
  return absl::OkStatus();
}

// The body with numbers for its references: the call's, or any where the call is itself part of a
// body and only that body's caller knows.
std::unique_ptr<Graph> WithNumbers(const Function& function, const Node& call, const OpDef& op) {
  std::unique_ptr<Graph> body = function.body->Clone();
  for (const auto& node : body->nodes()) {
    for (const auto& [name, attribute] : node->attributes()) {
      const auto* reference = std::get_if<AttributeRef>(&attribute.value);
      if (reference == nullptr) continue;
      Attribute value = *ValueOf(call, op, reference->name);
      if (std::holds_alternative<AttributeRef>(value.value)) value = MakeAttribute(1.F);
      node->SetAttribute(name, std::move(value));
    }
  }
  return body;
}

// Types of the values in between, as they are for this call.
absl::Status InferBody(const Function& function, const Node& call, const OpDef& op) {
  Model model;
  model.opset_imports = function.opset_imports;
  for (const std::string_view domain : {kFusedDomain, std::string_view("com.microsoft")}) {
    model.opset_imports.emplace(domain, 1);
  }
  model.graph = WithNumbers(function, call, op);
  PF_RETURN_IF_ERROR(InferShapes(model));
  for (Value* value : function.body->values()) {
    const Value* typed = model.graph->FindValue(value->name());
    if (typed == nullptr) continue;
    value->set_dtype(typed->dtype());
    // Sizes are those of this call, and the body serves others.
    std::optional<Shape> ranked;
    if (typed->shape()) ranked = Shape(std::vector<Dim>(typed->shape()->rank(), Dim::Unknown()));
    value->set_shape(std::move(ranked));
  }
  return absl::OkStatus();
}

// Bodies of plug-ins may be of older opsets than those that files have.
absl::Status RaiseBody(Function& function, const Node& call, const OpDef& op) {
  const int64_t opset = OpsetOf(function.opset_imports, "");
  if (opset >= kCanonicalOpset) return absl::OkStatus();
  Model model;
  model.graph = function.body;
  model.opset_imports = function.opset_imports;
  PassContext context;
  context.explain = true;
  PF_RETURN_IF_ERROR(RaiseOpset()->Run(model, context).status());
  function.opset_imports = model.opset_imports;
  if (OpsetOf(function.opset_imports, "") >= kOldestTarget) return InferBody(function, call, op);
  const std::string reason = context.misses.empty() ? "" : context.misses.front().condition;
  return absl::FailedPreconditionError(StrCat(call.Description(), ": its body of opset ", opset,
                                              " cannot be written as one of opset ", kOldestTarget,
                                              ": ", reason));
}

// The same for bodies that are written alike: types decide how BitCast and float8 are lowered.
std::string TextOf(const Function& body) {
  std::string text = PrintFunction(body, {.value_infos = false});
  for (const Value* value : body.body->values()) {
    StrAppend(&text, static_cast<int>(value->dtype()), " ");
  }
  return text;
}

// The type of an output that the types of the inputs do not tell, see TypeRow; empty: they tell all.
absl::StatusOr<std::string> SaidType(const Node& call, const OpDef& op) {
  PF_ASSIGN_OR_RETURN(const std::vector<TypeRow> rows, TypeRows(op));
  // What a node gives as float8 is bytes in the file.
  const auto type_in_file = [](const Value* value) {
    if (value == nullptr) return DataType::kUndefined;
    return IsFloat8(value->dtype()) && value->producer() != nullptr ? DataType::kUint8
                                                                    : value->dtype();
  };
  std::vector<DataType> inputs, outputs;
  for (const Value* input : call.inputs()) inputs.push_back(type_in_file(input));
  for (const Value* output : call.outputs()) outputs.push_back(type_in_file(output));
  // Unless it is a cache that came as float8.
  for (const auto& [out, in] : op.aliases()) {
    if (call.output(out) != nullptr && call.input(in) != nullptr) outputs[out] = inputs[in];
  }
  const TypeRow* row = FindTypeRow(rows, inputs, outputs);
  return row == nullptr ? std::string() : row->said_type;
}

// The body that computes exactly this call: formal inputs and outputs are those that the call lists,
// in its order, typed as they are there; attributes are references (`@name`) where the text leaves
// them open. FailedPrecondition, naming the node, where the op has no body for it.
absl::StatusOr<Function> BodyOfCall(const Node& call, const OpDef& op) {
  PF_ASSIGN_OR_RETURN(const std::string text, op.Decompose(call));
  PF_ASSIGN_OR_RETURN(Function function, ParseFunction(text));
  function.name = call.op_type();
  function.doc_string = op.doc();
  function.defaults.clear();
  function.opset_imports.emplace("", kNewestOpset);
  TypeReferences(function, call, op);
  PF_RETURN_IF_ERROR(SetPorts(*function.body, call, op));
  PF_RETURN_IF_ERROR(InferBody(function, call, op));
  PF_RETURN_IF_ERROR(RaiseBody(function, call, op));
  for (const auto& node : function.body->nodes()) {
    if (!node->domain().empty()) function.opset_imports.emplace(node->domain(), 1);
    // ONNX Runtime 1.20 names what it fuses after the nodes, and takes two without a name for one.
    if (node->name.empty()) node->name = NodeLabel(*node);
  }
  return function;
}

}  // namespace

absl::StatusOr<std::string> CallBodies::DomainOf(const Node& call, const OpDef& op, Function body) {
  PF_ASSIGN_OR_RETURN(const std::string said_type, SaidType(call, op));
  std::vector<std::string>& texts = texts_[{call.op_type(), said_type}];
  std::string text = TextOf(body);
  const auto known = std::ranges::find(texts, text);
  const auto index = static_cast<size_t>(known - texts.begin());
  if (known == texts.end()) {
    if (texts.size() == kMaxBodies) {
      return absl::ResourceExhaustedError(
          StrCat(call.Description(), ": expected at most ", kMaxBodies, " different bodies of ",
                 call.op_type(),
                 ", which differ in modes, types, sizes that the text holds and "
                 "ports that are given; this is one more"));
    }
    texts.push_back(std::move(text));
    body.domain = BodyDomain(domain_, said_type, index);
    model_.functions.push_back(std::move(body));
  }
  return BodyDomain(domain_, said_type, index);
}

absl::StatusOr<std::string> CallBodies::Add(Node* call, const OpDef& op) {
  PF_ASSIGN_OR_RETURN(Function body, BodyOfCall(*call, op));
  const std::vector<std::string> attributes = body.attributes;
  PF_ASSIGN_OR_RETURN(const std::string domain, DomainOf(*call, op, std::move(body)));
  // Said at the call: what a function says of defaults is not read everywhere.
  for (const std::string& name : attributes) {
    if (call->attribute(name) == nullptr) call->SetAttribute(name, *DefaultAttribute(op, name));
  }
  model_.opset_imports[domain] = 1;
  MoveCall(call, domain);
  return domain;
}

}  // namespace pagefuse
