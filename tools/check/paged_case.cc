// SPDX-License-Identifier: Apache-2.0
#include "tools/check/paged_case.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "tools/check/case_outputs.h"
#include "tools/check/paged_batch.h"
#include "tools/check/paged_history.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

constexpr const char* kLogits = "logits";

// One data set over a model's cache.
class PagedRun {
 public:
  PagedRun(PagedModel& model, const TestCase& test_case, size_t index, const PagedBatch& batch)
      : model_(model),
        test_case_(test_case),
        index_(index),
        data_(test_case.data_sets[index]),
        batch_(batch) {}

  // float [1, T, V] of all tokens, packed.
  absl::StatusOr<Tensor> Run() {
    const int64_t total = batch_.past + batch_.length;
    const auto count = static_cast<int64_t>(batch_.sequences.size());
    PF_RETURN_IF_ERROR(model_.Reserve(std::vector<int64_t>(count, total), count * total));
    std::vector<SequenceId> ids;
    for (int64_t i = 0; i < count; ++i) ids.push_back(model_.cache().AddSequence());
    absl::Status past = WritePasts(ids);
    if (absl::IsUnimplemented(past)) {
      for (SequenceId& id : ids) {
        model_.cache().Remove(id);
        id = model_.cache().AddSequence();
      }
      past = Replay(ids, past);
    }
    PF_RETURN_IF_ERROR(past);
    std::vector<PagedModel::Tokens> step;
    for (int64_t i = 0; i < count; ++i) {
      step.push_back({.sequence = ids[i], .ids = batch_.sequences[i].tokens});
    }
    return model_.Step(step);
  }

 private:
  absl::Status WritePasts(const std::vector<SequenceId>& ids) {
    for (size_t i = 0; i < ids.size(); ++i) {
      PF_RETURN_IF_ERROR(WritePast(ids[i], batch_.sequences[i]));
    }
    return absl::OkStatus();
  }

  // Runs the tokens that the past is of; `status` where they are not known.
  absl::Status Replay(const std::vector<SequenceId>& ids, const absl::Status& status) {
    const auto histories = FindHistory(test_case_, index_, batch_);
    if (!histories) return status;
    std::vector<PagedModel::Tokens> step;
    for (size_t i = 0; i < ids.size(); ++i) {
      if ((*histories)[i].empty()) continue;
      step.push_back({.sequence = ids[i], .ids = (*histories)[i]});
    }
    return step.empty() ? absl::OkStatus() : model_.Step(step).status();
  }

  // Puts the kept rows of past_key_values.N.key [B, H, P, D], or of what the graph says is the past,
  // into kv_cache.N.key [blocks, block_size, H, D], and those of .key and .value [B, 1, P, L or R]
  // beside each other into kv_cache.N.latent [blocks, block_size, L + R].
  absl::Status WritePast(SequenceId id, const PagedSequence& sequence) {
    if (sequence.past.empty()) return absl::OkStatus();
    PF_ASSIGN_OR_RETURN(StepMetadata step,
                        model_.cache().Append({{id, static_cast<int64_t>(sequence.past.size())}}));
    for (size_t g = 0; g < step.groups.size(); ++g) {
      for (const std::string& name : model_.cache().groups()[g].caches) {
        PF_RETURN_IF_ERROR(WriteCache(name, sequence, step.groups[g].slot_mapping));
      }
    }
    return absl::OkStatus();
  }

  absl::Status WriteCache(const std::string& name, const PagedSequence& sequence,
                          const std::vector<int64_t>& slots) {
    constexpr std::string_view kLatent = ".latent";
    const std::vector<int64_t>& dims = model_.cache_tensors().at(name).dims();
    if (const auto told = ToldPast(name)) {
      const int64_t size = told->channels > 0 ? std::min(told->channels, dims[3]) : dims[3];
      return WriteRows(*told, {.cache = name, .heads = dims[2], .size = size, .row = dims[3]},
                       sequence, slots);
    }
    std::string past = "past_key_values" + name.substr(std::string("kv_cache").size());
    if (dims.size() == 3 && !name.ends_with(kLatent)) {
      return NoPagedCounterpart(data_, StrCat("no input holds the rows of \"", name, "\""));
    }
    if (!name.ends_with(kLatent)) {
      const Columns whole{.cache = name, .heads = dims[2], .size = dims[3], .row = dims[3]};
      return WriteRows({past}, whole, sequence, slots);
    }
    past.resize(past.size() - kLatent.size());
    const auto rotated = data_.feeds.find(past + ".value");
    const int64_t tail = rotated == data_.feeds.end() ? 0 : rotated->second.dims().back();
    const int64_t head = dims[2] - tail;
    PF_RETURN_IF_ERROR(
        WriteRows({past + ".key"}, {.cache = name, .size = head, .row = dims[2]}, sequence, slots));
    return WriteRows({past + ".value"},
                     {.cache = name, .begin = head, .size = tail, .row = dims[2]}, sequence, slots);
  }

  // Elements [begin, begin + size) of the cache's rows of `row` elements, `heads` a token.
  struct Columns {
    std::string cache;
    int64_t heads = 1, begin = 0, size = 0, row = 0;
  };

  // An input that has the rows of a past: what each of its axes runs over, as insert-paged-cache tells.
  struct PastInput {
    std::string name;
    std::vector<std::string> axes = {"batch", "head", "token", "channel"};
    int64_t channels = 0;  // of a row, where the cache has zeros behind them
  };

  // What the graph says of the past of a cache.
  std::optional<PastInput> ToldPast(const std::string& cache) const {
    const auto text = FindMetadata(model_.session().model().metadata, "pagefuse.pasts");
    if (!text) return std::nullopt;
    const auto pasts = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    const auto told = pasts.is_object() ? pasts.find(cache) : pasts.end();
    if (told == pasts.end() || !told->is_object() || !told->contains("input") ||
        !told->at("input").is_string() || !told->contains("axes") || !told->at("axes").is_array()) {
      return std::nullopt;
    }
    PastInput input{.name = told->at("input"), .axes = {}};
    const auto channels = told->find("channels");
    if (channels != told->end() && channels->is_number_integer()) input.channels = *channels;
    for (const nlohmann::json& axis : told->at("axes")) {
      if (!axis.is_string()) return std::nullopt;
      input.axes.push_back(axis);
    }
    return input;
  }

  // Where an axis begins to run over what is called so, or the number that it is read at; nullopt if it
  // runs over all of it.
  static std::optional<int64_t> BeginOf(const std::string& axis) {
    int64_t begin = 0;
    const size_t last = axis.rfind(' ');
    const std::string number = last == std::string::npos ? axis : axis.substr(last + 1);
    return absl::SimpleAtoi(number, &begin) ? std::optional(begin) : std::nullopt;
  }

  absl::Status WriteRows(const PastInput& input, const Columns& columns,
                         const PagedSequence& sequence, const std::vector<int64_t>& slots) {
    Tensor& cache = model_.cache_tensors().at(columns.cache);
    const auto found = data_.feeds.find(input.name);
    if (found == data_.feeds.end()) {
      return NoPagedCounterpart(data_, StrCat("there is no data for input \"", input.name,
                                              "\", the past of \"", columns.cache, "\""));
    }
    const Tensor& past = found->second;
    const std::pair<std::string_view, int64_t> kinds[] = {{"batch", batch_.batch},
                                                          {"head", columns.heads},
                                                          {"token", batch_.past},
                                                          {"channel", columns.size}};
    bool fits = past.dtype() == cache.dtype() && past.dims().size() == input.axes.size();
    int64_t strides[4] = {}, begin = 0, stride = 1;
    std::vector<std::string> expected(input.axes.size());
    for (size_t axis = input.axes.size(); axis-- > 0;) {
      const std::string& text = input.axes[axis];
      const auto first = BeginOf(text);
      int64_t count = 1;
      for (int kind = 0; kind < 4; ++kind) {
        if (!text.starts_with(kinds[kind].first)) continue;
        count = kinds[kind].second;
        strides[kind] = stride;
      }
      const int64_t end = first.value_or(0) + count;
      expected[axis] = first ? StrCat(end, " or more") : StrCat(count);
      if (!fits) continue;
      const int64_t length = past.dims()[axis];
      fits = first ? end <= length && *first >= 0 : end == length;
      begin += first.value_or(0) * stride;
      stride *= length;
    }
    if (!fits) {
      return NoPagedCounterpart(
          data_, StrCat("input \"", input.name, "\": expected ", DataTypeName(cache.dtype()), "[",
                        absl::StrJoin(expected, ", "), "], got ", DataTypeName(past.dtype()),
                        DimsToString(past.dims())));
    }
    const int64_t element = BitWidth(cache.dtype()) / 8;
    const auto* from = static_cast<const std::byte*>(past.data());
    auto* blocks = static_cast<std::byte*>(cache.mutable_data());
    const int64_t block_size = cache.dims()[1];
    const int64_t stride_of_block =
        cache.block_stride() > 0 ? cache.block_stride() : cache.byte_size() / cache.dims()[0];
    for (size_t i = 0; i < sequence.past.size(); ++i) {
      for (int64_t h = 0; h < columns.heads; ++h) {
        const int64_t row =
            begin + sequence.row * strides[0] + h * strides[1] + sequence.past[i] * strides[2];
        const int64_t place = ((slots[i] % block_size) * columns.heads + h) * columns.row;
        std::byte* to = blocks + slots[i] / block_size * stride_of_block;
        for (int64_t c = 0; c < columns.size; ++c) {
          std::memcpy(to + (place + columns.begin + c) * element,
                      from + (row + c * strides[3]) * element, element);
        }
      }
    }
    return absl::OkStatus();
  }

  PagedModel& model_;
  const TestCase& test_case_;
  size_t index_;
  const TestDataSet& data_;
  const PagedBatch& batch_;
};

// The rows of float logits [1, T, V] that are compared, in the type of the expected ones.
absl::StatusOr<Tensor> PickRows(const Tensor& logits, const PagedLogits& expected) {
  const int64_t columns = logits.dims().back();
  std::vector<float> values;
  for (const int64_t position : expected.positions) {
    const auto row = logits.values<float>().subspan(position * columns, columns);
    values.insert(values.end(), row.begin(), row.end());
  }
  PF_ASSIGN_OR_RETURN(Tensor rows,
                      Tensor::Allocate(expected.rows.dtype(),
                                       {static_cast<int64_t>(expected.positions.size()), columns}));
  PF_RETURN_IF_ERROR(
      EncodeFromFloat(rows.dtype(), values.data(), rows.size(), rows.mutable_data()));
  return rows;
}

// GroupQueryAttention over pasts that are quantised, or of which some keep a window: data for them
// is no data for the cache of a paged graph.
bool HasPastsOfItsOwn(const Graph& graph) {
  constexpr int kPastKey = 3;
  std::optional<Dim> length;
  for (const auto& node : graph.nodes()) {
    const Value* past = node->input(kPastKey);
    if (!node->Is("GroupQueryAttention", "com.microsoft") || past == nullptr) continue;
    if (!IsFloatingPoint(past->dtype())) return true;
    if (!past->shape() || past->shape()->rank() != 4) continue;
    const Dim& here = (*past->shape())[2];
    if (!ProvablyEqual(length.value_or(here), here)) return true;
    length = here;
  }
  return false;
}

int LogitsIndex(const Graph& graph) {
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    if (graph.outputs()[i]->name() == kLogits) return static_cast<int>(i);
  }
  return -1;
}

// What a data set asks, read before anything runs.
struct Question {
  PagedBatch batch;
  PagedLogits logits;
};

// The expected rows [N, V] are of the type and width that the graph declares its logits with.
absl::Status CheckDeclared(const TestDataSet& data, const Value& logits, const Tensor& rows) {
  const bool ranked = logits.shape() && !logits.shape()->empty();
  const auto columns = ranked ? logits.shape()->back(0).constant() : std::nullopt;
  const bool fits =
      logits.dtype() == rows.dtype() && columns.value_or(rows.dims()[1]) == rows.dims()[1];
  if (fits) return absl::OkStatus();
  return NoPagedCounterpart(
      data, StrCat("the expected logits: the graph declares ", DataTypeName(logits.dtype()),
                   logits.shape() ? logits.shape()->ToString() : "[...]", ", got rows ",
                   DataTypeName(rows.dtype()), DimsToString(rows.dims())));
}

absl::StatusOr<std::vector<Question>> ReadQuestions(const TestCase& test_case) {
  const int index = LogitsIndex(*test_case.model.graph);
  if (index < 0) return NoPagedCounterpart({}, "the graph has no output \"logits\"");
  const Value& declared = *test_case.model.graph->outputs()[index];
  std::vector<Question> questions;
  for (const TestDataSet& data : test_case.data_sets) {
    Question question;
    PF_ASSIGN_OR_RETURN(question.batch, ReadPagedBatch(data));
    PF_ASSIGN_OR_RETURN(question.logits, ReadPagedLogits(data, question.batch, index));
    PF_RETURN_IF_ERROR(CheckDeclared(data, declared, question.logits.rows));
    questions.push_back(std::move(question));
  }
  return questions;
}

// Windows of tokens that become one row begin at the first column of the export, padding or not.
bool CountsPadding(const PagedModel& model, const PagedBatch& batch) {
  const auto& groups = model.layout().groups();
  const bool compresses = std::ranges::any_of(
      groups, [](const CacheGroup& group) { return group.kind == CacheKind::kState; });
  return compresses && std::ranges::any_of(batch.sequences, [](const PagedSequence& sequence) {
           const auto& first = sequence.past.empty() ? sequence.columns : sequence.past;
           return first.front() > 0;
         });
}

absl::Status CheckQuestion(PagedModel& model, const TestCase& test_case, size_t index,
                           const Question& question) {
  PF_ASSIGN_OR_RETURN(const Tensor logits, PagedRun(model, test_case, index, question.batch).Run());
  const Tensor& expected = question.logits.rows;
  PF_ASSIGN_OR_RETURN(const Tensor got, PickRows(logits, question.logits));
  return AtPlace(StrCat(test_case.data_sets[index].name, ", logits of kept tokens"),
                 CompareTensors(RuleFor(test_case, kLogits, expected), got, expected));
}

}  // namespace

bool IsDecoderCase(const TestCase& test_case) {
  if (HasPastsOfItsOwn(*test_case.model.graph)) return false;
  const Value* ids = test_case.model.graph->FindValue("input_ids");
  const Value* mask = test_case.model.graph->FindValue("attention_mask");
  return ids && ids->is_input() && mask && mask->is_input();
}

absl::Status CheckPagedCase(TestCase test_case, const SessionOptions& options,
                            std::vector<std::string>* notes) {
  PF_RETURN_IF_ERROR(CheckDataFits(test_case));
  PF_ASSIGN_OR_RETURN(const std::vector<Question> questions, ReadQuestions(test_case));
  PagedModelOptions paged_options;
  paged_options.session = options;
  paged_options.all_logits = true;
  auto model = PagedModel::Create(test_case.model.Clone(), paged_options);
  if (model.status().code() == absl::StatusCode::kFailedPrecondition) {
    return NoPagedCounterpart({}, StdView(model.status().message()));
  }
  PF_RETURN_IF_ERROR(model.status());
  for (size_t i = 0; i < questions.size(); ++i) {
    const TestDataSet& data = test_case.data_sets[i];
    if (CountsPadding(**model, questions[i].batch)) {
      if (notes == nullptr) continue;
      notes->push_back(
          StrCat(data.name, ": not compared, the export's windows count padding on the left"));
      continue;
    }
    PF_RETURN_IF_ERROR(CheckQuestion(**model, test_case, i, questions[i]));
    if (notes == nullptr || questions[i].batch.hidden == 0) continue;
    notes->push_back(StrCat(data.name, ": ", questions[i].batch.hidden,
                            " tokens are padding, their rows were not compared"));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
