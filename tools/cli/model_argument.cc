// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/model_argument.h"

#include <iostream>

#include "absl/strings/str_join.h"
#include "tools/cli/command.h"
#include "tools/cli/verbosity.h"

#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/runtime/cache_layout.h"

namespace pagefuse::tools {
namespace {

// Whether the passes make a paged cache of the graph's past, or one is there. Pointers of Git LFS and
// other files that cannot be read have none.
bool CanBePaged(const std::string& path) {
  auto model = ReadModel(path, {.allow_missing_data = true});
  return model.ok() && RunPipeline(*model).ok() && CacheLayout::FromModel(*model).ok();
}

}  // namespace

Option AddModelArgument(Command command, ModelFlags& flags) {
  AddGraphFlag(command, flags.graph);
  return command
      .AddText("model", flags.path,
               "folder of a model, or its graph (ONNX, protobuf or text); - for standard input")
      .Required();
}

Option AddGraphFlag(Command command, std::string& graph) {
  return command.AddText("--graph", graph,
                         "which of several graphs of a folder; the first that can be paged if left "
                         "out");
}

absl::StatusOr<ModelFolder> FindModel(const ModelFlags& flags) {
  if (flags.path == "-") {
    ModelFolder none;
    none.graph = flags.path;
    return none;
  }
  PF_ASSIGN_OR_RETURN(ModelFolder folder, OpenModelFolder(flags.path, flags.graph, CanBePaged));
  if (!folder.choice.empty() && ChosenVerbosity() != Verbosity::kQuiet) {
    std::cerr << "pagefuse: " << ShortMessage(folder.choice) << " (--graph takes another: "
              << ShortMessage(absl::StrJoin(folder.other_graphs, ", ")) << ")\n";
  }
  return folder;
}

absl::StatusOr<Model> ReadModel(const ModelFlags& flags, const LoadOptions& options) {
  PF_ASSIGN_OR_RETURN(const ModelFolder folder, FindModel(flags));
  return ReadModel(folder.graph, options);
}

}  // namespace pagefuse::tools
