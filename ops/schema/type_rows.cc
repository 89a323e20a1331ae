// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/type_rows.h"

#include <algorithm>
#include <map>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/schema/port_checks.h"
#include "pagefuse/ops/schema/signature.h"

namespace pagefuse {
namespace {

// Something that types depend on, with the values that it may have: a type variable, an attribute,
// whether a port is given.
struct Axis {
  std::string name;
  std::vector<std::string> values;
};

constexpr std::string_view kGiven = "given";
constexpr std::string_view kOther = "";  // of an attribute: none of those that types ask for

const std::vector<DataType>* VariableTypes(const OpDef& op, std::string_view name) {
  for (const auto& [variable, types] : op.types()) {
    if (variable == name) return &types;
  }
  return nullptr;
}

// Every combination of the axes' values, the first value of each first.
class Rows {
 public:
  Rows(const OpDef& op, const Signature& signature) : op_(op), signature_(signature) {}

  std::vector<TypeRow> Run() {
    for (const PortSignature& port : signature_.outputs) AddAxes(port);
    Walk(0);
    return std::move(rows_);
  }

 private:
  using Values = std::map<std::string, std::string, std::less<>>;

  void AddAxes(const PortSignature& port) {
    for (const auto& [condition, type] : port.type) {
      if (condition) AddCondition(*condition);
      AddType(type);
    }
  }

  void AddType(const std::string& type) {
    if (const std::vector<DataType>* types = VariableTypes(op_, type)) {
      std::vector<std::string> names;
      for (const DataType each : *types) names.emplace_back(DataTypeName(each));
      // An output that no input tells is what the first one is, unless an attribute says more.
      const Choice<std::string>& first = signature_.inputs[0].type;
      if (!IsOfInput(type) && first.size() == 1 && first[0].second != type)
        AddType(first[0].second);
      AddAxis(type, names);
    } else if (const int place = PlaceOf(op_.attributes(), type); place >= 0) {
      AddAxis(type, op_.attributes()[place].names);
    }
  }

  bool IsOfInput(const std::string& variable) const {
    return std::ranges::any_of(signature_.inputs, [&](const PortSignature& port) {
      return std::ranges::any_of(port.type,
                                 [&](const auto& each) { return each.second == variable; });
    });
  }

  void AddCondition(const PortCondition& condition) {
    if (!condition.value)
      return AddAxis(condition.name, {std::string(kOther), std::string(kGiven)});
    // What the attribute is where nobody says it comes first.
    const AttributeDef& def = op_.attributes()[PlaceOf(op_.attributes(), condition.name)];
    const auto* by_default = std::get_if<std::string>(&def.default_value);
    Axis& axis = AxisOf(condition.name);
    const bool is_first = by_default != nullptr && *by_default == *condition.value;
    if (axis.values.empty()) axis.values = {std::string(kOther)};
    if (std::ranges::count(axis.values, *condition.value) > 0) return;
    axis.values.insert(is_first ? axis.values.begin() : axis.values.end(), *condition.value);
  }

  void AddAxis(const std::string& name, const std::vector<std::string>& values) {
    Axis& axis = AxisOf(name);
    if (axis.values.empty()) axis.values = values;
  }

  Axis& AxisOf(const std::string& name) {
    for (Axis& axis : axes_) {
      if (axis.name == name) return axis;
    }
    return axes_.emplace_back(Axis{name, {}});
  }

  void Walk(size_t axis) {
    if (axis == axes_.size()) return AddRow();
    for (const std::string& value : axes_[axis].values) {
      values_[axes_[axis].name] = value;
      Walk(axis + 1);
    }
  }

  bool HoldsHere(const PortCondition& condition) const {
    const auto value = values_.find(condition.name);
    const bool holds =
        value != values_.end() && value->second == (condition.value ? *condition.value : kGiven);
    return holds != condition.negated;
  }

  // True if the combination says which of the types it is.
  bool Tells(const Choice<std::string>& choice) const {
    return std::ranges::all_of(choice, [&](const auto& each) {
      return !each.first || values_.count(each.first->name) > 0;
    });
  }

  const std::string& Here(const Choice<std::string>& choice) const {
    size_t i = 0;
    while (i + 1 < choice.size() && !HoldsHere(*choice[i].first)) ++i;
    return choice[i].second;
  }

  std::optional<DataType> InputType(const PortSignature& port) const {
    if (!Tells(port.type)) return std::nullopt;
    const std::string& name = Here(port.type);
    const auto value = values_.find(name);
    if (value != values_.end()) return DataTypeFromName(value->second);
    return port.type.size() > 1 ? DataTypeFromName(name) : std::nullopt;
  }

  DataType OutputType(const PortSignature& port) const {
    const std::string& name = Here(port.type);
    const auto value = values_.find(name);
    const DataType type = DataTypeFromName(value == values_.end() ? name : value->second)
                              .value_or(DataType::kUndefined);
    return IsBoundByInput(name) || !IsFloat8(type) ? type : DataType::kUint8;
  }

  bool IsBoundByInput(std::string_view variable) const {
    return std::ranges::any_of(op_.inputs(), [&](const Port& port) {
      const PortSignature& signature = signature_.inputs[&port - op_.inputs().data()];
      return Here(signature.type) == variable && VariableTypes(op_, variable) != nullptr;
    });
  }

  void AddRow() {
    TypeRow row;
    for (const PortSignature& port : signature_.inputs) row.inputs.push_back(InputType(port));
    for (const PortSignature& port : signature_.outputs) row.outputs.push_back(OutputType(port));
    if (std::ranges::find(rows_, row) == rows_.end()) rows_.push_back(std::move(row));
  }

  const OpDef& op_;
  const Signature& signature_;
  std::vector<Axis> axes_;
  Values values_;
  std::vector<TypeRow> rows_;
};

// An output that nothing tells has the type of the first input, as far as it may.
bool FollowsFirstInput(const TypeRow& row) {
  return !row.inputs.empty() && row.inputs[0] && row.outputs[0] == *row.inputs[0];
}

// True if a node may have the inputs of both.
bool Overlap(const TypeRow& a, const TypeRow& b) {
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    if (a.inputs[i] && b.inputs[i] && *a.inputs[i] != *b.inputs[i]) return false;
  }
  return true;
}

void NameSaidTypes(std::vector<TypeRow>& rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < i && rows[i].said_type.empty(); ++j) {
      if (!rows[j].said_type.empty() || !Overlap(rows[i], rows[j])) continue;
      const auto differs =
          std::mismatch(rows[i].outputs.begin(), rows[i].outputs.end(), rows[j].outputs.begin());
      if (differs.first == rows[i].outputs.end()) continue;
      rows[i].said_type = DataTypeName(*differs.first);
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<TypeRow>> TypeRows(const OpDef& op) {
  PF_ASSIGN_OR_RETURN(const std::shared_ptr<const Signature> signature, Signature::Make(op));
  std::vector<TypeRow> rows = Rows(op, *signature).Run();
  std::stable_partition(rows.begin(), rows.end(), FollowsFirstInput);
  NameSaidTypes(rows);
  std::stable_partition(rows.begin(), rows.end(),
                        [](const TypeRow& row) { return row.said_type.empty(); });
  return rows;
}

const TypeRow* FindTypeRow(const std::vector<TypeRow>& rows, const std::vector<DataType>& inputs,
                           const std::vector<DataType>& outputs) {
  const auto fits = [](DataType of_node, DataType of_row) {
    return of_node == DataType::kUndefined || of_node == of_row;
  };
  for (const TypeRow& row : rows) {
    bool is_it = true;
    for (size_t i = 0; i < inputs.size() && i < row.inputs.size(); ++i) {
      is_it = is_it && (!row.inputs[i] || fits(inputs[i], *row.inputs[i]));
    }
    for (size_t i = 0; i < outputs.size() && i < row.outputs.size(); ++i) {
      is_it = is_it && fits(outputs[i], row.outputs[i]);
    }
    if (is_it) return &row;
  }
  return nullptr;
}

}  // namespace pagefuse
