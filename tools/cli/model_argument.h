// SPDX-License-Identifier: Apache-2.0
// The model that a command is about: a graph, or a folder as people download it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/cli/command_line.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/runtime/model_folder.h"

namespace pagefuse::tools {

struct ModelFlags {
  std::string path = {};   // of a folder or a graph, or - for standard input
  std::string graph = {};  // which of several graphs of a folder
};

// Adds MODEL, which every command needs that asks for one, and --graph.
Option AddModelArgument(Command command, ModelFlags& flags);

// --graph alone, for commands that take several models.
Option AddGraphFlag(Command command, std::string& graph);

// Finds graph, config and tokenizer (OpenModelFolder); of several graphs the one that can be paged,
// which a line on the error stream names. Standard input has no files beside it.
absl::StatusOr<ModelFolder> FindModel(const ModelFlags& flags);

// Reads the graph that FindModel finds.
absl::StatusOr<Model> ReadModel(const ModelFlags& flags, const LoadOptions& options = {});

}  // namespace pagefuse::tools
