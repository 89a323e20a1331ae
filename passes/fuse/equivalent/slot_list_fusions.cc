// SPDX-License-Identifier: Apache-2.0
// Fusions that make lists of rows that tokens attend to: ReqIndexToSlot, CombineTopKWindow.
#include <algorithm>
#include <random>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/fuse/equivalent/attribute_numbers.h"
#include "pagefuse/passes/fuse/equivalent/fusion_parts.h"
#include "pagefuse/passes/fuse/equivalent/fusions.h"

namespace pagefuse {
namespace {

// Row numbers beyond any table of a probe.
constexpr int64_t kRowNumbers = 1000;

bool IsIndexMatrix(const Value& value) { return IsIndexVector(value) && Rank(value) == 2; }

// [T, K] integers that are chosen from others, cast or not: -1 stands for none.
bool IsListOfRows(const Value& value) {
  if (!IsIndexMatrix(value)) return false;
  const Node* node = value.producer();
  if (node->Is("Cast")) node = node->input(0)->producer();
  return node && node->Is("Where");
}

// What may count the rows of each token, the nearest to the end first, and none.
std::vector<Value*> CountsOf(const FusionSearch& search, const Value& list) {
  std::vector<Value*> counts;
  for (Value* value : search.ComputedValues()) {
    if (IsIndexVector(*value) && Rank(*value) == 1 && SameRows(*value, list)) {
      counts.push_back(value);
    }
  }
  constexpr size_t kMost = 4;
  if (counts.size() > kMost) counts.resize(kMost);
  counts.push_back(nullptr);
  return counts;
}

// The results of `op` as the graph has them.
std::string ListText(const std::string& formal, const std::string& list_name,
                     const std::string& count_name, const std::vector<OutputSpec>& outputs,
                     const std::string& body) {
  const bool counted = outputs.size() > 1;
  return StrCat("(", formal, ") => (", list_name, counted ? StrCat(", ", count_name) : "", ") { ",
                body, CastText(list_name, "list", outputs[0].value->dtype()),
                counted ? CastText(count_name, "counts", outputs[1].value->dtype()) : "", "}");
}

std::vector<OutputSpec> ListOutputs(const char* list_name, Value* list, const char* count_name,
                                    Value* counts) {
  std::vector<OutputSpec> outputs = {{list_name, list}};
  if (counts) outputs.push_back({count_name, counts});
  return outputs;
}

// --- ReqIndexToSlot ---

FusionPort TokenIndices(const Value* list) {
  return InnerPort("token_indices", ProbeRole::kEntries, [list](const Value& value) {
    return IsIndexMatrix(value) && value.shape() && list->shape() &&
           ProvablyEqual(*value.shape(), *list->shape());
  });
}

absl::StatusOr<bool> FuseSlots(FusionSearch& search, const std::vector<OutputSpec>& outputs,
                               int64_t block_size, bool workspace) {
  std::vector<FusionPort> ports = {TokenIndices(outputs[0].value), IndexPort("block_table", 2),
                                   IndexPort("req_id", 1)};
  std::vector<std::string> names = {"token_indices", "block_table", "req_id"};
  if (workspace) {
    ports.push_back(IndexPort("prefill_request_id", 1, ProbeRole::kEntries));
    ports.push_back(IndexPort("workspace_starts", 1));
    names.insert(names.end(), {"prefill_request_id", "workspace_starts"});
  }
  const auto draft = [&](const BoundPorts& bound, const ComputedRegion&) {
    Draft result;
    const std::string formal = StrCat("token_indices, block_table, req_id",
                                      workspace ? ", prefill_request_id, workspace_starts" : "");
    result.texts = {
        ListText(formal, "slots", "valid_counts", outputs,
                 StrCat(NarrowText(names), "list, counts = pagefuse.ReqIndexToSlot <block_size = ",
                        block_size, "> (req_id_32, block_table_32, token_indices_32",
                        workspace ? ", prefill_request_id_32, workspace_starts_32" : "", ")  "))};
    result.rules.resize(outputs.size());
    const Value& table = *bound.at("block_table");
    // Some lie past the table.
    const int64_t capacity = ComparedSize(table, 1) * block_size;
    result.limits = {{"token_indices", capacity + capacity / 4 + 1},
                     {"block_table", kRowNumbers},
                     {"req_id", ComparedSize(table, 0)},
                     {"workspace_starts", kRowNumbers}};
    if (workspace) {
      result.limits["prefill_request_id"] = ComparedSize(*bound.at("workspace_starts"), 0);
    }
    return result;
  };
  return search.Fuse("fuse-ReqIndexToSlot", outputs, ports, draft);
}

// --- CombineTopKWindow ---

struct WindowAttributes {
  int64_t window = 0;
  int64_t ratio = 1;
  int64_t topk = 0;
};

// What integers of the nodes may be the attributes for that width.
std::vector<WindowAttributes> AttributesFor(int64_t width, const std::vector<Node*>& nodes) {
  constexpr int64_t kTile = 128;
  std::vector<WindowAttributes> found;
  const std::vector<int64_t> integers = IntegersOf(nodes);
  for (int64_t topk : integers) {
    for (int64_t window : integers) {
      if (topk > width || window > width) continue;
      if ((topk + window + kTile - 1) / kTile * kTile != width) continue;
      for (int64_t ratio : Divisors(nodes)) found.push_back({window, ratio, topk});
    }
  }
  return found;
}

// A step in which requests have some tokens, up to `most` before them, and enough gathered rows for
// a window of `window`.
struct Step {
  int64_t tokens = 0;
  int64_t window = 0;
  int64_t most = 0;
};
void ArrangeStep(uint32_t seed, const Step& step, PortIntegers& integers) {
  std::vector<int64_t>& starts = integers["query_start_loc"];
  std::vector<int64_t>& lengths = integers["seq_lens"];
  std::vector<int64_t>& gathered = integers["gather_lens"];
  const auto requests = static_cast<int64_t>(lengths.size());
  if (static_cast<int64_t>(starts.size()) != requests + 1 || gathered.size() != lengths.size()) {
    return;
  }
  std::mt19937 random(seed);
  const int64_t origin = seed % 2 == 0 ? 0 : 3;
  for (int64_t r = 0; r <= requests; ++r) starts[r] = origin + r * step.tokens / requests;
  for (int64_t r = 0; r < requests; ++r) {
    const int64_t queries = starts[r + 1] - starts[r];
    const bool near = random() % 2 == 0;
    const int64_t most = near ? step.window + 1 : step.most;
    const auto before = static_cast<int64_t>(random() % (most + 1));
    lengths[r] = queries + before;
    const int64_t needed = queries + std::min(before + 1, step.window) - 1;
    gathered[r] = std::min<int64_t>(lengths[r], needed + static_cast<int64_t>(random() % 3));
  }
}

absl::StatusOr<bool> FuseWindow(FusionSearch& search, const std::vector<OutputSpec>& outputs,
                                const std::vector<WindowAttributes>& attributes) {
  const Value* list = outputs[0].value;
  const FusionPort indices = InnerPort(
      "topk_indices", ProbeRole::kIndices,
      [list](const Value& value) { return IsIndexMatrix(value) && SameRows(value, *list); });
  const std::vector<FusionPort> ports = {indices,
                                         IndexPort("query_start_loc", 1),
                                         IndexPort("seq_lens", 1),
                                         IndexPort("gather_lens", 1),
                                         IndexPort("workspace_rows", 0),
                                         IndexPort("window_offset", 0)};
  const auto draft = [&](const BoundPorts& bound, const ComputedRegion&) {
    Draft result;
    Step step = {.tokens = ComparedSize(*list, 0)};
    for (const WindowAttributes& a : attributes) {
      step.window = std::max(step.window, a.window);
      step.most = std::max(step.most, a.window + a.ratio * (a.topk + 1));
      result.texts.push_back(ListText(
          "topk_indices, query_start_loc, seq_lens, gather_lens, workspace_rows, window_offset",
          "combined", "lens", outputs,
          StrCat(NarrowText({"topk_indices", "query_start_loc", "seq_lens", "gather_lens"}),
                 CastText("rows", "workspace_rows", DataType::kInt64),
                 CastText("offset", "window_offset", DataType::kInt64),
                 "list, counts = pagefuse.CombineTopKWindow <window_size = ", a.window,
                 ", compress_ratio = ", a.ratio, ", topk = ", a.topk,
                 "> (topk_indices_32, query_start_loc_32, seq_lens_32, gather_lens_32, rows, "
                 "offset)  ")));
    }
    result.rules.resize(outputs.size());
    for (const char* port : {"topk_indices", "workspace_rows", "window_offset"}) {
      result.limits[port] = kRowNumbers;
    }
    const Value& starts = *bound.at("query_start_loc");
    const int64_t requests = ComparedSize(*bound.at("seq_lens"), 0);
    if (const auto symbol = (*starts.shape())[0].symbol()) result.sizes[*symbol] = requests + 1;
    result.arrange = [step](uint32_t seed, PortIntegers& integers) {
      ArrangeStep(seed, step, integers);
    };
    return result;
  };
  return search.Fuse("fuse-CombineTopKWindow", outputs, ports, draft);
}

}  // namespace

absl::StatusOr<bool> FuseReqIndexToSlot(FusionSearch& search, Value* output) {
  if (!IsListOfRows(*output)) return false;
  for (Value* counts : CountsOf(search, *output)) {
    const auto outputs = ListOutputs("slots", output, "valid_counts", counts);
    for (int64_t block_size : Divisors(search.UpstreamOf({output}).nodes)) {
      for (const bool workspace : {true, false}) {
        PF_ASSIGN_OR_RETURN(const bool fused, FuseSlots(search, outputs, block_size, workspace));
        if (fused) return true;
      }
    }
  }
  return false;
}

absl::StatusOr<bool> FuseCombineTopKWindow(FusionSearch& search, Value* output) {
  if (!IsListOfRows(*output) || BackDim(*output, 1) < 1) return false;
  const auto attributes = AttributesFor(BackDim(*output, 1), search.UpstreamOf({output}).nodes);
  if (attributes.empty()) return false;
  return AnyFuses(CountsOf(search, *output), [&](Value* counts) {
    return FuseWindow(search, ListOutputs("combined", output, "lens", counts), attributes);
  });
}

}  // namespace pagefuse
