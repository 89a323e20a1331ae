// SPDX-License-Identifier: Apache-2.0
// Writes PagedAttention as the text of an ONNX function in standard ops.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pagefuse/ops/pagefuse/attention/paged_attention.h"
#include "pagefuse/ops/pagefuse/attention/turboquant_body.h"
#include "pagefuse/ops/pagefuse/body_writer.h"

namespace pagefuse {

// The text follows the steps of the op in their order: token owners and positions, keys and values
// of each token's sequence, scores, mask, bias, softmax, values. It holds for any shapes; the type
// of the query and the cache and the set of optional inputs are fixed. Opset 26 where a uint8 twin
// or int4 needs BitCast, else 23.
class PagedAttentionBody {
 public:
  struct Options {
    PagedAttentionAttributes attributes;  // the format as the cache stores it
    DataType query_type =
        DataType::kFloat;  // as the port has it: uint8 for the twin of float8e4m3fn
    DataType compute_type = DataType::kFloat;       // C
    DataType stored_cache_type = DataType::kFloat;  // as the port has it
    DataType output_type = DataType::kFloat;
    DataType sink_type = DataType::kFloat;
    bool has_sink = false, has_alibi = false, has_qq_bias = false, has_ranges = false;
    bool has_causal_flags = false, has_output_scale = false, has_lse = false;
    // TurboQuantAttention instead: its ports, and causal rows.
    std::optional<pagefuse_ops::TurboQuantBody> turboquant;
    bool has_query_start_loc = true;
  };

  explicit PagedAttentionBody(const Options& options) : o_(options) {}
  std::string Text();

 private:
  bool f8_query() const { return o_.compute_type == DataType::kFloat8E4M3FN; }
  const CacheFormat& format() const { return o_.attributes.format; }
  // Keys and values are codes here, and their rows' scales `ks` and `vs`.
  bool codes() const { return format().row().operand == RowOperand::kCode; }
  bool transforms() const { return format().needs_signs(); }

  std::string Add(std::string_view call) { return w_.Add(call); }
  void Set(std::string_view name, std::string_view call) { w_.Set(name, call); }
  std::string Constant(std::string_view name, std::string_view attribute) {
    return w_.Constant(std::string(name), attribute);
  }
  std::string Int(int64_t value) { return w_.Int(value); }
  std::string Ints(const std::vector<int64_t>& values) { return w_.Ints(values); }
  std::string Float(std::string_view name, float value);
  std::string Cast(std::string_view x, DataType from, DataType to) {
    return w_.CastFrom(std::string(x), from, to);
  }
  // Names of the function's inputs.
  std::vector<std::string> Inputs() const;
  void Positions();
  void Dims();
  std::string CacheNumbers(std::string_view side, std::string_view cache);
  void Gathered(std::string_view values, std::string_view name);
  void ScaleRows(std::string_view cache, std::string_view name);
  void KeysAndValues();
  std::string Query();
  std::string Scores();
  std::string Window(std::string visible);
  std::string ImageRanges();
  void Mask();
  std::string Bias(std::string s);
  void Softmax(std::string_view s);
  std::string Numbers(std::string o);
  void Output();
  void Lse();

  const Options o_;
  pagefuse_ops::BodyWriter w_;
};

}  // namespace pagefuse
