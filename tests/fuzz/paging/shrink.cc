// SPDX-License-Identifier: Apache-2.0
#include "shrink.h"

#include <utility>

#include "../decoders/judge_in_child.h"
#include "mutation_parts.h"

#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/debug/reduce.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::fuzz {
namespace {

class Shrinker {
 public:
  Shrinker(PagingCase made, Verdict verdict, const PagingJudge& judge)
      : judge_(judge), best_{std::move(made), std::move(verdict)} {}

  ShrunkCase Run() {
    DropChanges();
    PlainerPlan();
    LeaveOutNodes();
    ReduceGraph();
    PlainerRun();
    return std::move(best_);
  }

 private:
  // True if `decoder` shows the same; it is the best one then.
  bool Try(const DecoderCase& decoder, const std::string& where) {
    if (checks_++ > kMostChecks) return false;
    Verdict verdict = judge_(decoder, best_.made.run);
    if (verdict.judgement != Judgement::kFinding || verdict.kind != best_.verdict.kind)
      return false;
    best_.made.decoder = Copy(decoder);
    if (!where.empty()) best_.made.where = where;
    best_.verdict = std::move(verdict);
    return true;
  }

  bool TryChanges(Subject subject, const std::vector<ChosenChange>& changes) {
    const auto changed = MakeChanges(subject.decoder, changes);
    if (!changed.ok() || !Try(changed->decoder, changed->where)) return false;
    best_.made.subject = std::move(subject);
    best_.made.changes = changes;
    return true;
  }

  Subject SubjectAgain() const {
    const Subject& subject = best_.made.subject;
    return {.name = subject.name,
            .plan = subject.plan,
            .decoder = Copy(subject.decoder),
            .vocabulary = subject.vocabulary};
  }

  void DropChanges() {
    for (size_t i = best_.made.changes.size(); i-- > 0;) {
      if (best_.made.changes.empty()) return;
      std::vector<ChosenChange> fewer = best_.made.changes;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      TryChanges(SubjectAgain(), fewer);
    }
  }

  // The same changes elsewhere, as their places may be others in a plainer decoder.
  bool TryPlan(const Plan& plan) {
    constexpr uint32_t kPlaces = 6;
    for (uint32_t place = 0; place < kPlaces; ++place) {
      std::vector<ChosenChange> changes = best_.made.changes;
      for (ChosenChange& chosen : changes) chosen.seed += place;
      if (TryChanges(MakeSubject(plan), changes)) return true;
    }
    return false;
  }

  void PlainerPlan() {
    if (!best_.made.subject.plan) return;
    for (bool plainer = true; plainer;) {
      plainer = false;
      for (size_t feature = 0; feature < Grammar().size(); ++feature) {
        const auto candidate = best_.made.subject.plan->Without(feature);
        plainer = (candidate && TryPlan(*candidate)) || plainer;
      }
    }
  }

  // A node's result is one of its inputs, where they are alike.
  void LeaveOutNodes() {
    const size_t count = static_cast<size_t>(best_.made.decoder.model.graph->num_nodes());
    for (size_t i = count; i-- > 0;) {
      for (int input = 0; input < 2; ++input) {
        DecoderCase fewer = Copy(best_.made.decoder);
        if (LeaveOut(fewer, i, input) && Try(fewer, "")) break;
      }
    }
  }

  static bool LeaveOut(DecoderCase& decoder, size_t place, int input) {
    Model typed = decoder.model.Clone();
    if (!InferShapes(typed).ok()) return false;
    const std::vector<Node*> nodes = NodesOf(*decoder.model.graph);
    const std::vector<Node*> known = NodesOf(*typed.graph);
    if (place >= nodes.size() || nodes[place]->num_outputs() != 1) return false;
    const Value* from = known[place]->input(input);
    const Value* to = known[place]->output(0);
    const bool alike = from && to && from->dtype() == to->dtype() && from->shape() && to->shape() &&
                       ProvablyEqual(*from->shape(), *to->shape());
    if (!alike) return false;
    Graph& graph = *decoder.model.graph;
    Node* node = nodes[place];
    graph.ReplaceAllUses(node->output(0), node->input(input));
    graph.EraseIfDead(node);
    return true;
  }

  // Outputs, and sizes. What becomes an input there has no role: no such graph is a decoder.
  void ReduceGraph() {
    const auto check = [&](const ReduceCase& attempt) -> std::optional<std::string> {
      DecoderCase decoder = Copy(best_.made.decoder);
      decoder.model = attempt.model.Clone();
      if (!IsWhole(decoder) || !Try(decoder, "")) return std::nullopt;
      return best_.verdict.kind;
    };
    (void)Reduce(best_.made.decoder.model.Clone(), check);  // what was found is kept by Try
  }

  static bool IsWhole(const DecoderCase& decoder) {
    const Graph& graph = *decoder.model.graph;
    for (const Value* input : graph.inputs()) {
      if (!input->initializer() && !decoder.feeds.contains(input->name())) return false;
    }
    const auto has = [&](const std::string& name) {
      const Value* output = graph.FindValue(name);
      return output && output->is_output();
    };
    bool whole = has(decoder.logits);
    for (const auto& [past, present] : decoder.presents) {
      whole = whole && graph.FindValue(past) && has(present);
    }
    return whole;
  }

  void PlainerRun() {
    const auto attempt = [&](const PagingRun& run) {
      const PagingRun before = std::exchange(best_.made.run, run);
      if (Try(best_.made.decoder, "")) return true;
      best_.made.run = before;
      return false;
    };
    PagingRun run = best_.made.run;
    run.absorb_latent = false;
    run.block_size = 16;
    attempt(run);
    run = best_.made.run;
    run.tokens_per_step = 512;
    attempt(run);
    for (const auto& prompt : best_.made.run.prompts) {
      run = best_.made.run;
      run.prompts = {prompt};
      if (attempt(run)) return;
    }
  }

  static constexpr int kMostChecks = 400;

  const PagingJudge& judge_;
  ShrunkCase best_;
  int checks_ = 0;
};

}  // namespace

ChildLimits PagingLimits() { return {.piece_seconds = 30}; }

Verdict JudgeAlone(Progress& progress, const DecoderCase& decoder, const PagingRun& run) {
  return JudgeAlone(
      progress, [&] { return JudgePaging(decoder, run); }, PagingLimits());
}

ShrunkCase Shrink(PagingCase made, const Verdict& verdict, const PagingJudge& judge) {
  return Shrinker(std::move(made), verdict, judge).Run();
}

}  // namespace pagefuse::fuzz
