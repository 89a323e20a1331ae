// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/contained_path.h"
#include "pagefuse/runtime/config_json.h"
#include "pagefuse/runtime/foreign_model.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

using GraphTest = std::function<bool(const std::string& path)>;

// OK where there is no error, or nothing of that name.
absl::Status CheckRead(const fs::path& path, const std::error_code& error) {
  if (!error || error == std::errc::no_such_file_or_directory ||
      error == std::errc::not_a_directory) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("cannot read \"", path.string(), "\": ", error.message()));
}

// The names of the graphs in the folder and in its "onnx", sorted.
absl::StatusOr<std::vector<std::string>> GraphNames(const fs::path& folder) {
  std::vector<std::string> names;
  for (const char* inner : {"", "onnx"}) {
    const fs::path listed = *inner == '\0' ? folder : folder / inner;
    std::error_code error;
    fs::directory_iterator entry(listed, error);
    PF_RETURN_IF_ERROR(CheckRead(listed, error));
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      if (entry->path().extension() != ".onnx") continue;
      names.push_back((fs::path(inner) / entry->path().filename()).string());
    }
    PF_RETURN_IF_ERROR(CheckRead(listed, error));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The path of a file in the folder; empty if it is not there. An error if it leads out.
absl::StatusOr<std::string> Find(const fs::path& folder, const std::string& name) {
  std::error_code error;
  const bool there = fs::exists(fs::symlink_status(folder / name, error));
  PF_RETURN_IF_ERROR(CheckRead(folder / name, error));
  if (!there) return std::string();
  const auto inside = ContainedPath(folder.string(), name);
  if (inside.ok()) return (folder / name).string();
  return absl::Status(inside.status().code(),
                      StrCat("\"", folder.string(), "\": ", StdView(inside.status().message())));
}

absl::Status NoGraph(const fs::path& folder, std::string_view expected,
                     const std::vector<std::string>& names) {
  return absl::NotFoundError(
      StrCat("\"", folder.string(), "\": expected ", expected, ", got ",
             names.empty() ? std::string("no graph") : absl::StrJoin(names, ", ")));
}

// What genai_config.json says; empty where it says nothing.
absl::StatusOr<std::string> ConfiguredGraph(const fs::path& folder) {
  const fs::path genai_path = folder / "genai_config.json";
  PF_ASSIGN_OR_RETURN(const ConfigJson genai, ConfigJson::Read(genai_path));
  PF_ASSIGN_OR_RETURN(const auto named, genai.Member("model").Member("decoder").Text("filename"));
  if (!named) return std::string();
  PF_ASSIGN_OR_RETURN(const std::string found, Find(folder, *named));
  if (!found.empty()) return *named;
  return absl::NotFoundError(StrCat("\"", genai_path.string(), "\": model.decoder.filename: \"",
                                    *named, "\" is not there"));
}

absl::Status NoGraphAtAll(const fs::path& folder) {
  if (const std::string instead = WhatFolderHasInstead(folder.string()); !instead.empty()) {
    return absl::NotFoundError(StrCat("\"", folder.string(), "\" ", instead));
  }
  return NoGraph(
      folder, "model.onnx, onnx/model*.onnx or genai_config.json with model.decoder.filename", {});
}

// One of several: the first that can be paged, else model.onnx, else onnx/model.onnx.
absl::StatusOr<std::string> ChooseAmong(std::vector<std::string> names, ModelFolder& model,
                                        const fs::path& folder, const GraphTest& can_be_paged) {
  std::vector<std::string> ordered;
  for (const char* usual : {"model.onnx", "onnx/model.onnx"}) {
    const auto place = std::find(names.begin(), names.end(), usual);
    if (place == names.end()) continue;
    ordered.push_back(usual);
    names.erase(place);
  }
  const bool has_usual = !ordered.empty();
  ordered.insert(ordered.end(), names.begin(), names.end());
  const std::string count =
      StrCat("of the ", ordered.size(), " graphs in \"", folder.string(), "\" ");
  for (const std::string& name : ordered) {
    const auto path = Find(folder, name);
    if (!can_be_paged || !path.ok() || !can_be_paged(*path)) continue;
    model.choice =
        StrCat(count, name, " is used, ",
               has_usual && name == ordered[0] ? "which" : "the first that", " can be paged");
    return name;
  }
  if (!has_usual) return NoGraph(folder, "model.onnx, or --graph with one of several", ordered);
  if (can_be_paged) model.choice = StrCat(count, ordered[0], " is used; none of them can be paged");
  return ordered[0];
}

absl::StatusOr<std::string> ChooseGraph(const fs::path& folder,
                                        const std::vector<std::string>& names, ModelFolder& model,
                                        const GraphTest& can_be_paged) {
  PF_ASSIGN_OR_RETURN(const std::string configured, ConfiguredGraph(folder));
  if (!configured.empty()) return configured;
  if (names.empty()) return NoGraphAtAll(folder);
  if (names.size() == 1) return names[0];
  return ChooseAmong(names, model, folder, can_be_paged);
}

// `graph` as a path in the folder, or as a file's name.
absl::StatusOr<std::string> NamedGraph(const fs::path& folder, const std::string& graph,
                                       const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name == graph || fs::path(name).filename() == graph) return name;
  }
  return NoGraph(folder, StrCat("the graph \"", graph, "\""), names);
}

absl::Status FindFiles(const fs::path& folder, ModelFolder& model) {
  for (const char* name : {"config.json", "generation_config.json", "genai_config.json"}) {
    PF_RETURN_IF_ERROR(Find(folder, name).status());
  }
  PF_ASSIGN_OR_RETURN(model.tokenizer, Find(folder, "tokenizer.json"));
  PF_ASSIGN_OR_RETURN(model.tokenizer_config, Find(folder, "tokenizer_config.json"));
  PF_ASSIGN_OR_RETURN(model.special_tokens_map, Find(folder, "special_tokens_map.json"));
  PF_ASSIGN_OR_RETURN(model.chat_template, Find(folder, "chat_template.jinja"));
  PF_ASSIGN_OR_RETURN(model.chat_template_json, Find(folder, "chat_template.json"));
  PF_ASSIGN_OR_RETURN(const std::string tokenizer_model, Find(folder, "tokenizer.model"));
  model.has_tokenizer_model = !tokenizer_model.empty();
  return absl::OkStatus();
}

// The folder that a graph belongs to: its own, or the one around it where that has the files.
fs::path FolderOf(const fs::path& graph) {
  std::error_code error;
  const fs::path own = fs::absolute(graph, error).parent_path();
  for (const char* name :
       {"config.json", "generation_config.json", "genai_config.json", "tokenizer.json"}) {
    if (fs::exists(own / name, error)) return own;
  }
  return own.filename() == "onnx" ? own.parent_path() : own;
}

absl::Status TakeFolder(const fs::path& folder, const std::string& graph,
                        const GraphTest& can_be_paged, ModelFolder& model) {
  PF_ASSIGN_OR_RETURN(const std::vector<std::string> names, GraphNames(folder));
  std::string name;
  PF_ASSIGN_OR_RETURN(name, graph.empty() ? ChooseGraph(folder, names, model, can_be_paged)
                                          : NamedGraph(folder, graph, names));
  PF_ASSIGN_OR_RETURN(model.graph, Find(folder, name));
  if (model.graph.empty()) return NoGraph(folder, StrCat("\"", name, "\""), names);
  for (const std::string& other : names) {
    if (other != name) model.other_graphs.push_back(other);
  }
  return FindFiles(folder, model);
}

absl::Status CheckThere(const std::string& path) {
  std::error_code error;
  const bool there = fs::exists(path, error);
  PF_RETURN_IF_ERROR(CheckRead(path, error));
  if (there) return absl::OkStatus();
  return absl::NotFoundError(StrCat("\"", path, "\": expected a folder or a graph, got nothing"));
}

}  // namespace

absl::StatusOr<ModelFolder> OpenTokenizerFolder(const std::string& path) {
  PF_RETURN_IF_ERROR(CheckThere(path));
  ModelFolder model;
  std::error_code error;
  const fs::path folder = fs::is_directory(path, error) ? fs::path(path) : FolderOf(path);
  PF_RETURN_IF_ERROR(FindFiles(folder, model));
  if (!model.tokenizer.empty()) return model;
  return absl::NotFoundError(
      StrCat("\"", folder.string(), "\": expected tokenizer.json, got ",
             model.has_tokenizer_model ? "a tokenizer.model alone, which is not read" : "none"));
}

absl::StatusOr<ModelFolder> OpenModelFolder(const std::string& path, const std::string& graph,
                                            const GraphTest& can_be_paged) {
  ModelFolder model;
  std::error_code error;
  PF_RETURN_IF_ERROR(CheckThere(path));
  if (fs::is_directory(path, error)) {
    PF_RETURN_IF_ERROR(TakeFolder(path, graph, can_be_paged, model));
  } else {
    if (!graph.empty()) {
      return absl::InvalidArgumentError(
          StrCat("\"", path, "\" is a graph: --graph chooses one of a folder"));
    }
    model.graph = path;
    PF_RETURN_IF_ERROR(FindFiles(FolderOf(path), model));
  }
  // A tokenizer of a few megabytes is a pointer, too, where files of that size are.
  for (const std::string& file : {model.graph, model.tokenizer}) {
    const std::string instead = WhatFileIsInstead(file);
    if (!instead.empty()) return absl::InvalidArgumentError(StrCat("\"", file, "\" ", instead));
  }
  PF_ASSIGN_OR_RETURN(model.config, ReadModelConfig(model.graph));
  return model;
}

}  // namespace pagefuse
