#include "tools/paged_case.h"

#include <cstring>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"

namespace pagefuse {
namespace {

// Which columns of an attention mask [B, T] row `b` keeps.
absl::StatusOr<std::vector<bool>> KeptColumns(const Tensor& mask, int64_t b) {
  PF_ASSIGN_OR_RETURN(std::vector<int64_t> values, IntegerValues(mask));
  const int64_t total = mask.dims()[1];
  std::vector<bool> kept(total);
  for (int64_t j = 0; j < total; ++j) kept[j] = values[b * total + j] != 0;
  return kept;
}

class PagedDataSet {
 public:
  PagedDataSet(PagedModel& model, const TestDataSet& data, const Tensor& expected,
               const CompareRule& rule)
      : model_(model), data_(data), expected_(expected), rule_(rule) {}

  absl::Status Check() {
    const Tensor& ids = data_.feeds.at("input_ids");
    const Tensor& mask = data_.feeds.at("attention_mask");
    if (ids.rank() != 2 || mask.rank() != 2 || mask.dims()[0] != ids.dims()[0] ||
        mask.dims()[1] < ids.dims()[1]) {
      return absl::InvalidArgumentError(
          "input_ids must be [B, S] and attention_mask [B, T], T >= S");
    }
    batch_ = ids.dims()[0];
    length_ = ids.dims()[1];
    past_ = mask.dims()[1] - length_;
    PF_RETURN_IF_ERROR(
        model_.Reserve(std::vector<int64_t>(batch_, past_ + length_), batch_ * (past_ + length_)));
    PF_ASSIGN_OR_RETURN(std::vector<int64_t> tokens, IntegerValues(ids));
    std::vector<PagedModel::Tokens> step;
    for (int64_t b = 0; b < batch_; ++b) {
      PF_ASSIGN_OR_RETURN(std::vector<bool> kept, KeptColumns(mask, b));
      const SequenceId sequence = model_.cache().AddSequence();
      PF_RETURN_IF_ERROR(WritePast(sequence, b, kept));
      PagedModel::Tokens part{.sequence = sequence, .ids = {}};
      for (int64_t i = 0; i < length_; ++i) {
        if (!kept[past_ + i]) continue;
        part.ids.push_back(tokens[b * length_ + i]);
        rows_.push_back(b * length_ + i);
      }
      step.push_back(std::move(part));
    }
    PF_ASSIGN_OR_RETURN(Tensor logits, model_.Step(step));
    return Compare(logits);
  }

 private:
  // Puts the kept rows of past_key_values.N.key [B, H, P, D] into kv_cache.N.key [blocks,
  // block_size, H, D].
  absl::Status WritePast(SequenceId sequence, int64_t b, const std::vector<bool>& kept) {
    std::vector<int64_t> columns;
    for (int64_t j = 0; j < past_; ++j) {
      if (kept[j]) columns.push_back(j);
    }
    if (columns.empty()) return absl::OkStatus();
    PF_ASSIGN_OR_RETURN(StepMetadata step,
                        model_.cache().Append({{sequence, static_cast<int64_t>(columns.size())}}));
    for (size_t g = 0; g < step.groups.size(); ++g) {
      for (const std::string& name : model_.cache().groups()[g].caches) {
        const std::string past_name =
            "past_key_values" + name.substr(std::string("kv_cache").size());
        auto past = data_.feeds.find(past_name);
        if (past == data_.feeds.end()) {
          return absl::InvalidArgumentError(
              StrCat("no feed \"", past_name, "\" for \"", name, "\""));
        }
        PF_RETURN_IF_ERROR(WriteRows(past->second, b, columns, step.groups[g].slot_mapping,
                                     model_.cache_tensors().at(name)));
      }
    }
    return absl::OkStatus();
  }

  absl::Status WriteRows(const Tensor& past, int64_t b, const std::vector<int64_t>& columns,
                         const std::vector<int64_t>& slots, Tensor& cache) const {
    const int64_t heads = cache.dims()[2], size = cache.dims()[3];
    if (past.dims() != std::vector<int64_t>{batch_, heads, past_, size} ||
        past.dtype() != cache.dtype()) {
      return absl::InvalidArgumentError(StrCat("a past is ", DimsToString(past.dims()),
                                               ", expected ",
                                               DimsToString({batch_, heads, past_, size})));
    }
    const int64_t row_bytes = size * BitWidth(cache.dtype()) / 8;
    const auto* from = static_cast<const std::byte*>(past.data());
    auto* to = static_cast<std::byte*>(cache.mutable_data());
    for (size_t i = 0; i < columns.size(); ++i) {
      for (int64_t h = 0; h < heads; ++h) {
        std::memcpy(to + (slots[i] * heads + h) * row_bytes,
                    from + ((b * heads + h) * past_ + columns[i]) * row_bytes, row_bytes);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Compare(const Tensor& logits) const {
    const int64_t vocabulary = expected_.dims().back();
    const auto count = static_cast<int64_t>(rows_.size());
    std::vector<float> wanted;
    for (int64_t row : rows_) {
      auto values = expected_.values<float>().subspan(row * vocabulary, vocabulary);
      wanted.insert(wanted.end(), values.begin(), values.end());
    }
    PF_ASSIGN_OR_RETURN(Tensor got, logits.Reshaped({count, vocabulary}));
    return CompareTensors(rule_, got, Tensor::Of<float>({count, vocabulary}, wanted));
  }

  PagedModel& model_;
  const TestDataSet& data_;
  const Tensor& expected_;
  CompareRule rule_;
  int64_t batch_ = 0, length_ = 0, past_ = 0;
  std::vector<int64_t> rows_;  // of the expected logits, in packed order
};

}  // namespace

bool IsDecoderCase(const TestCase& test_case) {
  for (const auto& node : test_case.model.graph->nodes()) {
    // Attention that keeps the cache itself is not paged.
    if (node->Is("GroupQueryAttention", "com.microsoft")) return false;
  }
  const Value* ids = test_case.model.graph->FindValue("input_ids");
  const Value* mask = test_case.model.graph->FindValue("attention_mask");
  return ids && ids->is_input() && mask && mask->is_input();
}

absl::Status CheckPagedCase(TestCase test_case, const SessionOptions& options) {
  int logits_index = -1;
  const auto& outputs = test_case.model.graph->outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i]->name() == "logits") logits_index = static_cast<int>(i);
  }
  if (logits_index < 0) return absl::InvalidArgumentError("the graph has no output \"logits\"");
  auto found = test_case.rules.find("logits");
  const CompareRule rule =
      found == test_case.rules.end() ? DefaultRule(DataType::kFloat) : found->second;
  PagedModelOptions paged_options;
  paged_options.session = options;
  paged_options.all_logits = true;
  PF_ASSIGN_OR_RETURN(auto model, PagedModel::Create(std::move(test_case.model), paged_options));
  for (const TestDataSet& data : test_case.data_sets) {
    const absl::Status status =
        PagedDataSet(*model, data, data.outputs[logits_index], rule).Check();
    if (!status.ok()) {
      return absl::Status(status.code(),
                          StrCat(data.name, ", logits: ", StdView(status.message())));
    }
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
