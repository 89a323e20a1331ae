#include "pagefuse/runtime/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/contained_path.h"
#include "pagefuse/runtime/config_json.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

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

// What genai_config.json says, else model.onnx, else onnx/model.onnx, else the only one.
absl::StatusOr<std::string> ChooseGraph(const fs::path& folder,
                                        const std::vector<std::string>& names) {
  const fs::path genai_path = folder / "genai_config.json";
  PF_ASSIGN_OR_RETURN(const ConfigJson genai, ConfigJson::Read(genai_path));
  PF_ASSIGN_OR_RETURN(const auto named, genai.Member("model").Member("decoder").Text("filename"));
  if (named) {
    PF_ASSIGN_OR_RETURN(const std::string found, Find(folder, *named));
    if (!found.empty()) return *named;
    return absl::NotFoundError(StrCat("\"", genai_path.string(), "\": model.decoder.filename: \"",
                                      *named, "\" is not there"));
  }
  for (const char* usual : {"model.onnx", "onnx/model.onnx"}) {
    if (std::find(names.begin(), names.end(), usual) != names.end()) return std::string(usual);
  }
  if (names.size() == 1) return names[0];
  if (names.empty()) {
    return NoGraph(folder,
                   "model.onnx, onnx/model*.onnx or genai_config.json with model.decoder.filename",
                   names);
  }
  return NoGraph(folder, "model.onnx, or --graph with one of several", names);
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

absl::StatusOr<ModelFolder> OpenModelFolder(const std::string& path, const std::string& graph) {
  ModelFolder model;
  std::error_code error;
  PF_RETURN_IF_ERROR(CheckThere(path));
  if (fs::is_directory(path, error)) {
    PF_ASSIGN_OR_RETURN(const std::vector<std::string> names, GraphNames(path));
    std::string name;
    PF_ASSIGN_OR_RETURN(name,
                        graph.empty() ? ChooseGraph(path, names) : NamedGraph(path, graph, names));
    PF_ASSIGN_OR_RETURN(model.graph, Find(path, name));
    if (model.graph.empty()) return NoGraph(path, StrCat("\"", name, "\""), names);
    for (const std::string& other : names) {
      if (other != name) model.other_graphs.push_back(other);
    }
    PF_RETURN_IF_ERROR(FindFiles(path, model));
  } else {
    if (!graph.empty()) {
      return absl::InvalidArgumentError(
          StrCat("\"", path, "\" is a graph: --graph chooses one of a folder"));
    }
    model.graph = path;
    PF_RETURN_IF_ERROR(FindFiles(FolderOf(path), model));
  }
  PF_ASSIGN_OR_RETURN(model.config, ReadModelConfig(model.graph));
  return model;
}

}  // namespace pagefuse
