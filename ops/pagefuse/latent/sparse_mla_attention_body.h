// SPDX-License-Identifier: Apache-2.0
// Writes SparseMlaAttention as the text of an ONNX function in standard ops.
#pragma once

#include <string>

#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"

namespace pagefuse {

// The text follows the steps of the op: the row numbers of each token, the rows, softmax over them,
// values, sink. It holds for any shapes; types and the set of inputs are fixed. Opset 26 for the
// uint8 formats (BitCast), else 23.
class SparseMlaBody : private pagefuse_ops::BodyWriter {
 public:
  struct Options {
    SparseMlaAttributes attributes;
    int64_t row_size = 0;  // elements, of the uint8 formats
    DataType query_type = DataType::kBfloat16;
    DataType cache_type = DataType::kBfloat16;
    bool has_lens = false, has_sink = false, has_extra = false, has_extra_lens = false;
    bool dense = false, has_lse = true;
  };

  explicit SparseMlaBody(const Options& options) : o_(options) {}
  std::string Text();

 private:
  // One cache and what is written of it.
  struct Source {
    std::string cache, indices, lens;  // lens: empty if there are none
    std::string block_size;            // name of the attribute, and its number
    int64_t block_size_value = 0;
  };

  std::string ValidListed(const Source& source, const std::string& indices);
  std::string ListedRows(const Source& source);
  std::string DenseRows();
  std::string RowsAt(const Source& source, const std::string& numbers);
  std::string PlainRowsAt(const std::string& cache, const std::string& numbers);
  std::string DsMlaRowsAt(const std::string& cache, const std::string& numbers);
  std::string Ue8m0RowsAt(const Source& source, const std::string& numbers);
  std::string BytesAt(const std::string& base, const std::string& flat, int64_t count);
  void Softmax(const std::string& rows, const std::string& valid);
  void Outputs(std::string o);
  std::string Inputs() const;

  const Options o_;
  std::string valid_;  // of the source written last
};

}  // namespace pagefuse
