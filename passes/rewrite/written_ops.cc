// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/written_ops.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/registry/refused_ops.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/foreign_op.h"
#include "pagefuse/passes/edit/similar_names.h"

namespace pagefuse {
namespace {

// The op in all its versions, the oldest first.
std::vector<const OpDef*> VersionsOf(const Node& node) {
  const std::string_view domain = node.domain() == "ai.onnx" ? std::string_view() : node.domain();
  std::vector<const OpDef*> versions;
  for (const OpDef* op : OpRegistry::Global().ops()) {
    if (op->domain() == domain && op->name() == node.op_type()) versions.push_back(op);
  }
  return versions;
}

// A domain of which there is no op here is the author's own: what it has, only they know.
bool IsOwnDomain(std::string_view domain) {
  if (domain.empty() || domain.starts_with("ai.onnx")) return false;
  return std::ranges::none_of(OpRegistry::Global().ops(),
                              [&](const OpDef* op) { return op->domain() == domain; });
}

// What the op might have been meant for.
std::string SimilarOps(const Node& node) {
  std::set<std::string> names;
  for (const OpDef* op : OpRegistry::Global().ops()) {
    if (op->domain() == node.domain()) names.insert(op->name());
  }
  return SimilarNames(node.op_type(), {names.begin(), names.end()});
}

// "1 input", "2 to 3 inputs"
std::string CountText(size_t least, size_t most, std::string_view what) {
  const std::string plural = most == 1 ? "" : "s";
  if (least == most) return StrCat(most, " ", what, plural);
  return StrCat(least, " to ", most, " ", what, plural);
}

size_t RequiredPorts(const std::vector<Port>& ports) {
  return static_cast<size_t>(std::ranges::count_if(
      ports, [](const Port& port) { return port.kind != PortKind::kOptional; }));
}

// One node, written for one version of its op.
class NodeCheck {
 public:
  NodeCheck(const Node& node, const OpDef& op) : node_(node), op_(op), foreign_(IsForeign(op)) {}

  std::optional<WrittenFault> Run() const {
    if (auto fault = Attributes()) return fault;
    if (auto fault = Count(op_.inputs(), node_.num_inputs(), "input")) return fault;
    if (auto fault = Count(op_.outputs(), node_.num_outputs(), "output")) return fault;
    return Inputs();
  }

 private:
  WrittenFault Fault(std::string_view what, std::string_view attribute = "") const {
    return {&node_, std::string(attribute), StrCat(node_.op_type(), ": ", what)};
  }

  std::optional<WrittenFault> Attributes() const {
    std::vector<std::string> names;
    for (const AttributeDef& def : op_.attributes()) {
      names.push_back(def.name);
      if (!def.required || foreign_ || node_.attribute(def.name) != nullptr) continue;
      return Fault(StrCat("attribute \"", def.name, "\" is missing"));
    }
    for (const auto& [name, attribute] : node_.attributes()) {
      if (foreign_ || std::ranges::find(names, name) != names.end()) continue;
      return Fault(StrCat("there is no attribute \"", name, "\"", SimilarNames(name, names)), name);
    }
    return std::nullopt;
  }

  std::optional<WrittenFault> Count(const std::vector<Port>& ports, int written,
                                    std::string_view what) const {
    const bool open = !ports.empty() && ports.back().kind == PortKind::kVariadic;
    if (open || written <= static_cast<int>(ports.size())) return std::nullopt;
    return Fault(StrCat("expected ", CountText(RequiredPorts(ports), ports.size(), what), ", got ",
                        written));
  }

  std::optional<WrittenFault> Inputs() const {
    for (size_t i = 0; i < op_.inputs().size(); ++i) {
      const Port& port = op_.inputs()[i];
      const bool may_lack =
          port.kind == PortKind::kOptional || (port.kind == PortKind::kVariadic && foreign_);
      if (may_lack || node_.input(static_cast<int>(i)) != nullptr) continue;
      return Fault(StrCat("input ", i, " \"", port.name, "\" is missing"));
    }
    return std::nullopt;
  }

  const Node& node_;
  const OpDef& op_;
  const bool foreign_;
};

bool IsNamePart(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Whether the name at that place stands for an output: `name = ` or `name, `.
bool IsWrittenAt(std::string_view text, size_t at, std::string_view name) {
  if (at > 0 && IsNamePart(text[at - 1])) return false;
  const size_t next = text.find_first_not_of(" \t\n\"", at + name.size());
  return next != std::string_view::npos && (text[next] == '=' || text[next] == ',');
}

}  // namespace

std::string_view PlaceOfNode(const Node& node, std::string_view text) {
  const size_t body = std::min(text.find('{'), text.size());
  for (const Value* output : node.outputs()) {
    if (output == nullptr) continue;
    for (size_t at = text.find(output->name(), body); at != std::string_view::npos;
         at = text.find(output->name(), at + 1)) {
      if (IsWrittenAt(text, at, output->name())) return text.substr(at);
    }
  }
  return text;
}

std::optional<WrittenFault> FaultOfWritten(const Node& node) {
  const std::vector<const OpDef*> versions = VersionsOf(node);
  if (versions.empty()) {
    if (IsOwnDomain(node.domain())) return std::nullopt;
    const absl::Status unknown = UnknownOp(node, kNewestOpset, OpRegistry::Global());
    return WrittenFault{&node, "", StrCat(StdView(unknown.message()), SimilarOps(node))};
  }
  std::optional<WrittenFault> fault;
  for (const OpDef* op : versions) {
    fault = NodeCheck(node, *op).Run();
    if (!fault) return fault;
  }
  return fault;
}

std::optional<WrittenFault> FaultOfWritten(const Graph& body) {
  for (const auto& node : body.nodes()) {
    if (auto fault = FaultOfWritten(*node)) return fault;
  }
  return std::nullopt;
}

}  // namespace pagefuse
