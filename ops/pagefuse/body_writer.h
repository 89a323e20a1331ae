// SPDX-License-Identifier: Apache-2.0
// Writes the body of a decomposition as ONNX text, node by node, and the parts that the cache ops
// share: rotation, quantisation in groups, bytes of rows, addresses in paged caches.
//
//   BodyWriter w;
//   const KeptRows kept = WriteKeptRows(w, "slot_mapping");
//   const std::string rows = w.Call("Gather <axis = 0>", {"k", kept.keep});
//   const GroupText groups = WriteGroups(w, w.Cast(rows, DataType::kFloat), {...});
//   ...
//   w.Set("kv_cache_out", ...);
//   return w.Function("KCacheQuantInsert", "k, slot_mapping, kv_cache", "kv_cache_out");
//
// Functions that return a string return the name of a value. Where the text needs a size it is a
// number; the count of tokens stays open. Opset 26 (BitCast).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/kernels/rows/rope_row.h"

namespace pagefuse::pagefuse_ops {

class BodyWriter {
 public:
  // t7 = <call>
  std::string Add(std::string_view call);
  // t7 = <op> (<inputs>); `op` has its attributes: "Gather <axis = 0>"
  std::string Call(std::string_view op, const std::vector<std::string>& inputs);
  // name = <call>
  void Set(std::string_view name, std::string_view call);
  // Two outputs: first, second = <call>
  std::pair<std::string, std::string> AddPair(std::string_view call);
  void Comment(std::string_view text);
  // Lines as they are.
  void Lines(std::string_view lines) { lines_ += lines; }

  // Constants, each written once: a scalar, a list, a scalar float (exact digits), and one that a
  // matcher binds to an attribute of the op.
  std::string Int(int64_t value);
  std::string Ints(const std::vector<int64_t>& values);
  std::string Float(float value);
  // One with a name of its own: name = Constant <attribute> ()
  std::string Constant(std::string name, std::string_view attribute);
  std::string FloatAttribute(std::string_view attribute);

  std::string Cast(const std::string& x, DataType to);
  // A node only where the type is another one.
  std::string CastFrom(const std::string& x, DataType from, DataType to);
  std::string BitCast(const std::string& x, DataType to);
  std::string Reshape(const std::string& x, const std::vector<int64_t>& dims);
  // x[..., begin:end:step] on one axis.
  std::string Slice(const std::string& x, int64_t begin, int64_t end, int64_t axis,
                    int64_t step = 1);

  // "Name (inputs) => (outputs) { lines }"
  std::string Function(std::string_view name, std::string_view inputs,
                       std::string_view outputs) const;
  const std::string& lines() const { return lines_; }

 private:
  std::string lines_;
  std::vector<std::string> constants_;  // names already written
  int next_ = 0;
};

// Lines of a function's text where the names that they assign begin with `prefix`, so that they can
// stand beside others; names in `kept` stay. Names of attributes are no such names.
std::string WithPrefix(std::string_view lines, std::string_view prefix,
                       const std::vector<std::string>& kept);

// `hadamard`, the Sylvester-Hadamard matrix of size `d` (a value [1]): entries 1 and -1.
void WriteHadamard(BodyWriter& w);

// The tokens that an insert writes: their numbers and their slots, both int64 [N].
struct KeptRows {
  std::string keep;
  std::string slots;
};
KeptRows WriteKeptRows(BodyWriter& w, const std::string& slot_mapping,
                       DataType type = DataType::kInt64);

// cos and sin of each position, float [T, R/2], from a table [P, R] of cosines, then sines.
struct CosSinText {
  std::string cos;
  std::string sin;
};
CosSinText WriteCosSin(BodyWriter& w, const std::string& table, DataType table_type,
                       const std::string& positions);

// The rotation of RotateRow for float x [T, size], or [T, heads, size] with heads > 0.
struct RopeText {
  RopeLayout layout;
  int64_t size = 0;
  int64_t heads = 0;
  RopeDirection direction = RopeDirection::kForward;
  bool round_rotated = false;  // the rotated channels to bfloat16 and back
};
std::string WriteRope(BodyWriter& w, const std::string& x, const CosSinText& table,
                      const RopeText& rope);

// HadamardRotate of each row of float x [lead..., size], `dims` as Reshape takes them; behind it
// rounded to bfloat16 and back with `round`.
std::string WriteHadamardRotation(BodyWriter& w, const std::string& x,
                                  const std::vector<int64_t>& dims, bool round);

// The RMS norm of float x over its last axis, without weight: x / sqrt(mean(x^2) + eps).
std::string WriteNorm(BodyWriter& w, const std::string& x, const std::string& eps);

// Quantisation in groups along the last axis of float x [lead..., size].
struct GroupTextOptions {
  GroupFormat format;
  std::vector<int64_t> lead = {-1};  // as Reshape takes it: {-1} or {-1, heads}
  int64_t size = 0;
  int64_t group = 0;
  // The floor bounds amax / largest code and not amax: the same for a floor that the largest code
  // divides.
  bool floor_last = false;
  bool clip = true;  // Clip to the largest code before the cast to e4m3fn
};
struct GroupText {
  std::string codes;     // e4m3fn [lead..., groups, group], or packed uint8 [lead..., size / 2]
  std::string scale;     // float [lead..., groups, 1]
  std::string exponent;  // float [lead..., groups, 1]; empty for GroupScale::kFloat
};
GroupText WriteGroups(BodyWriter& w, const std::string& x, const GroupTextOptions& options);

// Elements of packed e2m1 codes, uint8 [...] to float [..., 2], and scales of ue8m0
// bytes in float.
std::string WriteE2m1Elements(BodyWriter& w, const std::string& codes);
std::string WriteUe8m0Scales(BodyWriter& w, const std::string& bytes);

// Little-endian bytes of x [N, count], bfloat16 or float: uint8 [N, count * size]; and back.
std::string WriteBytes(BodyWriter& w, const std::string& x, DataType type, int64_t count);
std::string WriteFromBytes(BodyWriter& w, const std::string& bytes, DataType type,
                           const std::vector<int64_t>& dims);

// Puts rows [N, width] of numbers, float8 ones as bytes, at the slots [N] of the input `kv_cache`
// of `type`, [blocks, block_size, width]: defines kv_cache_out. Of two rows for one slot the later
// stays.
struct RowPut {
  DataType type = DataType::kUndefined;
  int64_t block_size = 0;
  int64_t width = 0;
};
void WriteRowPut(BodyWriter& w, const RowPut& put, const std::string& rows,
                 const std::string& slots);

// Where one part of a token's bytes lies in a paged cache: slot s has `width` bytes at
// (s / block_size) * block_bytes + base + (s % block_size) * stride.
struct PagedPart {
  int64_t block_size = 0;
  int64_t block_bytes = 0;
  int64_t base = 0;
  int64_t stride = 0;
  int64_t width = 0;
};
// The bytes of each slot: uint8 [slots..., width].
std::string WriteTake(BodyWriter& w, const std::string& flat, const std::string& slots,
                      const PagedPart& part);

// Both parts of a grouped row: data (with inline scales), and scales where they are apart.
PagedPart DataPart(const GroupedRowFormat& format, const PagedBytes& paged);
PagedPart ScalePart(const GroupedRowFormat& format, const PagedBytes& paged);

// Grouped rows: float x [N, coded], and the bytes `tail` [N, 2 * plain], empty where plain is 0.
struct GroupedRowsText {
  std::string x;
  std::string tail;
};
// Those of bfloat16 rows [N, coded + plain].
GroupedRowsText WriteGroupedRows(BodyWriter& w, const GroupedRowFormat& format,
                                 const std::string& rows);
struct GroupedPutText {
  GroupedRowFormat format;
  PagedBytes paged;
  bool floor_last = false;
  bool clip = true;
  std::vector<int64_t> cache_dims = {};  // as Reshape takes them; empty: {-1, block_bytes}
};
// Puts the rows at the slots [N] of the input `kv_cache`, uint8 [blocks, block_bytes]: defines
// kv_cache_out.
void WriteGroupedPut(BodyWriter& w, const GroupedPutText& put, const GroupedRowsText& rows,
                     const std::string& slots);

// The elements of grouped e4m3fn rows as bfloat16: from their data bytes [n..., DataBytes()] and
// scale bytes [n..., ScaleBytes()] (a slice of the data where scales are inline), `lead` the dims
// n... as Reshape takes them; bfloat16 [lead..., elements].
std::string WriteGroupedRead(BodyWriter& w, const GroupedRowFormat& format,
                             const std::vector<int64_t>& lead, const std::string& data,
                             const std::string& scales);

// A dim of a node's input as a number. FailedPrecondition where it is not known: the text needs it.
absl::StatusOr<int64_t> NumberOf(const Node& node, int input, int axis);

}  // namespace pagefuse::pagefuse_ops
