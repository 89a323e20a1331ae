// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/attention/turboquant_body.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"

namespace pagefuse::pagefuse_ops {

std::string Call(std::string_view op, std::string_view a, std::string_view b) {
  return StrCat(op, " (", a, ", ", b, ")");
}

namespace {

// ceil(d * bits / 8): d fills whole bytes.
std::string CodeBytes(BodyWriter& w, int bits) {
  if (bits == 8) return "d";
  const std::string all = w.Add(Call("Mul", "d", w.Ints({bits})));
  return w.Add(Call("Div", all, w.Ints({8})));
}

// Walks through the fields of `slots`.
class Fields {
 public:
  explicit Fields(BodyWriter& w) : w_(w), at_(w.Ints({0})) {}

  // The next `bytes` (a value [1]) of each slot.
  std::string Next(const std::string& bytes) {
    const std::string end = w_.Add(Call("Add", at_, bytes));
    const std::string field =
        w_.Add(StrCat("Slice (slots, ", at_, ", ", end, ", ", w_.Ints({-1}), ")"));
    at_ = end;
    return field;
  }
  // The next float16 as a float, with a last axis of 1.
  std::string NextHalf() {
    const std::string wide = w_.Add(StrCat("Cast <to = 4> (", Next(w_.Ints({2})), ")"));
    const std::string low = w_.Add(Call("Gather <axis = -1>", wide, w_.Int(0)));
    const std::string high = w_.Add(Call("Gather <axis = -1>", wide, w_.Int(1)));
    const std::string eight = w_.Add(StrCat("Cast <to = 4> (", w_.Int(8), ")"));
    const std::string shifted = w_.Add(Call("BitShift <direction = \"LEFT\">", high, eight));
    const std::string bits = w_.Add(Call("BitwiseOr", low, shifted));
    const std::string half = w_.Add(StrCat("BitCast <to = 10> (", bits, ")"));
    const std::string number = w_.Add(StrCat("Cast <to = 1> (", half, ")"));
    return w_.Add(Call("Unsqueeze", number, w_.Ints({-1})));
  }

 private:
  BodyWriter& w_;
  std::string at_;
};

// `count` as a value [1] behind three axes that stay.
std::string RowShape(BodyWriter& w, const std::vector<std::string>& last) {
  return w.Add(
      StrCat("Concat <axis = 0> (", w.Ints({0, 0, 0}), ", ", absl::StrJoin(last, ", "), ")"));
}

// int64 codes [X, N, Hk, D] of packed bytes.
std::string Unpack(BodyWriter& w, int bits, const std::string& bytes) {
  const std::string shape = RowShape(w, {"d"});
  if (bits == 4) {
    const std::string mask = w.Add(StrCat("Cast <to = 2> (", w.Int(15), ")"));
    const std::string four = w.Add(StrCat("Cast <to = 2> (", w.Int(4), ")"));
    const std::string low = w.Add(Call("BitwiseAnd", bytes, mask));
    const std::string high = w.Add(Call("BitShift <direction = \"RIGHT\">", bytes, four));
    const std::string low1 = w.Add(Call("Unsqueeze", low, w.Ints({-1})));
    const std::string high1 = w.Add(Call("Unsqueeze", high, w.Ints({-1})));
    const std::string pairs = w.Add(Call("Concat <axis = -1>", low1, high1));
    return w.Add(StrCat("Cast <to = 7> (", w.Add(Call("Reshape", pairs, shape)), ")"));
  }
  // Eight elements in three bytes.
  const std::string wide = w.Add(StrCat("Cast <to = 12> (", bytes, ")"));
  const std::string groups = w.Add(Call("Div", "d", w.Ints({8})));
  const std::string triple_shape = RowShape(w, {groups, w.Ints({3})});
  const std::string triples = w.Add(Call("Reshape", wide, triple_shape));
  const std::string places = w.Add(StrCat("Cast <to = 12> (", w.Ints({0, 8, 16}), ")"));
  const std::string placed = w.Add(Call("BitShift <direction = \"LEFT\">", triples, places));
  const std::string signed_bytes = w.Add(StrCat("Cast <to = 7> (", placed, ")"));
  const std::string sum = w.Add(Call("ReduceSum <keepdims = 1>", signed_bytes, w.Ints({-1})));
  const std::string word = w.Add(StrCat("Cast <to = 12> (", sum, ")"));
  const std::string shifts =
      w.Add(StrCat("Cast <to = 12> (", w.Ints({0, 3, 6, 9, 12, 15, 18, 21}), ")"));
  const std::string moved = w.Add(Call("BitShift <direction = \"RIGHT\">", word, shifts));
  const std::string seven = w.Add(StrCat("Cast <to = 12> (", w.Ints({7}), ")"));
  const std::string codes = w.Add(Call("BitwiseAnd", moved, seven));
  return w.Add(StrCat("Cast <to = 7> (", w.Add(Call("Reshape", codes, shape)), ")"));
}

// uint8 [T, Hk, D * bits / 8] of int64 codes [T, Hk, D].
std::string Pack(BodyWriter& w, int bits, const std::string& codes) {
  const int64_t group = bits == 4 ? 2 : 8;
  const std::string groups = w.Add(Call("Div", "d", w.Ints({group})));
  const std::string shape = w.Add(
      StrCat("Concat <axis = 0> (", w.Ints({0, 0}), ", ", groups, ", ", w.Ints({group}), ")"));
  const std::string grouped = w.Add(Call("Reshape", codes, shape));
  if (bits == 4) {
    const std::string placed = w.Add(Call("Mul", grouped, w.Ints({1, 16})));
    const std::string bytes = w.Add(Call("ReduceSum <keepdims = 0>", placed, w.Ints({-1})));
    return w.Add(StrCat("Cast <to = 2> (", bytes, ")"));
  }
  const std::string powers = w.Ints({1, 8, 64, 512, 4096, 32768, 262144, 2097152});
  const std::string placed = w.Add(Call("Mul", grouped, powers));
  const std::string word = w.Add(Call("ReduceSum <keepdims = 1>", placed, w.Ints({-1})));
  const std::string moved = w.Add(Call("Div", word, w.Ints({1, 256, 65536})));
  const std::string bytes = w.Add(Call("Mod", moved, w.Int(256)));
  const std::string row =
      w.Add(StrCat("Concat <axis = 0> (", w.Ints({0, 0}), ", ", CodeBytes(w, bits), ")"));
  return w.Add(StrCat("Cast <to = 2> (", w.Add(Call("Reshape", bytes, row)), ")"));
}

// The two bytes of numbers [T, Hk, 1] as float16.
std::string HalfBytes(BodyWriter& w, const std::string& numbers) {
  const std::string half = w.Add(StrCat("Cast <to = 10> (", numbers, ")"));
  const std::string bits = w.Add(StrCat("BitCast <to = 4> (", half, ")"));
  const std::string mask = w.Add(StrCat("Cast <to = 4> (", w.Int(255), ")"));
  const std::string eight = w.Add(StrCat("Cast <to = 4> (", w.Int(8), ")"));
  const std::string low = w.Add(Call("BitwiseAnd", bits, mask));
  const std::string high = w.Add(Call("BitShift <direction = \"RIGHT\">", bits, eight));
  const std::string both = w.Add(Call("Concat <axis = -1>", low, high));
  return w.Add(StrCat("Cast <to = 2> (", both, ")"));
}

// The bytes of key rows `k`: codes, then norms.
std::vector<std::string> KeyCodes(const TurboQuantBody& body, BodyWriter& w) {
  if (!body.has_rotated_keys()) {
    const std::string codes = w.Add("Cast <to = 17, saturate = 1> (k)");
    return {w.Add(StrCat("BitCast <to = 2> (", codes, ")"))};
  }
  const int64_t levels = int64_t{1} << body.key_bits;
  w.Set("norm", StrCat("ReduceL2 <keepdims = 1> (k, ", w.Ints({2}), ")"));
  const std::string divisor = w.Add(Call("Add", "norm", w.Float(kTurboQuantNormFloor)));
  const std::string x = w.Add(Call("Div", "k", divisor));
  const std::string inverse = w.Add("Transpose <perm = [1, 0]> (rotation)");
  const std::string y = w.Add(Call("MatMul", x, inverse));
  const std::string axis = w.Ints({0});
  const std::string lower =
      w.Add(StrCat("Slice (centroids, ", axis, ", ", w.Ints({levels - 1}), ")"));
  const std::string upper =
      w.Add(StrCat("Slice (centroids, ", w.Ints({1}), ", ", w.Ints({levels}), ")"));
  const std::string sums = w.Add(Call("Add", lower, upper));
  w.Set("midpoints", Call("Mul", sums, w.Float(0.5f)));
  const std::string y1 = w.Add(Call("Unsqueeze", y, w.Ints({-1})));
  const std::string reached = w.Add(Call("GreaterOrEqual", y1, "midpoints"));
  const std::string ones = w.Add(StrCat("Cast <to = 7> (", reached, ")"));
  const std::string index = w.Add(Call("ReduceSum <keepdims = 0>", ones, w.Ints({-1})));
  const std::string codes = Pack(w, body.key_bits, index);
  return {codes, HalfBytes(w, "norm")};
}

// The bytes of value rows `v`: codes, scales, zeros.
std::vector<std::string> ValueCodes(const TurboQuantBody& body, BodyWriter& w) {
  const std::string axis = w.Ints({2});
  const std::string most = w.Float(body.value_bits == 3 ? 7 : 15);
  w.Set("v_low", Call("ReduceMin <keepdims = 1>", "v", axis));
  const std::string high = w.Add(Call("ReduceMax <keepdims = 1>", "v", axis));
  const std::string range = w.Add(Call("Sub", high, "v_low"));
  const std::string step = w.Add(Call("Div", range, most));
  w.Set("v_step", Call("Max", step, w.Float(kTurboQuantScaleFloor)));
  const std::string above = w.Add(Call("Sub", "v", "v_low"));
  const std::string steps = w.Add(Call("Div", above, "v_step"));
  const std::string place = w.Add(Call("Add", steps, w.Float(0.5f)));
  const std::string whole = w.Add(StrCat("Floor (", place, ")"));
  const std::string clipped = w.Add(StrCat("Clip (", whole, ", ", w.Float(0), ", ", most, ")"));
  const std::string codes =
      Pack(w, body.value_bits, w.Add(StrCat("Cast <to = 7> (", clipped, ")")));
  const std::string steps_bytes = HalfBytes(w, "v_step");
  return {codes, steps_bytes, HalfBytes(w, "v_low")};
}

}  // namespace

void WriteTurboQuantTables(const TurboQuantBody& body, BodyWriter& w) {
  if (!body.has_rotated_keys()) return;
  if (!body.has_rotation) {
    w.Comment("the default rotation: Sylvester-Hadamard matrix / sqrt(D)");
    WriteHadamard(w);
    const std::string size = w.Add("Cast <to = 1> (d)");
    const std::string root = w.Add(StrCat("Sqrt (", size, ")"));
    w.Set("rotation", Call("Div", "hadamard", root));
  }
  if (body.has_centroids) return;
  std::vector<std::string> numbers;
  for (const float c : DefaultCentroids(body.head_size, body.key_bits)) {
    numbers.push_back(absl::StrFormat("%.9g", c));
  }
  w.Set("centroids",
        StrCat("Constant <value_floats: floats = [", absl::StrJoin(numbers, ", "), "]> ()"));
}

void WriteTurboQuantRows(const TurboQuantBody& body, BodyWriter& w) {
  Fields fields(w);
  w.Comment("keys");
  const std::string key_bytes = fields.Next(CodeBytes(w, body.key_bits));
  if (!body.has_rotated_keys()) {
    w.Set("k_rows",
          StrCat("Cast <to = 1> (", w.Add(StrCat("BitCast <to = 17> (", key_bytes, ")")), ")"));
  } else {
    const std::string indices = Unpack(w, body.key_bits, key_bytes);
    std::string c = w.Add(Call("Gather <axis = 0>", "centroids", indices));
    if (body.norm_correction) {
      const std::string squares = w.Add(Call("ReduceSumSquare <keepdims = 1>", c, w.Ints({-1})));
      const std::string sum = w.Add(Call("Add", squares, w.Float(kTurboQuantSquareFloor)));
      c = w.Add(Call("Div", c, w.Add(StrCat("Sqrt (", sum, ")"))));
    }
    w.Set("k_rows", Call("Mul", c, fields.NextHalf()));
  }
  w.Comment("values");
  const std::string codes = Unpack(w, body.value_bits, fields.Next(CodeBytes(w, body.value_bits)));
  const std::string numbers = w.Add(StrCat("Cast <to = 1> (", codes, ")"));
  const std::string scaled = w.Add(Call("Mul", numbers, fields.NextHalf()));
  w.Set("v_rows", Call("Add", scaled, fields.NextHalf()));
}

std::string WriteTurboQuantCodes(const TurboQuantBody& body, BodyWriter& w) {
  w.Comment("keys");
  std::vector<std::string> pieces = KeyCodes(body, w);
  w.Comment("values");
  for (std::string& piece : ValueCodes(body, w)) pieces.push_back(std::move(piece));
  return absl::StrJoin(pieces, ", ");
}

}  // namespace pagefuse::pagefuse_ops
