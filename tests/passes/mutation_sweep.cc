// SPDX-License-Identifier: Apache-2.0
// Recall of fusions under other forms, and what becomes of graphs whose meaning is another:
//   mutation_sweep [--golden] [--texts] [--corpus DIR] [--only TEXT] [--mutation NAME] [--seeds N]
//                  [--forms | --idioms | --interfaces | --breakages] [--mix N] [--part I N] [--print]
//                  [--explain RULE]
// A line for each graph that is not as it should be, tables by op and mutation, and how many of all.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "fusion_case.h"
#include "graph_mutations.h"
#include "in_doubles.h"
#include "interfaces.h"
#include "paths.h"
#include "text_case.h"
#include "tools/check/expect_case.h"
#include "tools/check/testcase.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

using testing::Mutation;
using testing::Random;

struct Arguments {
  bool golden = false;
  bool texts = false;                                         // tests/data/other_exporters
  bool variants = false, idioms = false, interfaces = false;  // all of these by default
  bool breakages = false;
  bool print = false;
  std::string corpus, only, mutation, explain;
  int seeds = 1;
  int mix = 0;              // so many forms at once, instead of one
  int part = 0, parts = 1;  // every so many cases one
};

struct Share {
  int right = 0, all = 0;
  void Add(bool is_right) {
    right += is_right ? 1 : 0;
    ++all;
  }
};

// How far floats are from exact ones; infinite if they are no floats that doubles stand for.
double DistanceFrom(const Tensor& exact, const Tensor& found) {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  if (exact.dtype() != DataType::kDouble || found.dtype() != DataType::kFloat) {
    return exact.IdenticalTo(found) ? 0 : kFar;
  }
  const auto exacts = exact.values<double>();
  const auto floats = found.values<float>();
  if (exact.dims() != found.dims()) return kFar;
  double distance = 0;
  for (size_t i = 0; i < floats.size(); ++i) {
    if (floats[i] == exacts[i] || (std::isnan(floats[i]) && std::isnan(exacts[i]))) continue;
    const double apart = std::abs(floats[i] - exacts[i]);
    distance = std::isnan(apart) ? kFar : std::max(distance, apart);
  }
  return distance;
}

// Whether the fused graph is as near as the graph itself to what the graph gives in doubles: then
// they differ by rounding.
bool RoundsAsWell(const Model& fused, const Model& graph, const Feeds& feeds) {
  const auto doubles = testing::InDoubles(graph);
  if (!doubles.ok()) return false;
  const auto exact = EvaluateModel(*doubles, feeds);
  const auto wanted = EvaluateModel(graph, feeds), found = EvaluateModel(fused, feeds);
  if (!exact.ok() || !wanted.ok() || !found.ok()) return false;
  for (size_t i = 0; i < exact->size(); ++i) {
    if (DistanceFrom((*exact)[i], (*found)[i]) > DistanceFrom((*exact)[i], (*wanted)[i])) {
      return false;
    }
  }
  return true;
}

class Sweep {
 public:
  explicit Sweep(const Arguments& arguments) : arguments_(arguments) {}

  void Run(const FusionCase& one) {
    ++cases_;
    const auto base = RunFusion(one, one.plain);
    if (!base.ok()) return Line("broken", one, "", base.status());
    const bool fuses = base->fusion.ok();
    if (!arguments_.explain.empty()) {
      const auto misses = MissesOf(one, one.plain);
      if (misses.ok()) Explain(*misses);
    }
    Count("as it is", one, fuses);
    if (!fuses) {
      Line("not fused", one, "as it is", base->fusion);
      return Print(one.plain, base->model);
    }
    const absl::Status same = SameNumbers(one, one.feeds, base->model, one.plain);
    if (!same.ok()) Line("other numbers", one, "as it is", same);
    // Breakages are looked at on more feeds, but for those that say nothing of them: the case's
    // tolerance is too narrow there, or the op takes no such numbers.
    feeds_ = one.feeds;
    for (const Feeds& some : arguments_.breakages ? MoreFeeds(one) : std::vector<Feeds>()) {
      if (SameNumbers(one, {some}, base->model, one.plain).ok()) feeds_.push_back(some);
    }
    if (!one.must_fuse) return;
    if (Wants(arguments_.interfaces)) GiveOtherwise(one);
    for (int seed = 0; seed < arguments_.seeds; ++seed) {
      if (arguments_.mix > 0) {
        Mix(one, seed);
        continue;
      }
      for (const Mutation& mutation : Mutations()) {
        if (!arguments_.mutation.empty() && mutation.name != arguments_.mutation) continue;
        if (arguments_.breakages) {
          Break(one, mutation, seed);
        } else {
          Respell(one, mutation, seed);
        }
      }
    }
  }

  void Print() const {
    for (const auto* table : {&by_group_, &by_mutation_}) {
      std::printf("\n");
      for (const auto& [name, share] : *table) {
        std::printf("| %s | %d of %d |\n", name.c_str(), share.right, share.all);
      }
    }
    Share all;
    for (const auto& [name, share] : by_mutation_) {
      all.right += share.right;
      all.all += share.all;
    }
    std::printf("\n%d cases: %d of %d right", cases_, all.right, all.all);
    for (const auto& [what, count] : lines_) std::printf(", %d %s", count, what.c_str());
    std::printf("\n");
  }

 private:
  bool Wants(bool kind) const {
    const bool some = arguments_.variants || arguments_.idioms || arguments_.interfaces;
    return !arguments_.breakages && (kind || !some);
  }

  std::vector<Mutation> Mutations() const {
    std::vector<Mutation> all;
    const auto add = [&all](std::span<const Mutation> some) {
      all.insert(all.end(), some.begin(), some.end());
    };
    if (arguments_.breakages) add(testing::Breakages());
    if (Wants(arguments_.variants)) add(testing::Variants());
    if (Wants(arguments_.idioms)) add(testing::Idioms());
    return all;
  }

  void GiveOtherwise(const FusionCase& one) {
    for (const Interface& interface : Interfaces()) {
      if (!arguments_.mutation.empty() && interface.name != arguments_.mutation) continue;
      Model changed = one.plain.Clone();
      std::vector<Feeds> feeds = one.feeds;
      if (!interface.change(changed, feeds)) continue;
      const auto outcome = RunFusion(one, changed);
      if (!outcome.ok()) {
        Line("broken", one, interface.name, outcome.status());
        continue;
      }
      Count(interface.name, one, outcome->fusion.ok());
      if (!outcome->fusion.ok()) Line("lost", one, interface.name, outcome->fusion);
      const absl::Status numbers = SameNumbers(one, feeds, outcome->model, changed);
      if (!numbers.ok()) Line("other numbers", one, interface.name, numbers);
      Print(changed, outcome->model);
    }
  }

  void Respell(const FusionCase& one, const Mutation& mutation, int seed) {
    Model mutated = one.plain.Clone();
    Random random(seed);
    const auto count = Mutate(mutated, mutation, 0.5, random);
    if (!count.ok()) return Line("bad mutation", one, mutation.name, count.status());
    if (*count == 0) return;
    const absl::Status same = SameNumbers(one, one.feeds, mutated, one.plain);
    if (!same.ok()) return Line("not the same", one, mutation.name, same);
    const auto outcome = RunFusion(one, mutated);
    if (!outcome.ok()) return Line("broken", one, mutation.name, outcome.status());
    Count(mutation.name, one, outcome->fusion.ok());
    if (!outcome->fusion.ok()) Line("lost", one, mutation.name, outcome->fusion);
    const absl::Status numbers = SameNumbers(one, one.feeds, outcome->model, mutated);
    if (!numbers.ok()) Line("other numbers", one, mutation.name, numbers);
    Print(mutated, outcome->model);
  }

  // Several forms one after the other, as another exporter has habits of its own.
  void Mix(const FusionCase& one, int seed) {
    const std::vector<Mutation> mutations = Mutations();
    Random random(seed + 1);
    Model mixed = one.plain.Clone();
    std::string names;
    int written = 0;
    for (int tried = 0; written < arguments_.mix && tried < 10 * arguments_.mix; ++tried) {
      const Mutation& mutation = mutations[random() % mutations.size()];
      Model next = mixed.Clone();
      const auto count = Mutate(next, mutation, 0.5, random);
      if (!count.ok() || *count == 0) continue;
      if (!SameNumbers(one, one.feeds, next, one.plain).ok()) continue;
      mixed = std::move(next);
      StrAppend(&names, names.empty() ? "" : " + ", mutation.name);
      ++written;
    }
    const auto outcome = RunFusion(one, mixed);
    if (!outcome.ok()) return Line("broken", one, names, outcome.status());
    Count("several", one, outcome->fusion.ok());
    if (!outcome->fusion.ok()) Line("lost", one, names, outcome->fusion);
    const absl::Status numbers = SameNumbers(one, one.feeds, outcome->model, mixed);
    if (!numbers.ok()) Line("other numbers", one, names, numbers);
    Print(mixed, outcome->model);
  }

  void Print(const Model& before, const Model& after) const {
    if (!arguments_.print) return;
    std::printf("%s\n---- after\n%s\n", PrintModel(before).c_str(), PrintModel(after).c_str());
  }

  void Break(const FusionCase& one, const Mutation& mutation, int seed) {
    Model mutated = one.plain.Clone();
    Random random(seed);
    const auto count = Mutate(mutated, mutation, 0, random);
    if (!count.ok() || *count == 0) return;
    std::vector<Feeds> feeds = feeds_;
    // Passes promise nothing of what is no number.
    std::erase_if(feeds, [&](const Feeds& some) {
      return ComputesNan(mutated, some) && !ComputesNan(one.plain, some);
    });
    const absl::Status differs = SameNumbers(one, feeds, mutated, one.plain);
    // It cannot be run, or nobody sees the difference.
    if (absl::IsUnimplemented(differs) || differs.ok()) return;
    const auto outcome = RunFusion(one, mutated);
    if (!outcome.ok()) return Line("broken", one, mutation.name, outcome.status());
    std::erase_if(feeds,
                  [&](const Feeds& some) { return WritesNegativeSlots(outcome->model, some); });
    // The case's tolerance is for its own function.
    std::erase_if(feeds, [&](const Feeds& some) {
      const absl::Status same = SameNumbers(one, {some}, outcome->model, mutated);
      return !same.ok() && !absl::IsUnimplemented(same) &&
             RoundsAsWell(outcome->model, mutated, some);
    });
    const absl::Status same = SameNumbers(one, feeds, outcome->model, mutated);
    const bool wrong = !same.ok() && !absl::IsUnimplemented(same);
    Count(mutation.name, one, !wrong);
    if (wrong) {
      Line("WRONG", one, StrCat(mutation.name, " seed ", seed), same);
      Print(mutated, outcome->model);
    } else if (!outcome->fusion.ok() && outcome->misses.empty()) {
      Line("no reason", one, mutation.name, outcome->fusion);
    }
  }

  // The conditions that a rule failed, one a place.
  void Explain(const std::vector<MissedMatch>& misses) const {
    for (const MissedMatch& miss : misses) {
      if (miss.rule != arguments_.explain) continue;
      std::printf("%s at \"%s\" (%d nodes): %s\n", miss.rule.c_str(), miss.at.c_str(),
                  miss.matched_nodes, miss.condition.c_str());
    }
  }

  void Count(std::string_view mutation, const FusionCase& one, bool right) {
    by_group_[one.group].Add(right);
    by_mutation_[std::string(mutation)].Add(right);
  }

  void Line(std::string_view what, const FusionCase& one, std::string_view mutation,
            const absl::Status& status) {
    ++lines_[std::string(what)];
    std::printf("%s: %s, %s: %s\n", std::string(what).c_str(), one.name.c_str(),
                std::string(mutation).c_str(), std::string(status.message()).c_str());
    std::fflush(stdout);
  }

  const Arguments& arguments_;
  std::vector<Feeds> feeds_;  // of the case that runs
  std::map<std::string, Share> by_group_, by_mutation_;
  std::map<std::string, int> lines_;  // by what they say
  int cases_ = 0;
};

Arguments Read(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--golden") arguments.golden = true;
    if (name == "--texts") arguments.texts = true;
    if (name == "--forms") arguments.variants = true;
    if (name == "--idioms") arguments.idioms = true;
    if (name == "--interfaces") arguments.interfaces = true;
    if (name == "--breakages") arguments.breakages = true;
    if (name == "--print") arguments.print = true;
    if (i + 1 == argc) break;
    if (name == "--corpus") arguments.corpus = argv[i + 1];
    if (name == "--only") arguments.only = argv[i + 1];
    if (name == "--explain") arguments.explain = argv[i + 1];
    if (name == "--mutation") arguments.mutation = argv[i + 1];
    if (name == "--seeds") arguments.seeds = std::stoi(argv[i + 1]);
    if (name == "--mix") arguments.mix = std::stoi(argv[i + 1]);
    if (name == "--part" && i + 2 < argc) {
      arguments.part = std::stoi(argv[i + 1]);
      arguments.parts = std::stoi(argv[i + 2]);
    }
  }
  return arguments;
}

int Main(int argc, char** argv) {
  const Arguments arguments = Read(argc, argv);
  Sweep sweep(arguments);
  int cases = 0;
  const auto run = [&](const std::string& folder, auto load) {
    if (folder.find(arguments.only) == std::string::npos) return;
    if (cases++ % arguments.parts != arguments.part) return;
    const absl::StatusOr<FusionCase> one = load(folder);
    if (one.ok()) return sweep.Run(*one);
    std::printf("%s: %s\n", folder.c_str(), std::string(one.status().message()).c_str());
  };
  if (arguments.golden) {
    for (const std::string& folder : FindTestCases(TestDataPath("golden"))) {
      if (folder.find("/err_") != std::string::npos) continue;
      for (const bool symbols : {false, true}) {
        run(folder, [symbols](const auto& path) { return LoadDecompositionCase(path, symbols); });
      }
    }
  }
  if (arguments.texts) {
    for (const std::string& path : TextCases()) run(path, LoadTextCase);
  }
  if (!arguments.corpus.empty()) {
    for (const std::string& folder : FindTestCases(arguments.corpus)) run(folder, LoadCorpusCase);
  }
  sweep.Print();
  return 0;
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) { return pagefuse::Main(argc, argv); }
