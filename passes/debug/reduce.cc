// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/debug/reduce.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/verify.h"
#include "pagefuse/ir/tensor/machine_memory.h"
#include "pagefuse/ir/tensor/memory_budget.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/debug/graph_cut.h"
#include "pagefuse/passes/debug/shrink_sizes.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/verify/compare_models.h"
#include "pagefuse/passes/verify/value_bank.h"

namespace pagefuse {
namespace {

using Feeds = std::map<std::string, Tensor>;
using Nodes = absl::flat_hash_set<const Node*>;

// A reason without names and numbers in quotes, which change as the model does.
std::string Essence(const std::string& reason) {
  std::string text;
  bool quoted = false;
  for (const char c : reason.substr(0, reason.find('\n'))) {
    if (c == '"') quoted = !quoted;
    if (!quoted) text += c;
  }
  return text;
}

ReduceSize SizeOf(const Model& model) {
  ReduceSize size{.nodes = model.graph->num_nodes(),
                  .inputs = static_cast<int64_t>(model.graph->inputs().size())};
  for (const Value* value : model.graph->initializers()) {
    size.constant_bytes += value->initializer()->byte_size();
  }
  return size;
}

class Reducer {
 public:
  Reducer(const Model& model, const ReduceCheck& check, const ReduceOptions& options)
      : check_(check), options_(options) {
    best_.model = model.Clone();
  }

  absl::StatusOr<Reduction> Run() {
    PF_RETURN_IF_ERROR(InferShapes(best_.model));
    out_.before = SizeOf(best_.model);
    MakeFeeds();
    ++out_.checks;
    const std::optional<std::string> reason = check_(best_);
    if (!reason) return absl::InvalidArgumentError("the whole model passes the check");
    out_.reason = *reason;
    essence_ = Essence(*reason);
    TakeLaterForm();
    DropNodes();
    DropOutputs();
    DropConstants();
    ShrinkSizes();
    Rename();
    out_.after = SizeOf(best_.model);
    out_.smallest = std::move(best_);
    return std::move(out_);
  }

 private:
  // The numbers of all values, where the model runs.
  void MakeFeeds() {
    const MemoryBudgetScope scope(std::make_shared<MemoryBudget>(DefaultMemoryBytes()));
    const int attempts = options_.feeds.empty() ? kFeedAttempts : 1;
    for (int attempt = 0; attempt < attempts && banks_.empty(); ++attempt) {
      std::vector<Feeds> all = options_.feeds;
      for (int sample = 0; options_.feeds.empty() && sample < options_.samples; ++sample) {
        auto feeds = RandomFeeds(best_.model, attempt, sample);
        if (!feeds.ok()) return;
        all.push_back(*std::move(feeds));
      }
      for (Feeds& feeds : all) {
        auto bank = ValueBank::Run(best_.model, feeds);
        if (!bank.ok()) break;
        banks_.push_back(*std::move(bank));
      }
      if (banks_.size() != all.size()) banks_.clear();
      if (!banks_.empty()) best_.feeds = std::move(all);
    }
  }

  // With feeds of its own: inputs may be others.
  void TakeLaterForm() {
    if (options_.later == nullptr ||
        options_.later->graph->num_nodes() >= SizeOf(best_.model).nodes) {
      return;
    }
    ReduceCase first = std::exchange(best_, {.model = options_.later->Clone(), .feeds = {}});
    const std::vector<ValueBank> banks = std::exchange(banks_, {});
    if (InferShapes(best_.model).ok()) {
      MakeFeeds();
      if (StillFails(best_)) return;
    }
    best_ = std::move(first);
    banks_ = banks;
  }

  // Types and dims of what became an input, and its numbers.
  void Complete(ReduceCase& attempt) const {
    for (size_t i = 0; i < banks_.size(); ++i) {
      Feeds feeds;
      for (Value* input : attempt.model.graph->inputs()) {
        const Tensor* tensor = banks_[i].Find(input->name());
        if (tensor == nullptr) continue;
        if (input->initializer() == nullptr) feeds[input->name()] = *tensor;
        if (input->dtype() == DataType::kUndefined) input->set_dtype(tensor->dtype());
        if (!input->shape() || input->shape()->rank() != tensor->rank()) {
          input->set_shape(Shape::FromInts(tensor->dims()));
        }
      }
      attempt.feeds.push_back(std::move(feeds));
    }
  }

  bool StillFails(const ReduceCase& attempt) {
    if (attempt.model.graph->outputs().empty() || !Verify(attempt.model).ok()) return false;
    Model inferred = attempt.model.Clone();
    if (!InferShapes(inferred).ok()) return false;
    ++out_.checks;
    const std::optional<std::string> reason = check_(attempt);
    if (!reason || (!options_.any_reason && Essence(*reason) != essence_)) return false;
    out_.reason = *reason;
    return true;
  }

  bool Try(Model model) {
    ReduceCase attempt{.model = std::move(model), .feeds = {}};
    Complete(attempt);
    if (!StillFails(attempt)) return false;
    best_ = std::move(attempt);
    return true;
  }

  bool TryNodes(const std::vector<const Node*>& keep) {
    if (keep.empty()) return false;
    return Try(CutModel(best_.model, Nodes(keep.begin(), keep.end())));
  }

  // A part alone, else all but a part; parts become smaller while neither will do.
  void DropNodes() {
    for (size_t parts = 2;;) {
      const std::vector<Node*> nodes = NodesOf(*best_.model.graph);
      const size_t count = nodes.size();
      if (count <= 1) return;
      parts = std::min(parts, count);
      if (TryParts(nodes, parts)) {
        parts = std::max<size_t>(2, parts / 2);
      } else if (parts == count) {
        return;
      } else {
        parts *= 2;
      }
    }
  }

  bool TryParts(const std::vector<Node*>& nodes, size_t parts) {
    const size_t count = nodes.size();
    for (const bool alone : {true, false}) {
      if (!alone && parts == 2) continue;  // all but a half is the other one
      for (size_t i = 0; i < parts; ++i) {
        const size_t begin = count * i / parts, end = count * (i + 1) / parts;
        std::vector<const Node*> keep;
        for (size_t n = 0; n < count; ++n) {
          if ((n >= begin && n < end) == alone) keep.push_back(nodes[n]);
        }
        if (TryNodes(keep)) return true;
      }
    }
    return false;
  }

  void DropOutputs() {
    for (size_t i = best_.model.graph->outputs().size(); i-- > 0;) {
      if (best_.model.graph->outputs().size() < 2) return;
      Model model = best_.model.Clone();
      model.graph->RemoveOutput(static_cast<int>(i));
      Try(std::move(model));
    }
  }

  // A constant whose numbers do not matter becomes an input.
  void DropConstants() {
    for (const Value* constant : best_.model.graph->initializers()) {
      const std::string name = constant->name();
      Model model = best_.model.Clone();
      Value* value = model.graph->FindValue(name);
      if (value == nullptr || value->is_input()) continue;
      const Tensor tensor = *value->initializer();
      Value* input = model.graph->AddInput(model.graph->UniqueName(name + "_input"), tensor.dtype(),
                                           Shape::FromInts(tensor.dims()));
      model.graph->ReplaceAllUses(value, input);
      ReduceCase attempt{.model = std::move(model), .feeds = best_.feeds};
      const std::string input_name = input->name();
      for (Feeds& feeds : attempt.feeds) feeds[input_name] = tensor;
      Graph& graph = *attempt.model.graph;
      graph.ClearInitializer(graph.FindValue(name));
      graph.EraseValue(graph.FindValue(name));
      if (StillFails(attempt)) best_ = std::move(attempt);
    }
  }

  // 1 wherever that fails too, else 2, else half as often as it does.
  void ShrinkSizes() {
    for (const CaseSize& size : SizesOf(best_)) {
      if (TrySize(size, 1) || TrySize(size, 2)) continue;
      CaseSize now = size;
      while (now.size > 4 && TrySize(now, now.size / 2)) {
        now.size /= 2;
        if (now.dim.is_constant()) now.dim = Dim(now.size);
      }
    }
  }

  bool TrySize(const CaseSize& from, int64_t size) {
    if (size >= from.size) return false;
    std::optional<ReduceCase> attempt = WithSize(best_, from, size);
    if (!attempt || !StillFails(*attempt)) return false;
    best_ = *std::move(attempt);
    return true;
  }

  void Rename() {
    ReduceCase attempt{.model = best_.model.Clone(), .feeds = best_.feeds};
    Graph& graph = *attempt.model.graph;
    int next = 0;
    for (Value* value : graph.values()) {
      const std::string_view kind = value->is_input()                 ? "x"
                                    : value->is_output()              ? "y"
                                    : value->initializer() != nullptr ? "c"
                                                                      : "v";
      const std::string before = value->name();
      graph.Rename(value, graph.UniqueName(StrCat("renamed_", kind, next++)));
      for (Feeds& feeds : attempt.feeds) {
        const auto node = feeds.find(before);
        if (node == feeds.end()) continue;
        Tensor tensor = std::move(node->second);
        feeds.erase(node);
        feeds[value->name()] = std::move(tensor);
      }
    }
    Shorten(attempt);
    for (const auto& node : graph.nodes()) node->name.clear();
    if (StillFails(attempt)) best_ = std::move(attempt);
  }

  // "x0" in place of "renamed_x0", now that nothing else is called so.
  static void Shorten(ReduceCase& attempt) {
    constexpr std::string_view kPrefix = "renamed_";
    Graph& graph = *attempt.model.graph;
    for (Value* value : graph.values()) {
      graph.Rename(value, value->name().substr(kPrefix.size()));
    }
    for (Feeds& feeds : attempt.feeds) {
      Feeds renamed;
      for (auto& [name, tensor] : feeds) {
        renamed[name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name] = tensor;
      }
      feeds = std::move(renamed);
    }
  }

  const ReduceCheck& check_;
  const ReduceOptions& options_;
  ReduceCase best_;
  std::vector<ValueBank> banks_;
  std::string essence_;
  Reduction out_;
};

PipelineOptions Verifying(PipelineOptions options) {
  options.verify = true;
  options.keep_going = true;
  return options;
}

const Rewrite* FirstThatDiffers(const std::vector<Rewrite>& log) {
  const auto found = std::ranges::find(log, Rewrite::Numbers::kDiffer, &Rewrite::numbers);
  return found == log.end() ? nullptr : &*found;
}

std::string Bytes(int64_t bytes) {
  char text[32];
  if (bytes < 1024) return StrCat(bytes, " bytes");
  const bool kib = bytes < (int64_t{1} << 20);
  std::snprintf(text, sizeof(text), kib ? "%.1f KiB" : "%.1f MiB",
                static_cast<double>(bytes) / (kib ? 1024.0 : 1048576.0));
  return text;
}

std::string Counted(int64_t count, std::string_view what) {
  return StrCat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

absl::StatusOr<Reduction> Reduce(const Model& model, const ReduceCheck& check,
                                 const ReduceOptions& options) {
  return Reducer(model, check, options).Run();
}

ReduceCheck VerifyCheck(const PipelineOptions& options) {
  PipelineOptions quiet = Verifying(options);
  quiet.print_to = nullptr;
  quiet.reproducer_dir.clear();
  return [quiet](const ReduceCase& attempt) -> std::optional<std::string> {
    PipelineOptions here = quiet;
    here.feeds = attempt.feeds;
    Model model = attempt.model.Clone();
    const auto report = RunPipeline(model, here);
    if (!report.ok()) return std::string(StdView(report.status().message()));
    const Rewrite* rewrite = FirstThatDiffers(report->log);
    return rewrite == nullptr ? std::nullopt : std::optional(rewrite->rule);
  };
}

absl::StatusOr<Model> ModelBefore(const Model& model, const PipelineOptions& options,
                                  int64_t number) {
  Model before = model.Clone();
  PipelineOptions here = options;
  here.rewrite_limit = number - 1;
  PF_RETURN_IF_ERROR(RunPipeline(before, here).status());
  return before;
}

std::optional<int64_t> FirstDifference(const Model& model, const PipelineOptions& options) {
  Model after = model.Clone();
  const auto report = RunPipeline(after, Verifying(options));
  const Rewrite* rewrite = report.ok() ? FirstThatDiffers(report->log) : nullptr;
  return rewrite == nullptr ? std::nullopt : std::optional(rewrite->number);
}

std::string ReductionText(const Reduction& reduction) {
  return StrCat(
      Counted(reduction.before.nodes, "node"), " -> ", Counted(reduction.after.nodes, "node"), ", ",
      Counted(reduction.before.inputs, "input"), " -> ", Counted(reduction.after.inputs, "input"),
      ", ", Bytes(reduction.before.constant_bytes), " -> ", Bytes(reduction.after.constant_bytes),
      " of constants");
}

}  // namespace pagefuse
