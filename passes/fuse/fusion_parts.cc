#include "pagefuse/passes/fuse/fusion_parts.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/constants.h"

namespace pagefuse {
namespace {

bool IsTableType(const Value& value) {
  return value.dtype() == DataType::kFloat || value.dtype() == DataType::kBfloat16;
}

FusionPort TablePort(std::string name, bool rows) {
  return {.name = std::move(name),
          .role = ProbeRole::kTable,
          .metadata = true,
          .inner = rows,
          .fits = [rows](const Value& value) {
            // Rows may carry an axis for the heads.
            const int rank = Rank(value);
            return IsTableType(value) && (rank == 2 || (rows && rank > 2)) && BackDim(value, 1) > 1;
          }};
}

// Rows of cosines and sines, numbered as they come.
std::string NumberedRows() {
  return "zero = Constant <value_int: int = 0> ()  one = Constant <value_int: int = 1> ()  "
         "row_axis = Constant <value_ints: ints = [0]> ()  "
         "count_list = Shape <start = 0, end = 1> (table)  "
         "count = Squeeze (count_list, row_axis)  places = Range (zero, count, one)  ";
}

}  // namespace

int Rank(const Value& value) { return value.shape() ? value.shape()->rank() : -1; }

int64_t BackDim(const Value& value, int from_end) {
  if (Rank(value) < from_end) return -1;
  return (*value.shape())[Rank(value) - from_end].constant().value_or(-1);
}

bool IsIndexVector(const Value& value) {
  return (value.dtype() == DataType::kInt64 || value.dtype() == DataType::kInt32) &&
         Rank(value) >= 1;
}

bool IsRowType(DataType type) {
  return type == DataType::kFloat || type == DataType::kFloat16 || type == DataType::kBfloat16;
}

bool EndsIn(const Value& value, const std::vector<int64_t>& tail) {
  const int size = static_cast<int>(tail.size());
  if (Rank(value) <= size) return false;
  for (int i = 0; i < size; ++i) {
    if (BackDim(value, size - i) != tail[i]) return false;
  }
  return true;
}

FusionPort RowPort(std::string name, std::vector<int64_t> tail) {
  return {.name = std::move(name),
          .role = ProbeRole::kRows,
          .inner = true,
          .fits = [tail = std::move(tail)](const Value& value) {
            return IsRowType(value.dtype()) && EndsIn(value, tail);
          }};
}

FusionPort SlotPort(std::string name) {
  return {
      .name = std::move(name), .role = ProbeRole::kSlots, .metadata = true, .fits = IsIndexVector};
}

FusionPort PositionPort(std::string name) {
  return {.name = std::move(name),
          .role = ProbeRole::kIndices,
          .metadata = true,
          .inner = true,
          .fits = IsIndexVector};
}

FusionPort CachePort(std::string name, const Value* written) {
  return {
      .name = std::move(name), .role = ProbeRole::kContents, .fits = [written](const Value& value) {
        return value.dtype() == written->dtype() && value.shape() && written->shape() &&
               ProvablyEqual(*value.shape(), *written->shape());
      }};
}

const std::vector<TableForm>& TableForms() {
  const std::string kFlatPositions = ReshapeText("places", "positions", "[-1]");
  static const auto& forms = *new std::vector<TableForm>{
      {.ports = {PositionPort(), TablePort("cos_sin", false)},
       .formal = "positions, cos_sin",
       .prelude = kFlatPositions + "table = Identity (cos_sin)  "},
      {.ports = {PositionPort(), TablePort("cos", false), TablePort("sin", false)},
       .formal = "positions, cos, sin",
       .prelude = kFlatPositions + "table = Concat <axis = -1> (cos, sin)  "},
      {.ports = {TablePort("cos_sin", true)},
       .formal = "cos_sin",
       .prelude = StrCat(ReshapeText("table", "cos_sin", "[-1, @width]"), NumberedRows()),
       .indexed = false},
      {.ports = {TablePort("cos", true), TablePort("sin", true)},
       .formal = "cos, sin",
       .prelude = StrCat(ReshapeText("cos_rows", "cos", "[-1, @half]"),
                         ReshapeText("sin_rows", "sin", "[-1, @half]"),
                         "table = Concat <axis = -1> (cos_rows, sin_rows)  ", NumberedRows()),
       .indexed = false}};
  return forms;
}

std::optional<int64_t> TableWidth(const TableForm& form, const BoundPorts& ports) {
  if (ports.contains("cos_sin")) {
    const int64_t width = BackDim(*ports.at("cos_sin"), 1);
    return width % 2 == 0 ? std::optional(width) : std::nullopt;
  }
  const Value& cos = *ports.at("cos");
  const Value& sin = *ports.at("sin");
  const bool alike = cos.dtype() == sin.dtype() && ProvablyEqual(*cos.shape(), *sin.shape());
  (void)form;
  return alike ? std::optional(2 * BackDim(cos, 1)) : std::nullopt;
}

void SetTableLimit(const TableForm& form, const BoundPorts& ports, Draft& draft) {
  if (!form.indexed) return;
  const Value& table = *ports.at(ports.contains("cos_sin") ? "cos_sin" : "cos");
  constexpr int64_t kSymbolRows = 8;  // as many as a symbol stands for
  draft.limits["positions"] = (*table.shape())[0].constant().value_or(kSymbolRows);
}

std::vector<float> FactorsOn(const ComputedRegion& region, const Value* port) {
  absl::flat_hash_set<const Value*> derived = {port};
  std::vector<float> factors;
  for (const Node* node : region.nodes) {
    const auto& inputs = node->inputs();
    if (std::none_of(inputs.begin(), inputs.end(),
                     [&](const Value* input) { return derived.contains(input); })) {
      continue;
    }
    for (const Value* output : node->outputs()) derived.insert(output);
    if (!node->Is("Mul") && !node->Is("Div")) continue;
    for (const Value* input : inputs) {
      const Tensor* constant = ConstantOf(input);
      const auto number = constant ? ScalarNumber(*constant) : std::nullopt;
      if (!number || *number == 0) continue;
      const bool divides = node->Is("Div") && input == node->input(1);
      factors.push_back(divides ? 1.0f / static_cast<float>(*number) : static_cast<float>(*number));
    }
  }
  return factors;
}

std::vector<float> Epsilons(const ComputedRegion& region) {
  std::vector<float> epsilons;
  const auto add = [&](double number) {
    const auto epsilon = static_cast<float>(number);
    if (epsilon > 0 && epsilon < 0.01f &&
        std::find(epsilons.begin(), epsilons.end(), epsilon) == epsilons.end()) {
      epsilons.push_back(epsilon);
    }
  };
  for (const Node* node : region.nodes) {
    if (const Attribute* attribute = node->attribute("epsilon")) {
      if (const auto* number = std::get_if<float>(&attribute->value)) add(*number);
    }
    if (!node->Is("Add")) continue;
    for (const Value* input : node->inputs()) {
      const Tensor* constant = ConstantOf(input);
      const auto number = constant ? ScalarNumber(*constant) : std::nullopt;
      if (number) add(*number);
    }
  }
  return epsilons;
}

std::vector<int64_t> Divisors(const std::vector<Node*>& nodes) {
  std::vector<int64_t> divisors;
  for (const Node* node : nodes) {
    if (!node->Is("Div") && !node->Is("Mod")) continue;
    const Tensor* constant = ConstantOf(node->input(1));
    if (!constant || !IsInteger(constant->dtype())) continue;
    const auto number = ScalarNumber(*constant);
    if (!number || *number < 1) continue;
    const auto divisor = static_cast<int64_t>(*number);
    if (std::find(divisors.begin(), divisors.end(), divisor) == divisors.end()) {
      divisors.push_back(divisor);
    }
  }
  if (std::find(divisors.begin(), divisors.end(), 1) == divisors.end()) divisors.push_back(1);
  return divisors;
}

std::optional<std::string> ReshapeDims(const Value& value) {
  if (!value.shape()) return std::nullopt;
  std::vector<int64_t> dims;
  for (const Dim& dim : value.shape()->dims()) dims.push_back(dim.constant().value_or(-1));
  if (std::count(dims.begin(), dims.end(), -1) > 1) return std::nullopt;
  return StrCat("[", absl::StrJoin(dims, ", "), "]");
}

std::string FloatText(float value) {
  std::string digits = absl::StrFormat("%.9g", value);
  if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
  return digits;
}

std::string ReshapeText(const std::string& name, const std::string& of, const std::string& dims) {
  return StrCat(name, "_dims = Constant <value_ints: ints = ", dims, "> ()  ", name, " = Reshape (",
                of, ", ", name, "_dims)  ");
}

std::string FlatText(const std::string& name, const std::string& port, const Value& value,
                     const std::vector<int64_t>& tail) {
  if (Rank(value) == static_cast<int>(tail.size()) + 1) {
    return StrCat(name, " = Identity (", port, ")  ");
  }
  return ReshapeText(name, port, StrCat("[-1, ", absl::StrJoin(tail, ", "), "]"));
}

std::string UnflatText(const std::string& name, const std::string& from, const Value& value,
                       const std::string& like, const Value& like_value, int tail) {
  if (const auto dims = ReshapeDims(value)) return ReshapeText(name, from, *dims);
  const int lead = Rank(like_value) - tail;
  std::vector<int64_t> rest;
  for (int axis = 0; axis < Rank(value); ++axis) {
    const Dim& dim = (*value.shape())[axis];
    if (axis < lead) {
      if (!ProvablyEqual(dim, (*like_value.shape())[axis])) return "";
    } else {
      rest.push_back(dim.constant().value_or(-1));
    }
  }
  if (rest.empty() || std::count(rest.begin(), rest.end(), -1) > 0) return "";
  return StrCat(name, "_lead = Shape <start = 0, end = ", lead, "> (", like, ")  ", name,
                "_rest = Constant <value_ints: ints = [", absl::StrJoin(rest, ", "), "]> ()  ",
                name, "_dims = Concat <axis = 0> (", name, "_lead, ", name, "_rest)  ", name,
                " = Reshape (", from, ", ", name, "_dims)  ");
}

std::vector<SlotForm> SlotForms(int64_t block_size) {
  FusionPort slots = SlotPort();
  slots.inner = true;
  const auto index = [](std::string name) {
    FusionPort spec = PositionPort(std::move(name));
    spec.fits = [](const Value& value) { return IsIndexVector(value) && !ConstantOf(&value); };
    return spec;
  };
  return {{{slots}, "slot_mapping", ReshapeText("slots", "slot_mapping", "[-1]"), "slot_mapping"},
          {{index("blocks"), index("places_in_block")},
           "blocks, places_in_block",
           StrCat("block_size = Constant <value_int: int = ", block_size,
                  "> ()  wide = Cast <to = 7> (blocks)  far = Cast <to = 7> (places_in_block)  "
                  "starts = Mul (wide, block_size)  slots_there = Add (starts, far)  ",
                  ReshapeText("slots", "slots_there", "[-1]")),
           "blocks"}};
}

void SetSlotLimits(int64_t blocks, int64_t block_size, Draft& draft) {
  draft.limits["slot_mapping"] = blocks * block_size;
  draft.limits["blocks"] = blocks;
  draft.limits["places_in_block"] = block_size;
}

std::string RowsText(const std::string& name, const std::string& port, const BoundPorts& ports,
                     const SlotForm& slots, const std::vector<int64_t>& tail) {
  const Value& value = *ports.at(port);
  const Value& places = *ports.at(slots.first);
  const bool flat = Rank(value) == static_cast<int>(tail.size()) + 1;
  if (!flat || Rank(places) != 1 || ProvablyEqual((*value.shape())[0], (*places.shape())[0])) {
    return tail.empty() ? ReshapeText(name, port, "[-1]") : FlatText(name, port, value, tail);
  }
  const std::string count = StrCat(name, "_count = Shape (slots)  ");
  if (tail.empty()) return StrCat(count, name, " = Expand (", port, ", ", name, "_count)  ");
  return StrCat(count, name, "_width = Constant <value_ints: ints = [", absl::StrJoin(tail, ", "),
                "]> ()  ", name, "_sizes = Concat <axis = 0> (", name, "_count, ", name,
                "_width)  ", name, " = Expand (", port, ", ", name, "_sizes)  ");
}

}  // namespace pagefuse
