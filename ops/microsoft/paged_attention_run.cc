// SPDX-License-Identifier: Apache-2.0
// PagedAttention. Where the cache can hold all that tokens see, new rows are written and the block
// kernels of pagefuse.PagedAttention read it in place. Otherwise what tokens see is gathered as
// floats before the cache is written: a table that lets a short ring of blocks serve a long prompt
// maps new tokens onto ones that others still see.
#include <algorithm>
#include <limits>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/attention/dense_attention.h"
#include "pagefuse/ops/kernels/attention/paged_attention_hwy.h"
#include "pagefuse/ops/microsoft/gqa_parts.h"
#include "pagefuse/ops/microsoft/head_rows.h"
#include "pagefuse/ops/microsoft/paged_attention.h"
#include "pagefuse/ops/microsoft/tensor_values.h"

namespace pagefuse::microsoft_ops {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
// Slots of the scratch memory; the block kernels use the ones below.
constexpr int kQuerySlot = 8, kRowSlot = 9, kOutputSlot = 11;

// The rows that the tokens of a call see, sequence after sequence: of each sequence the last
// `kept` of its past, then its new tokens.
struct GatheredRows {
  std::vector<int64_t> starts;  // row of each sequence's first
  std::vector<int64_t> kept;
  int64_t count = 0;
};

GatheredRows PlanRows(const MsPagedCall& call) {
  GatheredRows rows;
  const int64_t window = call.attributes.window;
  for (int64_t b = 0; b < call.batch; ++b) {
    const int64_t past = call.queries(b) == 0 ? 0 : call.past[b];
    rows.starts.push_back(rows.count);
    rows.kept.push_back(window > 0 ? std::min(past, window - 1) : past);
    rows.count += rows.kept.back() + call.queries(b);
  }
  return rows;
}

constexpr PreparationWeights::Ports kPorts = {kMspCos, kMspSin, kMspQNormWeight, kMspKNormWeight};

// Keys or values: where they come from and how they are stored.
struct Side {
  HeadSource source;
  HeadPreparation preparation;
  bool prepared = false;
  ScaledRows format;
  uint8_t* cache = nullptr;

  uint8_t* Row(const MsPagedCall& call, int64_t slot, int64_t head) const {
    return cache + (slot * call.attributes.kv_heads + head) * format.RowBytes();
  }
};

// A new token's row as the cache stores it.
void EncodeNew(const MsPagedCall& call, const Side& side, const int64_t (&index)[3], float* row,
               uint8_t* bytes) {
  const auto [b, i, head] = index;
  side.source.Load(call.cumulative[b] + i, head, row);
  if (side.prepared) side.preparation.Apply(call.past[b] + i, row, call.head_size);
  side.format.Encode(head, row, bytes);
}

// The slot that gathered row j of sequence b is read from; -1 for a new token's own row, -2 if
// there is none to be seen.
int64_t ReadSlot(const MsPagedCall& call, const GatheredRows& rows, int64_t b, int64_t j) {
  const int64_t position = call.past[b] - rows.kept[b] + j;
  if (j >= rows.kept[b] && call.WriteSlot(b, j - rows.kept[b]) >= 0) return -1;
  const int64_t slot = call.SlotAt(b, position);
  return slot < 0 ? -2 : slot;
}

// Calls f(b, first, last) for the parts of gathered rows [begin, end) by sequence; rows count from
// the start of the sequence.
template <typename F>
void ForEachPart(const GatheredRows& rows, int64_t begin, int64_t end, const F& f) {
  while (begin < end) {
    const auto next = std::upper_bound(rows.starts.begin(), rows.starts.end(), begin);
    const int64_t b = next - rows.starts.begin() - 1;
    const int64_t stop = next == rows.starts.end() ? end : std::min(end, *next);
    f(b, begin - rows.starts[b], stop - rows.starts[b]);
    begin = stop;
  }
}

// Reads gathered rows one by one, with the memory that new tokens' ones need on their way.
class RowReader {
 public:
  RowReader(const MsPagedCall& call, const GatheredRows& rows, const Side& side)
      : call_(call),
        rows_(rows),
        side_(side),
        row_(static_cast<size_t>(call.head_size)),
        bytes_(static_cast<size_t>(side.format.RowBytes())) {}

  // Row j of sequence b, all heads.
  void Read(int64_t b, int64_t j, float* out) {
    const int64_t slot = ReadSlot(call_, rows_, b, j);
    const int64_t size = call_.head_size;
    for (int64_t head = 0; head < call_.attributes.kv_heads; ++head, out += size) {
      if (slot == -2) {
        std::fill(out, out + size, 0.0f);
      } else if (slot >= 0) {
        side_.format.Decode(head, side_.Row(call_, slot, head), out);
      } else {
        EncodeNew(call_, side_, {b, j - rows_.kept[b], head}, row_.data(), bytes_.data());
        side_.format.Decode(head, bytes_.data(), out);
      }
    }
  }

 private:
  const MsPagedCall& call_;
  const GatheredRows& rows_;
  const Side& side_;
  std::vector<float> row_;
  std::vector<uint8_t> bytes_;
};

// Rows [count, Hk, D] as attention reads them: what the cache holds, or will hold.
void Gather(const MsPagedCall& call, const GatheredRows& rows, const Side& side, float* to) {
  const int64_t size = call.attributes.kv_heads * call.head_size;
  ParallelFor(rows.count, size * kFloatBytes * 2, [&](int64_t begin, int64_t end) {
    RowReader reader(call, rows, side);
    ForEachPart(rows, begin, end, [&](int64_t b, int64_t first, int64_t last) {
      for (int64_t j = first; j < last; ++j) reader.Read(b, j, to + (rows.starts[b] + j) * size);
    });
  });
}

// The new rows of one head; `row` has memory for one.
void StoreHead(const MsPagedCall& call, const Side& side, int64_t head, float* row) {
  for (int64_t b = 0; b < call.batch; ++b) {
    for (int64_t i = 0; i < call.queries(b); ++i) {
      const int64_t slot = call.WriteSlot(b, i);
      if (slot < 0) continue;
      EncodeNew(call, side, {b, i, head}, row, side.Row(call, slot, head));
    }
  }
}

// New rows to their slots; of two on one slot the later token stays.
void Store(const MsPagedCall& call, const Side& side) {
  const int64_t heads = call.attributes.kv_heads;
  ParallelFor(heads, call.tokens * call.head_size * 8, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(call.head_size));
    for (int64_t head = begin; head < end; ++head) StoreHead(call, side, head, row.data());
  });
}

// 0 for rows that are seen, -infinity for those without a block; empty if all are seen.
std::vector<float> Unmapped(const MsPagedCall& call, const GatheredRows& rows) {
  std::vector<float> bias;
  for (int64_t b = 0; b < call.batch; ++b) {
    for (int64_t j = 0; j < rows.kept[b] + call.queries(b); ++j) {
      if (ReadSlot(call, rows, b, j) != -2) continue;
      bias.resize(static_cast<size_t>(rows.count));
      bias[rows.starts[b] + j] = -std::numeric_limits<float>::infinity();
    }
  }
  return bias;
}

const float* Queries(const KernelArgs& args, const MsPagedCall& call,
                     const HeadPreparation& preparation) {
  const GqaAttributes& a = call.attributes;
  const HeadSource source =
      HeadSourceOf(args, {a.q_heads, a.kv_heads, call.packed}, 0, call.head_size);
  const int64_t size = call.head_size;
  auto* rows = static_cast<float*>(args.scratch->Get(
      static_cast<size_t>(call.tokens * a.q_heads * size * kFloatBytes), kQuerySlot));
  const auto load = [&](int64_t token, int64_t position) {
    float* row = rows + token * a.q_heads * size;
    for (int64_t head = 0; head < a.q_heads; ++head, row += size) {
      source.Load(token, head, row);
      preparation.Apply(position, row, size);
    }
  };
  for (int64_t b = 0; b < call.batch; ++b) {
    ParallelFor(call.queries(b), a.q_heads * size * 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) load(call.cumulative[b] + i, call.past[b] + i);
    });
  }
  return rows;
}

void SetSizes(const MsPagedCall& call, const GatheredRows& rows,
              onnx_ops::DenseAttention& attention) {
  const GqaAttributes& a = call.attributes;
  attention.q_heads = a.q_heads;
  attention.kv_heads = a.kv_heads;
  attention.qk_size = call.head_size;
  attention.v_size = call.v_size;
  attention.scale = ScoreScale(a, call.head_size);
  attention.softcap = a.softcap;
  attention.window = a.window;
  attention.q_layout = {0, call.head_size, a.q_heads * call.head_size};
  attention.y_layout = {0, call.v_size, a.q_heads * call.v_size};
  attention.k_layout = attention.v_layout = {0, call.head_size, a.kv_heads * call.head_size};
  attention.kv_offsets = rows.starts;
  for (int64_t b = 0; b < call.batch; ++b) {
    attention.q_offsets.push_back(call.cumulative[b]);
    attention.sequences.push_back({call.queries(b), rows.kept[b], rows.kept[b] + call.queries(b)});
  }
}

// Keys, and values unless they are latent.
absl::StatusOr<std::vector<Side>> SidesOf(const KernelArgs& args, const MsPagedCall& call,
                                          const PreparationWeights& weights) {
  const GqaAttributes& a = call.attributes;
  std::vector<Side> sides(call.latent ? 1 : 2);
  for (size_t i = 0; i < sides.size(); ++i) {
    Side& side = sides[i];
    side.source = HeadSourceOf(args, {a.q_heads, a.kv_heads, call.packed}, 1 + static_cast<int>(i),
                               call.head_size);
    side.preparation = weights.ForKeys(call.rotary_offset);
    side.prepared = i == 0;
    PF_ASSIGN_OR_RETURN(side.format, MsPagedRows(args, call, i == 0));
    side.cache = args.input(i == 0 ? kMspKeyCache : kMspValueCache).as<uint8_t>();
  }
  return sides;
}

// True if, after the new rows are written, the cache holds every row that a token of sequence b
// sees, each in a block of its own.
bool CacheHoldsAll(const MsPagedCall& call, int64_t b) {
  const int64_t window = call.attributes.window;
  const int64_t first = window > 0 ? std::max<int64_t>(0, call.past[b] - window + 1) : 0;
  const int64_t end = call.past[b] + call.queries(b);
  std::vector<int32_t> blocks;
  for (int64_t m = first / call.block_size; m * call.block_size < end; ++m) {
    blocks.push_back(call.table[b * call.table_columns + m]);
  }
  std::sort(blocks.begin(), blocks.end());
  if (blocks.empty() || blocks.front() < 0) return false;
  if (std::adjacent_find(blocks.begin(), blocks.end()) != blocks.end()) return false;
  for (int64_t i = 0; i < call.queries(b); ++i) {
    const int64_t slot = call.WriteSlot(b, i);
    if (slot >= 0 && slot != call.SlotAt(b, call.past[b] + i)) return false;
  }
  return true;
}

bool AttendsInBlocks(const MsPagedCall& call, const std::vector<Side>& sides) {
  if (call.latent || call.v_size != call.head_size) return false;
  for (const Side& side : sides) {
    if (!side.format.scales.empty() || side.format.element != sides[0].format.element) return false;
  }
  for (int64_t b = 0; b < call.batch; ++b) {
    if (call.queries(b) > 0 && !CacheHoldsAll(call, b)) return false;
  }
  return true;
}

// The same call for the block kernels, with prepared query rows as floats.
absl::Status RunInBlocks(KernelArgs& args, const MsPagedCall& call, const std::vector<Side>& sides,
                         const float* query) {
  const GqaAttributes& a = call.attributes;
  for (const Side& side : sides) Store(call, side);
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < call.batch; ++b) {
    lengths.push_back(static_cast<int32_t>(call.past[b] + call.queries(b)));
  }
  const std::vector<float> zeros(static_cast<size_t>(a.q_heads));
  PagedAttentionProblem p = {};
  p.rules.sliding_window = std::max<int64_t>(a.window, 0);
  p.rules.softcap = a.softcap;
  p.compute_type = DataType::kFloat;
  PF_ASSIGN_OR_RETURN(p.format, CacheFormat().StoredAs(sides[0].format.element));
  p.output_type = args.output(0).dtype;
  p.num_tokens = call.tokens;
  p.num_sequences = call.batch;
  p.num_heads = a.q_heads;
  p.num_kv_heads = a.kv_heads;
  p.head_size = call.head_size;
  p.num_blocks = call.num_blocks;
  p.block_size = call.block_size;
  p.table_columns = call.table_columns;
  p.scale = ScoreScale(a, call.head_size);
  p.query = query;
  const CacheShape shape{call.num_blocks, call.block_size, a.kv_heads, call.head_size};
  p.keys = DenseRows(p.format, shape, sides[0].cache, nullptr);
  p.values = DenseRows(p.format, shape, sides[1].cache, nullptr);
  p.query_start_loc = call.cumulative;
  p.seq_lens = lengths.data();
  p.block_table = call.table;
  p.k_scale = p.v_scale = p.q_scale = 1;
  if (args.input(kMspHeadSink).present()) {
    p.sink_type = args.input(kMspHeadSink).dtype;
    p.head_sink = args.input(kMspHeadSink).data;
  } else if (a.smooth_softmax) {
    p.sink_type = DataType::kFloat;
    p.head_sink = zeros.data();
  }
  p.output = args.output(0).data;
  RunPagedAttention(p, *args.scratch);
  return absl::OkStatus();
}

template <auto attend, bool in_blocks>
absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const MsPagedCall call, MsPagedCallOf(args));
  const GqaAttributes& a = call.attributes;
  PF_ASSIGN_OR_RETURN(const PreparationWeights weights, PreparationWeights::Of(args, kPorts, a));
  PF_ASSIGN_OR_RETURN(const std::vector<Side> sides, SidesOf(args, call, weights));
  const float* query = Queries(args, call, weights.ForQuery(call.rotary_offset));
  if (in_blocks && AttendsInBlocks(call, sides)) return RunInBlocks(args, call, sides, query);
  const GatheredRows rows = PlanRows(call);
  onnx_ops::DenseAttention attention;
  attention.q = query;
  SetSizes(call, rows, attention);
  PF_ASSIGN_OR_RETURN(attention.sinks, HeadSinks(args, a, kMspHeadSink));
  const auto bytes = static_cast<size_t>(rows.count * a.kv_heads * call.head_size * kFloatBytes);
  for (size_t i = 0; i < sides.size(); ++i) {
    auto* gathered = static_cast<float*>(args.scratch->Get(bytes, kRowSlot + static_cast<int>(i)));
    Gather(call, rows, sides[i], gathered);
    (i == 0 ? attention.k : attention.v) = gathered;
  }
  if (call.latent) attention.v = attention.k;
  const std::vector<float> bias = Unmapped(call, rows);
  if (!bias.empty()) {
    attention.bias.data = bias.data();
    attention.bias.first_keys = rows.starts;
  }
  attention.y = FloatsOf(args, args.output(0), kOutputSlot);
  attend(attention);
  for (const Side& side : sides) Store(call, side);
  return StoreFloats(attention.y, args.output(0));
}

}  // namespace

absl::Status MsPagedReference(KernelArgs& args) {
  return Run<onnx_ops::DenseAttentionReference, false>(args);
}
absl::Status MsPagedHwy(KernelArgs& args) { return Run<onnx_ops::DenseAttentionHwy, true>(args); }

}  // namespace pagefuse::microsoft_ops
