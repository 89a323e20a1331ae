// SPDX-License-Identifier: Apache-2.0
// Finds the files of a model's folder as people download it: which file is the graph, and what lies
// beside it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/runtime/model_config.h"

namespace pagefuse {

// Paths; empty where there is no such file.
struct ModelFolder {
  std::string graph;
  std::vector<std::string> other_graphs;  // that could be run instead, by name
  std::string choice;  // of several graphs which one it is and why, where nobody named it
  ModelConfig config;
  std::string tokenizer;             // tokenizer.json
  std::string tokenizer_config;      // tokenizer_config.json
  std::string special_tokens_map;    // special_tokens_map.json
  std::string chat_template;         // chat_template.jinja
  std::string chat_template_json;    // chat_template.json, of processors
  bool has_tokenizer_model = false;  // tokenizer.model, which is not read
};

// `path` is a folder of Hugging Face's layout (model.onnx or onnx/model*.onnx, config.json,
// generation_config.json, tokenizer files) or of ONNX Runtime GenAI's (genai_config.json names the
// graph), or a graph in one. `graph`: the name of one of several graphs, empty for model.onnx, or
// the only one. `can_be_paged` is asked of several graphs that nothing chooses among, usual names
// first, and the first for which it is true is taken; where it is null or true for none, a usual name
// is. Files that the folder names must lie in it: `..` and links out of it are InvalidArgument
// (ContainedPath), as are folders that may not be read. NotFound and InvalidArgument name file and
// key, and say of what is no graph what it is and what makes one of it (foreign_model.h).
absl::StatusOr<ModelFolder> OpenModelFolder(
    const std::string& path, const std::string& graph = "",
    const std::function<bool(const std::string& path)>& can_be_paged = nullptr);

// What lies beside a graph alone, tokenizer and chat template; there need be no graph. `path` is such a
// folder, or a file in it. NotFound without a tokenizer.json.
absl::StatusOr<ModelFolder> OpenTokenizerFolder(const std::string& path);

}  // namespace pagefuse
