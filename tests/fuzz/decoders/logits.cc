// SPDX-License-Identifier: Apache-2.0
// The end of random decoders: which rows become logits, and in what form.
#include "decoder_text.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

constexpr int64_t kVocabulary = DecoderText::kVocabulary;

// The number of the last row, [1].
std::string LastPlace(DecoderText& text) {
  return text.Add("Sub", {text.Length(), text.Ints({1})});
}

std::string GatherLastByNd(DecoderText& text, const std::string& rows) {
  const std::string shape = text.Add("Concat", {text.Batch(), text.Ints({1})}, "axis = 0");
  const std::string places = text.Add("Expand", {LastPlace(text), shape});
  return text.Add("GatherND", {rows, places}, "batch_dims = 1");
}

// The last row that is not padding.
std::string GatherLastByMask(DecoderText& text, const std::string& rows) {
  const std::string count =
      text.Add("ReduceSum", {text.MaskOfNew(), text.Ints({1})}, "keepdims = 1");
  const std::string places = text.Add("Sub", {count, text.graph.Int(1)});
  return text.Add("GatherND", {rows, places}, "batch_dims = 1");
}

// `rows` [B, S, N] as the plan cuts them: [B, S, N], [B, 1, N] or [B, N].
std::string CutRows(DecoderText& text, const std::string& rows) {
  const auto slice = [&](int64_t from, int64_t to) {
    return text.Add("Slice", {rows, text.Ints({from}), text.Ints({to}), text.Ints({1})});
  };
  if (text.Is("logits", "slice_last")) return slice(-1, INT64_MAX);
  if (text.Is("logits", "slice_squeeze")) {
    return text.Add("Squeeze", {slice(-1, INT64_MAX), text.Ints({1})});
  }
  if (text.Is("logits", "first")) return slice(0, 1);
  if (text.Is("logits", "second_last")) return slice(-2, -1);
  if (text.Is("logits", "all_but_first")) return slice(1, INT64_MAX);
  if (text.Is("logits", "gather_last")) {
    return text.Add("Gather", {rows, text.graph.Int(-1)}, "axis = 1");
  }
  if (text.Is("logits", "gather_size")) {
    return text.Add("Gather", {rows, text.Scalar(LastPlace(text))}, "axis = 1");
  }
  if (text.Is("logits", "gather_nd")) return GatherLastByNd(text, rows);
  if (text.Is("logits", "mask_last")) return GatherLastByMask(text, rows);
  return rows;
}

bool GivesMatrix(const DecoderText& text) {
  return text.Is("logits", "gather_last") || text.Is("logits", "gather_size") ||
         text.Is("logits", "slice_squeeze") || text.Is("logits", "gather_nd") ||
         text.Is("logits", "mask_last");
}

// What follows a token most of all, by a table: other rows of last tokens.
std::string AddLastIds(DecoderText& text, const std::string& logits) {
  const std::string ids = text.Add("Gather", {kIds, text.graph.Int(-1)}, "axis = 1");
  const std::string table = text.graph.Weights({kVocabulary, kVocabulary}, 1);
  std::string rows = text.Add("Gather", {table, ids});
  if (!GivesMatrix(text)) rows = text.Add("Unsqueeze", {rows, text.Ints({1})});
  return text.Add("Add", {logits, rows});
}

std::string Tail(DecoderText& text, const std::string& logits) {
  if (text.Is("logits_tail", "softcap")) {
    const std::string cap = text.graph.Float(3);
    return text.Add("Mul", {text.Add("Tanh", {text.Add("Div", {logits, cap})}), cap});
  }
  if (text.Is("logits_tail", "scaled")) return text.Add("Div", {logits, text.graph.Float(0.7)});
  if (text.Is("logits_tail", "bias")) {
    return text.Add("Add", {logits, text.graph.Weights({kVocabulary}, 1)});
  }
  if (text.Is("logits_tail", "log_softmax")) {
    return text.Add("LogSoftmax", {logits}, "axis = -1");
  }
  if (text.Is("logits_tail", "flat")) {
    return text.Add("Reshape", {logits, text.Ints({-1, kVocabulary})});
  }
  if (text.Is("logits_tail", "by_length")) {
    return text.Add("Div", {logits, text.Add("Cast", {text.Length()}, "to = 1")});
  }
  if (text.Is("logits_tail", "last_ids") && !text.Is("logits", "all")) {
    return AddLastIds(text, logits);
  }
  if (GivesMatrix(text)) return logits;
  if (text.Is("logits_tail", "transposed")) {
    return text.Add("Transpose", {logits}, "perm = [1, 0, 2]");
  }
  if (text.Is("logits_tail", "softmax_tokens")) {
    return text.Add("Mul", {logits, text.Add("Softmax", {logits}, "axis = 1")});
  }
  return logits;
}

std::string LogitsType(const DecoderText& text) {
  if (text.Is("output_dims", "unknown") || text.Is("logits_tail", "flat") ||
      text.Is("logits_tail", "transposed") || text.Is("logits", "all_but_first")) {
    return "float[]";
  }
  if (GivesMatrix(text)) return StrCat("float[", text.BatchDim(), ", ", kVocabulary, "]");
  const std::string rows = text.Is("logits", "all") ? text.LengthDim() : "1";
  return StrCat("float[", text.BatchDim(), ", ", rows, ", ", kVocabulary, "]");
}

void WriteExtraOutput(DecoderText& text, const std::string& x, const std::string& logits) {
  if (text.Is("extra_output", "hidden")) {
    text.graph.Output("float[]", x, "hidden");
  } else if (text.Is("extra_output", "argmax")) {
    text.graph.Output("int64[]", text.Add("ArgMax", {logits}, "axis = -1"), "token");
  } else if (text.Is("extra_output", "second_head")) {
    const std::string other = text.Add("MatMul", {x, text.Matrix(text.hidden, kVocabulary)});
    text.graph.Output("float[]", other, "aside");
  } else if (text.Is("extra_output", "mean")) {
    text.graph.Output("float[]", text.Add("ReduceMean", {x, text.Ints({1})}), "pooled");
  } else if (text.Is("extra_output", "size")) {
    text.graph.Output("int64[]", text.Add("Mul", {text.Length(), text.Ints({2})}), "count");
  }
}

}  // namespace

void WriteLogits(DecoderText& text, const std::string& x, const std::string& table) {
  std::string rows = text.Is("cut_at", "norm") ? CutRows(text, x) : x;
  if (!text.Is("norm", "none")) rows = WriteNorm(text, rows, text.hidden);
  if (text.Is("cut_at", "head")) rows = CutRows(text, rows);
  const std::string head = text.Is("tied", "yes") ? text.Add("Transpose", {table}, "perm = [1, 0]")
                                                  : text.Matrix(text.hidden, kVocabulary);
  std::string logits = text.Add("MatMul", {rows, head});
  if (text.Is("cut_at", "end")) logits = CutRows(text, logits);
  logits = Tail(text, logits);
  WriteExtraOutput(text, x, logits);
  text.graph.Output(LogitsType(text), logits,
                    text.Is("output_name", "logits") ? "logits" : "scores");
}

}  // namespace pagefuse::fuzz
