// SPDX-License-Identifier: Apache-2.0
// An attention row has the same bits whatever other sequences and tokens the call has. A sequence of
// one query and one of more may take other ways, so that pieces of the latter have two or more.
#include <algorithm>
#include <string>
#include <utility>

#include "must.h"
#include "paged_attention_instance.h"
#include "rows.h"
#include "sparse_mla_instance.h"
#include "turboquant_instance.h"

#include "pagefuse/ops/evaluate/evaluate.h"

namespace pagefuse::testing {
namespace {

// Where a call has what belongs to its tokens and sequences.
struct Layout {
  std::vector<size_t> by_token = {0};
  std::vector<size_t> by_sequence = {};  // block tables
  size_t lens = 0, starts = 0;           // 0: every token is a sequence
};

// Queries [first, end) of a sequence of the call.
struct Piece {
  int64_t sequence, first, end;
};

void AppendRows(const Tensor& from, int64_t first, int64_t end, std::string& to) {
  const auto row = static_cast<int64_t>(from.byte_size()) / from.dims()[0];
  to.append(static_cast<const char*>(from.data()) + first * row,
            static_cast<size_t>((end - first) * row));
}

Tensor FromBytes(const Tensor& like, const std::string& bytes, int64_t rows) {
  std::vector<int64_t> dims = like.dims();
  dims[0] = rows;
  Tensor made = *Tensor::Allocate(like.dtype(), dims);
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(made.mutable_data()));
  return made;
}

// A call of an op, from which others with some of its sequences are made.
class Batch {
 public:
  using Inputs = std::vector<Tensor>;
  using Kernel = std::function<std::vector<Tensor>(const Inputs&)>;

  Batch(Inputs inputs, Layout layout, Kernel kernel)
      : inputs_(std::move(inputs)), layout_(std::move(layout)), kernel_(std::move(kernel)) {}

  int64_t sequences() const {
    return layout_.starts == 0 ? inputs_[0].dims()[0] : inputs_[layout_.starts].dims()[0] - 1;
  }
  int64_t queries(int64_t b) const { return Start(b + 1) - Start(b); }

  // The bytes of each piece's rows of the first output.
  std::vector<std::string> Run(const std::vector<Piece>& pieces) const {
    const Tensor output = kernel_(Pick(pieces)).front();
    std::vector<std::string> rows(pieces.size());
    int64_t row = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const int64_t end = row + pieces[i].end - pieces[i].first;
      AppendRows(output, row, end, rows[i]);
      row = end;
    }
    return rows;
  }

 private:
  int64_t Start(int64_t b) const {
    return layout_.starts == 0 ? b : inputs_[layout_.starts].values<int32_t>()[b];
  }

  Inputs Pick(const std::vector<Piece>& pieces) const {
    Inputs picked = inputs_;
    const auto replace = [&](size_t input, int64_t rows, const auto& append) {
      if (input >= inputs_.size() || !inputs_[input].defined()) return;
      std::string bytes;
      for (const Piece& p : pieces) append(p, bytes);
      picked[input] = FromBytes(inputs_[input], bytes, rows);
    };
    std::vector<int32_t> starts = {0}, lens;
    for (const Piece& p : pieces) {
      starts.push_back(starts.back() + static_cast<int32_t>(p.end - p.first));
    }
    const auto count = static_cast<int64_t>(pieces.size());
    for (const size_t input : layout_.by_token) {
      replace(input, starts.back(), [&](const Piece& p, std::string& bytes) {
        const int64_t start = Start(p.sequence);
        AppendRows(inputs_[input], start + p.first, start + p.end, bytes);
      });
    }
    for (const size_t input : layout_.by_sequence) {
      replace(input, count, [&](const Piece& p, std::string& bytes) {
        AppendRows(inputs_[input], p.sequence, p.sequence + 1, bytes);
      });
    }
    if (layout_.starts == 0) return picked;
    // A piece sees what was written up to its own end.
    for (const Piece& p : pieces) {
      const int32_t length = inputs_[layout_.lens].values<int32_t>()[p.sequence];
      lens.push_back(length - static_cast<int32_t>(queries(p.sequence) - p.end));
    }
    picked[layout_.lens] = Tensor::Of<int32_t>({count}, lens);
    picked[layout_.starts] = Tensor::Of<int32_t>({count + 1}, starts);
    return picked;
  }

  Inputs inputs_;
  Layout layout_;
  Kernel kernel_;
};

// Of 200 random calls of some of the batch's sequences, and of pieces of those, no row differs in a
// bit from the sequence alone.
void ExpectRowInvariance(const Batch& batch) {
  ForEachSimdTarget([&] {
    std::vector<std::string> alone;
    for (int64_t b = 0; b < batch.sequences(); ++b) {
      alone.push_back(batch.Run({{b, 0, batch.queries(b)}})[0]);
    }
    std::mt19937 random(23);
    const auto below = [&](int64_t end) {
      return static_cast<int64_t>(random() % static_cast<uint32_t>(end));
    };
    ForEachBatch([&](int) {
      std::vector<Piece> pieces;
      const int64_t count = 1 + below(batch.sequences());
      for (int64_t i = 0; i < count; ++i) {
        const int64_t b = below(batch.sequences()), queries = batch.queries(b);
        Piece piece{b, 0, queries};
        if (queries > 3 && below(2) == 0) {
          piece.first = below(queries - 1);
          piece.end = piece.first + 2 + below(queries - piece.first - 1);
        }
        pieces.push_back(piece);
      }
      const std::vector<std::string> rows = batch.Run(pieces);
      for (size_t i = 0; i < pieces.size(); ++i) {
        const Piece& p = pieces[i];
        const size_t row = rows[i].size() / static_cast<size_t>(p.end - p.first);
        ASSERT_EQ(
            alone[p.sequence].compare(row * static_cast<size_t>(p.first), rows[i].size(), rows[i]),
            0)
            << "sequence " << p.sequence << ", queries " << p.first << " to " << p.end;
      }
    });
  });
}

TEST(RowInvariance, PagedAttention) {
  struct Types {
    DataType query;
    KvQuantMode mode;
    DataType cache;
  };
  for (const Types& types :
       {Types{DataType::kFloat, KvQuantMode::kNone, DataType::kFloat},
        Types{DataType::kBfloat16, KvQuantMode::kNone, DataType::kBfloat16},
        Types{DataType::kFloat, KvQuantMode::kInt8PerTokenHead, DataType::kInt8}}) {
    const PagedAttentionInstance whole(
        {.query = types.query,
         .mode = types.mode,
         .cache = types.cache,
         .heads = 6,
         .kv_heads = 2,
         .head_size = 32,
         .sequences = {{1, 700}, {19, 60}, {1, 33}, {40, 200}, {1, 1500}, {2, 90}, {1, 257}},
         .seed = 7});
    ExpectRowInvariance(Batch(whole.inputs, {.by_sequence = {5}, .lens = 4, .starts = 3},
                              [&](const Batch::Inputs& inputs) {
                                EvaluateOptions options;
                                options.force_kernel = "hwy";
                                return Must(EvaluateNode(*whole.node, 1, inputs, options));
                              }));
  }
}

TEST(RowInvariance, TurboQuantAttention) {
  for (const DataType type : {DataType::kFloat, DataType::kBfloat16}) {
    const TurboQuantInputs whole = AttentionInputs(
        {.type = type, .sequences = {{1, 700}, {1, 33}, {1, 1500}, {1, 1}, {1, 257}, {1, 512}}});
    ExpectRowInvariance(
        Batch(whole.inputs, {.by_sequence = {2}, .lens = 3, .starts = 4},
              [&](const Batch::Inputs& inputs) {
                const TurboQuantNode node("TurboQuantAttention", {inputs, whole.attributes}, 1);
                return Must(node.Run("hwy"));
              }));
  }
}

Batch::Kernel SparseMlaKernel(const OpCase& of) {
  return [of](const Batch::Inputs& inputs) {
    Graph graph;
    std::vector<Value*> values;
    for (size_t i = 0; i < inputs.size(); ++i) {
      values.push_back(inputs[i].defined()
                           ? graph.AddInput("in" + std::to_string(i), inputs[i].dtype(),
                                            Shape::FromInts(inputs[i].dims()))
                           : nullptr);
    }
    Node* node =
        graph.AddNode("pagefuse", "SparseMlaAttention", values, {graph.AddValue("output")});
    for (const auto& [name, value] : of.attributes) {
      node->SetAttribute(name, Attribute{value, "", ""});
    }
    EvaluateOptions options;
    options.force_kernel = "hwy";
    return Must(EvaluateNode(*node, 1, inputs, options));
  };
}

// Lists of one segment and of several, in calls of few tokens and of many, whose lists are taken in
// other ways.
TEST(RowInvariance, SparseMlaAttentionOfLists) {
  for (const DataType query : {DataType::kFloat, DataType::kBfloat16}) {
    const OpCase whole = SparseMlaCase("lists", {.query = query,
                                                 .heads = 5,
                                                 .num_blocks = 40,
                                                 .tokens = 90,
                                                 .columns = 1100,
                                                 .extra_columns = 300,
                                                 .lens = true});
    ExpectRowInvariance(Batch(whole.inputs, {.by_token = {0, 2, 3, 6, 7}}, SparseMlaKernel(whole)));
  }
}

TEST(RowInvariance, SparseMlaAttentionOfSequences) {
  for (const DataType query : {DataType::kFloat, DataType::kBfloat16}) {
    const OpCase whole = SparseMlaCase(
        "sequences",
        {.query = query,
         .heads = 7,
         .sequences = {{1, 700}, {40, 530}, {1, 33}, {60, 1200}, {1, 1600}, {2, 90}, {1, 512}}});
    ExpectRowInvariance(
        Batch(whole.inputs, {.by_sequence = {8}, .lens = 9, .starts = 10}, SparseMlaKernel(whole)));
  }
}

}  // namespace
}  // namespace pagefuse::testing
