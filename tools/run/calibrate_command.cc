// SPDX-License-Identifier: Apache-2.0
// pagefuse calibrate: scales of an fp8_per_tensor cache, from what prompts make of keys and values.
#include <iostream>
#include <memory>

#include "nlohmann/json.hpp"
#include "tools/cli/command.h"
#include "tools/cli/model_argument.h"
#include "tools/cli/output.h"
#include "tools/cli/prompts.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/runtime/cache_ranges.h"

namespace pagefuse::tools {
namespace {

constexpr float kLargestE4M3 = 448;

struct Flags {
  ModelFlags model;
  std::string prompts, output;
  int64_t max_tokens_per_step = 512;
  SessionFlags session;
};

// The largest number becomes the largest code. Nothing but zeros fits any scale.
float ScaleOf(float largest) { return largest > 0 ? largest / kLargestE4M3 : 1.0f; }

nlohmann::ordered_json ScalesOf(const std::vector<CacheRange>& ranges) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const CacheRange& range : ranges) {
    layers.push_back({{"k_scale", ScaleOf(range.key)}, {"v_scale", ScaleOf(range.value)}});
  }
  return {{"kv_cache", "fp8_per_tensor"}, {"layers", std::move(layers)}};
}

absl::Status Calibrate(const Flags& flags) {
  PagedModelOptions options{.in_pages = false};
  PF_ASSIGN_OR_RETURN(options.session, MakeSessionOptions(flags.session));
  if (!flags.output.empty()) PF_RETURN_IF_ERROR(CheckNewFile(flags.output));
  PF_ASSIGN_OR_RETURN(const ModelFolder folder, FindModel(flags.model));
  PF_ASSIGN_OR_RETURN(Model model, ReadModel(folder.graph));
  PF_ASSIGN_OR_RETURN(auto paged, PagedModel::Create(std::move(model), options));
  PF_ASSIGN_OR_RETURN(const std::vector<std::vector<int64_t>> prompts,
                      ReadPrompts(flags.prompts, folder.config, paged->vocabulary()));
  PF_ASSIGN_OR_RETURN(const std::vector<CacheRange> ranges,
                      MeasureCacheRanges(*paged, prompts, flags.max_tokens_per_step));
  const std::string text = JsonText(ScalesOf(ranges), 2) + "\n";
  if (!flags.output.empty()) return WriteWholeFile(flags.output, text);
  std::cout << text;
  return absl::OkStatus();
}

}  // namespace

void AddCalibrateCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = app.AddCommand("calibrate", "measures scales for a cache in fp8_per_tensor",
                                   [flags, &outcome] { outcome.status = Calibrate(*flags); });
  AddModelArgument(command, flags->model);
  command
      .AddText("--prompts", flags->prompts,
               "a file with a prompt a line: token ids with commas, or text for byte vocabularies")
      .Required();
  command.AddText("-o,--output", flags->output,
                  "file to write, for --kv-cache-scales; the screen if left out");
  command
      .AddNumber("--max-tokens-per-step", flags->max_tokens_per_step, {1, kMaxInt32},
                 "longer prompts are prefilled in chunks of these")
      .ShowsDefault();
  AddSessionFlags(command, flags->session);
  AddLoadFlags(command, flags->session);
}

}  // namespace pagefuse::tools
