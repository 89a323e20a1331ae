// SPDX-License-Identifier: Apache-2.0
// pagefuse diff: what two graphs do differently.
#include <iostream>
#include <memory>

#include "tools/cli/output.h"
#include "tools/cli/subcommand.h"

#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/debug/model_diff.h"
#include "pagefuse/passes/verify/compare_models.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  std::string before, after, graph;
  bool numbers = false, json = false;
};

using Json = nlohmann::ordered_json;

Json ToJson(const ModelDiff& diff) {
  Json ops = Json::object(), hunks = Json::array(), constants = Json::array();
  for (const auto& [op, counts] : diff.ops) ops[op] = {counts.first, counts.second};
  for (const ModelDiff::Hunk& hunk : diff.hunks) {
    hunks.push_back({{"layer", hunk.layer},
                     {"from", hunk.from},
                     {"removed", hunk.removed},
                     {"added", hunk.added}});
  }
  for (const ModelDiff::Constant& constant : diff.constants) {
    Json entry = {{"name", constant.name}};
    if (constant.largest) entry["largest"] = *constant.largest;
    constants.push_back(std::move(entry));
  }
  return {{"same", diff.same()},     {"ops", ops},     {"inputs", diff.inputs},
          {"outputs", diff.outputs}, {"hunks", hunks}, {"constants", constants}};
}

// What both give on the same made-up inputs.
std::string CompareNumbers(Model& before, Model& after) {
  for (Model* model : {&before, &after}) {
    const absl::Status inferred = InferShapes(*model);
    if (!inferred.ok()) return StrCat("not compared: ", ShortMessage(StdView(inferred.message())));
  }
  const auto compared = CompareOnRandomInputs(before, after);
  if (!compared.ok()) return ShortMessage(StdView(compared.status().message()));
  return *compared == kVerifiedEqual ? *compared : StrCat("not compared: ", *compared);
}

absl::StatusOr<int> Run(const Flags& flags) {
  PF_ASSIGN_OR_RETURN(Model before,
                      ReadModel({flags.before, flags.graph}, {.allow_missing_data = true}));
  PF_ASSIGN_OR_RETURN(Model after,
                      ReadModel({flags.after, flags.graph}, {.allow_missing_data = true}));
  const ModelDiff diff = DiffModels(before, after);
  const std::string numbers = flags.numbers ? CompareNumbers(before, after) : "";
  if (flags.json) {
    Json json = ToJson(diff);
    if (flags.numbers) json["numbers"] = numbers;
    std::cout << JsonText(json, 2) << "\n";
  } else {
    std::cout << ModelDiffText(diff);
    if (flags.numbers) std::cout << "numbers: " << numbers << "\n";
  }
  const bool same = diff.same() && (!flags.numbers || numbers == kVerifiedEqual);
  return same ? kDone : kWrongInput;
}

}  // namespace

void AddDiffCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command =
      AddSubcommand(app, outcome, {"diff", "shows what two graphs do differently"}, flags, Run);
  command.AddText("before", flags->before, "folder of a model, or its graph").Required();
  command.AddText("after", flags->after, "folder of a model, or its graph").Required();
  AddGraphFlag(command, flags->graph);
  command.AddFlag("--numbers", flags->numbers, "run both on the same made-up inputs");
  command.AddFlag("--json", flags->json, "machine-readable output");
  command.Footer(
      "Names of values and the order of nodes do not count; inputs and outputs belong together by "
      "their names. Status 0 if nothing differs, 1 if something does.");
}

}  // namespace pagefuse::tools
