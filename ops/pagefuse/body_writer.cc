// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/body_writer.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/formats/hadamard.h"

namespace pagefuse::pagefuse_ops {
namespace {

std::string Code(DataType type) { return StrCat(static_cast<int>(type)); }

// A float as a number that the text form reads back to the same bits.
std::string Digits(float value) {
  std::string digits = absl::StrFormat("%.9g", value);
  if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
  return digits;
}

std::string NameOf(std::string text) {
  return absl::StrReplaceAll(text, {{"-", "m"}, {".", "p"}, {"+", ""}});
}

}  // namespace

std::string BodyWriter::Add(std::string_view call) {
  const std::string name = StrCat("t", ++next_);
  Set(name, call);
  return name;
}

std::string BodyWriter::Call(std::string_view op, const std::vector<std::string>& inputs) {
  return Add(StrCat(op, " (", absl::StrJoin(inputs, ", "), ")"));
}

void BodyWriter::Set(std::string_view name, std::string_view call) {
  StrAppend(&lines_, "  ", name, " = ", call, "\n");
}

std::pair<std::string, std::string> BodyWriter::AddPair(std::string_view call) {
  const std::string first = StrCat("t", ++next_);
  const std::string second = StrCat("t", ++next_);
  Set(StrCat(first, ", ", second), call);
  return {first, second};
}

void BodyWriter::Comment(std::string_view text) { StrAppend(&lines_, "  # ", text, "\n"); }

std::string BodyWriter::Constant(std::string name, std::string_view attribute) {
  if (std::find(constants_.begin(), constants_.end(), name) == constants_.end()) {
    constants_.push_back(name);
    Set(name, StrCat("Constant <", attribute, "> ()"));
  }
  return name;
}

std::string BodyWriter::Int(int64_t value) {
  return Constant(NameOf(StrCat("i_", value)), StrCat("value_int: int = ", value));
}

std::string BodyWriter::Ints(const std::vector<int64_t>& values) {
  return Constant(NameOf(StrCat("l_", absl::StrJoin(values, "_"))),
                  StrCat("value_ints: ints = [", absl::StrJoin(values, ", "), "]"));
}

std::string BodyWriter::Float(float value) {
  return Constant(NameOf(StrCat("f_", Digits(value))),
                  StrCat("value_float: float = ", Digits(value)));
}

std::string BodyWriter::FloatAttribute(std::string_view attribute) {
  return Constant(StrCat("attribute_", attribute), StrCat("value_float: float = @", attribute));
}

std::string BodyWriter::Cast(const std::string& x, DataType to) {
  return Call(StrCat("Cast <to = ", Code(to), ">"), {x});
}

std::string BodyWriter::CastFrom(const std::string& x, DataType from, DataType to) {
  return from == to ? x : Cast(x, to);
}

std::string BodyWriter::BitCast(const std::string& x, DataType to) {
  return Call(StrCat("BitCast <to = ", Code(to), ">"), {x});
}

std::string BodyWriter::Reshape(const std::string& x, const std::vector<int64_t>& dims) {
  return Call("Reshape", {x, Ints(dims)});
}

std::string BodyWriter::Slice(const std::string& x, int64_t begin, int64_t end, int64_t axis,
                              int64_t step) {
  std::vector<std::string> inputs = {x, Ints({begin}), Ints({end}), Ints({axis})};
  if (step != 1) inputs.push_back(Ints({step}));
  return Call("Slice", inputs);
}

std::string BodyWriter::Function(std::string_view name, std::string_view inputs,
                                 std::string_view outputs) const {
  return StrCat(name, " (", inputs, ") => (", outputs, ") {\n", lines_, "}\n");
}

namespace {

bool IsNameChar(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// "a, b" of each line "a, b = Op (..)".
absl::flat_hash_set<std::string> AssignedNames(std::string_view lines) {
  absl::flat_hash_set<std::string> names;
  for (const auto line : absl::StrSplit(AbslView(lines), '\n')) {
    const auto equals = line.find(" = ");
    if (equals == absl::string_view::npos) continue;
    for (const auto name : absl::StrSplit(line.substr(0, equals), ',')) {
      names.emplace(absl::StripAsciiWhitespace(name));
    }
  }
  return names;
}

}  // namespace

std::string WithPrefix(std::string_view lines, std::string_view prefix,
                       const std::vector<std::string>& kept) {
  absl::flat_hash_set<std::string> names = AssignedNames(lines);
  for (const std::string& name : kept) names.erase(name);
  std::string text;
  bool in_attributes = false;
  for (size_t i = 0; i < lines.size();) {
    size_t end = i;
    while (end < lines.size() && IsNameChar(lines[end])) ++end;
    if (end == i) {
      if (lines[i] == '<') in_attributes = true;
      if (lines[i] == '>') in_attributes = false;
      text += lines[i++];
      continue;
    }
    const std::string name(lines.substr(i, end - i));
    if (!in_attributes && names.contains(name)) text += prefix;
    text += name;
    i = end;
  }
  return text;
}

// H[i][j] = (-1)^(number of common one bits of i and j).
void WriteHadamard(BodyWriter& w) {
  w.Set("d0", "Squeeze (d)");
  w.Set("channel", StrCat("Range (", w.Int(0), ", d0, ", w.Int(1), ")"));
  const std::string row = w.Call("Unsqueeze", {"channel", w.Ints({1})});
  const std::string column = w.Call("Unsqueeze", {"channel", w.Ints({0})});
  std::string x = w.Cast(w.Call("BitwiseAnd", {row, column}), DataType::kUint32);
  for (int shift : {16, 8, 4, 2, 1}) {
    const std::string by = w.Cast(w.Int(shift), DataType::kUint32);
    x = w.Call("BitwiseXor", {x, w.Call("BitShift <direction = \"RIGHT\">", {x, by})});
  }
  const std::string one = w.Cast(w.Int(1), DataType::kUint32);
  const std::string odd = w.Cast(w.Call("BitwiseAnd", {x, one}), DataType::kFloat);
  const std::string twice = w.Call("Mul", {odd, w.Float(2)});
  w.Set("hadamard", StrCat("Sub (", w.Float(1), ", ", twice, ")"));
}

KeptRows WriteKeptRows(BodyWriter& w, const std::string& slot_mapping, DataType type) {
  const std::string slots = w.CastFrom(slot_mapping, type, DataType::kInt64);
  w.Comment("the tokens that are written");
  const std::string written = w.Call("GreaterOrEqual", {slots, w.Int(0)});
  const std::string keep = w.Call("Squeeze", {w.Call("NonZero", {written}), w.Ints({0})});
  return {keep, w.Call("Gather <axis = 0>", {slots, keep})};
}

CosSinText WriteCosSin(BodyWriter& w, const std::string& table, DataType table_type,
                       const std::string& positions) {
  const std::string rows = w.Call("Gather <axis = 0>", {table, positions});
  const std::string wide = w.CastFrom(rows, table_type, DataType::kFloat);
  const auto [cos, sin] = w.AddPair(StrCat("Split <axis = -1, num_outputs = 2> (", wide, ")"));
  return {cos, sin};
}

std::string WriteRope(BodyWriter& w, const std::string& x, const CosSinText& table,
                      const RopeText& rope) {
  const RopeLayout& layout = rope.layout;
  if (layout.pairs == 0) return x;
  const int64_t rotated = 2 * layout.pairs;
  const int64_t end = layout.offset + rotated;
  CosSinText cs = table;
  if (rope.heads > 0) {
    cs = {w.Call("Unsqueeze", {table.cos, w.Ints({1})}),
          w.Call("Unsqueeze", {table.sin, w.Ints({1})})};
  }
  const bool pairs_apart = !layout.interleaved;
  const int64_t middle = layout.offset + layout.pairs;
  const std::string a =
      pairs_apart ? w.Slice(x, layout.offset, middle, -1) : w.Slice(x, layout.offset, end, -1, 2);
  const std::string b =
      pairs_apart ? w.Slice(x, middle, end, -1) : w.Slice(x, layout.offset + 1, end, -1, 2);
  const std::string ac = w.Call("Mul", {a, cs.cos});
  const std::string bs = w.Call("Mul", {b, cs.sin});
  const std::string bc = w.Call("Mul", {b, cs.cos});
  const std::string as = w.Call("Mul", {a, cs.sin});
  const bool inverse = rope.direction == RopeDirection::kInverse;
  const std::string first = w.Call(inverse ? "Add" : "Sub", {ac, bs});
  const std::string second = w.Call(inverse ? "Sub" : "Add", {bc, as});
  std::string tail;
  if (pairs_apart) {
    tail = w.Call("Concat <axis = -1>", {first, second});
  } else {
    const std::string axis = w.Ints({-1});
    const std::string both = w.Call("Concat <axis = -1>", {w.Call("Unsqueeze", {first, axis}),
                                                           w.Call("Unsqueeze", {second, axis})});
    tail = w.Reshape(both, rope.heads > 0 ? std::vector<int64_t>{-1, rope.heads, rotated}
                                          : std::vector<int64_t>{-1, rotated});
  }
  if (rope.round_rotated) tail = w.Cast(w.Cast(tail, DataType::kBfloat16), DataType::kFloat);
  std::vector<std::string> parts;
  if (layout.offset > 0) parts.push_back(w.Slice(x, 0, layout.offset, -1));
  parts.push_back(tail);
  if (end < rope.size) parts.push_back(w.Slice(x, end, rope.size, -1));
  return parts.size() == 1 ? tail : w.Call("Concat <axis = -1>", parts);
}

// By butterflies, whose sums are those of the kernels: at distance h a row is [size / 2h, 2, h].
std::string WriteHadamardRotation(BodyWriter& w, const std::string& x,
                                  const std::vector<int64_t>& dims, bool round) {
  const int64_t size = dims.back();
  std::string y = x;
  for (int64_t h = 1; h < size; h *= 2) {
    const std::string pairs = w.Reshape(y, {-1, size / (2 * h), 2, h});
    const auto [a, b] = w.AddPair(StrCat("Split <axis = 2, num_outputs = 2> (", pairs, ")"));
    y = w.Call("Concat <axis = 2>", {w.Call("Add", {a, b}), w.Call("Sub", {a, b})});
  }
  y = w.Call("Mul", {w.Reshape(y, dims), w.Float(HadamardEntry(size))});
  return round ? w.Cast(w.Cast(y, DataType::kBfloat16), DataType::kFloat) : y;
}

std::string WriteNorm(BodyWriter& w, const std::string& x, const std::string& eps) {
  const std::string squares = w.Call("Mul", {x, x});
  const std::string mean = w.Call("ReduceMean", {squares, w.Ints({-1})});
  const std::string root = w.Call("Sqrt", {w.Call("Add", {mean, eps})});
  return w.Call("Mul", {x, w.Call("Reciprocal", {root})});
}

absl::StatusOr<int64_t> NumberOf(const Node& node, int input, int axis) {
  const Value* value = node.input(input);
  if (value != nullptr && value->shape()) {
    const Shape& shape = *value->shape();
    if (axis < 0) axis += shape.rank();
    if (axis >= 0 && axis < shape.rank() && shape[axis].is_constant()) {
      return *shape[axis].constant();
    }
  }
  return absl::FailedPreconditionError(StrCat(node.Description(), ": the decomposition needs dim ",
                                              axis, " of input ", input, " as a number"));
}

}  // namespace pagefuse::pagefuse_ops
