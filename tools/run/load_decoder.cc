// SPDX-License-Identifier: Apache-2.0
// Loads the decoder of commands that generate, and tells what there is to know of it.
#include <iostream>
#include <memory>
#include <optional>

#include "tools/cli/verbosity.h"
#include "tools/run/generate.h"

#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/dense_caches.h"

namespace pagefuse::tools {
namespace {

void Warn(const Decoder& decoder) {
  std::cerr << "pagefuse: NOT PAGED: " << ShortMessage(decoder.why_not_paged())
            << "; generating with the graph as "
            << "it was exported, one sequence at a time, "
            << (decoder.plain()->keeps_past() ? "over its own past"
                                              : "from the first token again for every new one")
            << " (--require-paged makes this an error)\n";
}

// With --verbose the caches that lie beside the pages, and why.
void TellDenseCaches(const Decoder& decoder) {
  if (ChosenVerbosity() != Verbosity::kVerbose || decoder.engine() == nullptr) return;
  const auto layout = CacheLayout::FromModel(decoder.session().model());
  if (!layout.ok()) return;
  for (const DenseCache& dense : DenseCaches(*layout, decoder.session())) {
    std::cerr << "pagefuse: " << ShortMessage(dense.Text()) << "\n";
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Decoder>> LoadDecoder(
    const GenerateFlags& flags, const std::string& graph,
    const std::function<void(const Model&)>& on_read) {
  std::optional<ProgressStage> progress(std::in_place, StrCat("loading ", graph));
  const auto load = [&]() -> absl::StatusOr<Model> {
    PF_ASSIGN_OR_RETURN(Model model, ReadModel(graph));
    if (on_read) on_read(model);
    return model;
  };
  PF_ASSIGN_OR_RETURN(const CheckPaging check, ParseCheckPaging(flags.check_paging));
  PF_ASSIGN_OR_RETURN(
      auto decoder, Decoder::Create(load, flags.engine,
                                    {.require_paged = flags.require_paged, .check_paging = check}));
  progress.reset();
  if (decoder->plain()) Warn(*decoder);
  // Why a graph is not paged, Warn has told.
  const auto& verdict = decoder->verdict();
  if (verdict && !(decoder->plain() && verdict->differs())) PrintVerdict(*verdict);
  PrintUnfused(decoder->session().report(), /*attention=*/decoder->engine() != nullptr);
  TellDenseCaches(*decoder);
  return decoder;
}

}  // namespace pagefuse::tools
