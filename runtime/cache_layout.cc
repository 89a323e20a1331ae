#include "pagefuse/runtime/cache_layout.h"

#include <algorithm>

#include "nlohmann/json.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/page/page.h"

namespace pagefuse {
namespace {

constexpr std::string_view kGroupsKey = "pagefuse.cache_groups";
constexpr std::string_view kZeroInputsKey = "pagefuse.zero_inputs";

absl::StatusOr<std::vector<CacheGroup>> ParseGroups(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  auto bad = [](std::string_view what) {
    return absl::InvalidArgumentError(StrCat("metadata \"", kGroupsKey, "\": ", what));
  };
  if (!json.is_array()) return bad("expected a JSON list");
  std::vector<CacheGroup> groups;
  for (const auto& item : json) {
    if (!item.is_object() || !item.contains("name") || !item["name"].is_string() ||
        !item.contains("sliding_window") || !item["sliding_window"].is_number_integer() ||
        !item.contains("block_size") || !item["block_size"].is_number_integer() ||
        !item.contains("caches") || !item["caches"].is_array()) {
      return bad("a group needs name, sliding_window, block_size and caches");
    }
    CacheGroup group;
    group.name = item["name"];
    group.sliding_window = item["sliding_window"];
    group.block_size = item["block_size"];
    if (group.block_size < 1 || group.block_size > kMaxBlockSize || group.sliding_window < 0) {
      return bad("a size is out of range");
    }
    for (const auto& cache : item["caches"]) {
      if (!cache.is_string()) return bad("a cache is named by a string");
      group.caches.push_back(cache);
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

// The names that the metadata lists, each an input of one int64 for each token.
absl::StatusOr<std::vector<std::string>> ParseZeroInputs(const Model& model) {
  std::vector<std::string> names;
  const auto text = FindMetadata(model.metadata, kZeroInputsKey);
  if (!text) return names;
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) {
    return absl::InvalidArgumentError(
        StrCat("metadata \"", kZeroInputsKey, "\": expected a JSON list"));
  }
  for (const auto& name : json) {
    const Value* input = name.is_string() ? model.graph->FindValue(std::string(name)) : nullptr;
    if (!input || !input->is_input() || input->dtype() != DataType::kInt64 || !input->shape() ||
        input->shape()->rank() != 1) {
      return absl::InvalidArgumentError(
          StrCat("metadata \"", kZeroInputsKey, "\": expected names of inputs int64[num_tokens]"));
    }
    names.push_back(name);
  }
  return names;
}

}  // namespace

absl::StatusOr<CacheLayout> CacheLayout::FromModel(const Model& model) {
  auto text = FindMetadata(model.metadata, kGroupsKey);
  if (!text) {
    return absl::FailedPreconditionError(
        "the graph has no paged cache: insert-paged-cache did not rewrite it");
  }
  CacheLayout layout;
  PF_ASSIGN_OR_RETURN(layout.groups_, ParseGroups(*text));
  PF_ASSIGN_OR_RETURN(layout.zero_inputs_, ParseZeroInputs(model));
  for (const Value* input : model.graph->inputs()) layout.inputs_.push_back(input->name());
  for (const CacheGroup& group : layout.groups_) {
    for (const std::string& name : group.caches) {
      const Value* value = model.graph->FindValue(name);
      if (!value || !value->is_input() || !value->shape() || value->shape()->rank() < 2) {
        return absl::InvalidArgumentError(StrCat("cache \"", name, "\" is no input of the graph"));
      }
      std::vector<Dim> rest(value->shape()->dims().begin() + 1, value->shape()->dims().end());
      auto dims = Shape(rest).constant();
      if (!dims || (*dims)[0] != group.block_size) {
        return absl::InvalidArgumentError(StrCat("cache \"", name, "\": expected [num_blocks, ",
                                                 group.block_size, ", ...], got ",
                                                 value->shape()->ToString()));
      }
      layout.tensors_[name] = {.dtype = value->dtype(), .row_dims = *std::move(dims)};
    }
  }
  return layout;
}

int64_t CacheLayout::bytes_per_token() const {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors_) {
    int64_t elements = 1;
    for (size_t i = 1; i < tensor.row_dims.size(); ++i) elements *= tensor.row_dims[i];
    bytes += elements * BitWidth(tensor.dtype) / 8;
  }
  return bytes;
}

int64_t CacheLayout::BlocksFor(const CacheGroup& group, const std::vector<int64_t>& lengths,
                               int64_t step_tokens) const {
  int64_t blocks = 0;
  for (int64_t length : lengths) {
    int64_t needed = (length + group.block_size - 1) / group.block_size;
    const int64_t outside = length - group.sliding_window;
    if (group.sliding_window > 0 && step_tokens < outside) {
      // The window, the step's own tokens, and one block cut at either end.
      const int64_t held = group.sliding_window + step_tokens;
      needed = std::min(needed, (held + group.block_size - 1) / group.block_size + 2);
    }
    blocks += needed;
  }
  return blocks;
}

absl::StatusOr<std::map<std::string, Tensor>> CacheLayout::Allocate(
    const std::vector<CacheGroup>& groups) const {
  std::map<std::string, Tensor> tensors;
  for (const CacheGroup& group : groups) {
    for (const std::string& name : group.caches) {
      const CacheTensor& cache = tensors_.at(name);
      std::vector<int64_t> dims = {group.num_blocks};
      dims.insert(dims.end(), cache.row_dims.begin(), cache.row_dims.end());
      PF_ASSIGN_OR_RETURN(tensors[name], Tensor::Allocate(cache.dtype, std::move(dims)));
    }
  }
  return tensors;
}

void CacheLayout::AddStepFeeds(const std::vector<int64_t>& input_ids, const StepMetadata& step,
                               std::map<std::string, Tensor>& feeds) const {
  const auto tokens = static_cast<int64_t>(input_ids.size());
  const auto sequences = static_cast<int64_t>(step.seq_lens.size());
  auto add = [&](std::string name, Tensor tensor) {
    if (std::count(inputs_.begin(), inputs_.end(), name) > 0)
      feeds[std::move(name)] = std::move(tensor);
  };
  add("input_ids", Tensor::Of<int64_t>({tokens}, input_ids));
  add("positions", Tensor::Of<int64_t>({tokens}, step.positions));
  for (const std::string& name : zero_inputs_) {
    add(name, Tensor::Of<int64_t>({tokens}, std::vector<int64_t>(input_ids.size(), 0)));
  }
  add("query_start_loc", Tensor::Of<int32_t>({sequences + 1}, step.query_start_loc));
  add("seq_lens", Tensor::Of<int32_t>({sequences}, step.seq_lens));
  for (size_t g = 0; g < groups_.size(); ++g) {
    const StepMetadata::Group& group = step.groups[g];
    add(StrCat("block_table.", groups_[g].name),
        Tensor::Of<int32_t>({sequences, group.max_blocks}, group.block_table));
    add(StrCat("slot_mapping.", groups_[g].name),
        Tensor::Of<int64_t>({tokens}, group.slot_mapping));
  }
}

}  // namespace pagefuse
