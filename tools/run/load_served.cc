// SPDX-License-Identifier: Apache-2.0
#include "tools/run/load_served.h"

#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>

#include "tools/cli/version.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/runtime/verdict_store.h"

namespace pagefuse::tools {
namespace {

// "gemma3_recall" of a folder, or of a graph in it.
std::string FolderName(const std::string& given) {
  std::filesystem::path path = std::filesystem::path(given).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.extension() == ".onnx" && path.has_parent_path()) path = path.parent_path();
  if (path.filename() == "onnx" && path.has_parent_path()) path = path.parent_path();
  const std::string name = path.filename().string();
  return name.empty() || name == "." || name == ".." ? "model" : name;
}

// Of a prompt of some tokens and a short answer: what is slow but once is over before it counts.
absl::Status WarmUpServer(Decoder& decoder) {
  constexpr int64_t kTokens = 64;
  Request request;
  for (int64_t i = 0; i < kTokens; ++i) {
    request.prompt.push_back(decoder.engine() ? decoder.engine()->NextThatRuns(i) : i);
  }
  request.max_new_tokens = 2;
  return decoder.WarmUp({request});
}

// Equal ones give equal tokens: what is run, how it is kept, and what computes it.
std::string FingerprintOf(const std::string& run_key, const GenerateFlags& flags) {
  const std::string modes = StrCat(VersionText(), "|", flags.session.weights.format, "|", run_key);
  return StrCat("pf_", absl::Hex(std::hash<std::string>()(modes)));
}

}  // namespace

std::string ServedWeights() { return HasBf16Tiles() ? "bf16" : WeightFlags{}.format; }

void AddServedFlags(Command command, GenerateFlags& flags, ServedFlags& served) {
  command.AddText("--model-name", served.name, "as requests name it; the folder's if left out");
  command.AddFlag(
      "--require-paged", flags.require_paged,
      "a graph that cannot be paged, or has other logits then, is an error; otherwise it "
      "is served one request at a time");
  command.AddText("--chat-template", flags.chat_template, "a file with another chat template");
  command.AddText(
      "--reasoning", served.reasoning,
      "how answers mark reasoning: think, gemma4, harmony or none; found by itself if left out");
  command.AddText(
      "--tools", served.tools,
      "how answers call tools: hermes, deepseek_v3, deepseek_v31, deepseek_v32, llama3_json, "
      "functiongemma or none; found by itself if left out");
}

absl::Status ReadServedFlags(GenerateFlags& flags) {
  flags.chat = true;  // there is no prompt, nor is one read
  PF_RETURN_IF_ERROR(ReadEngineFlags(flags));
  PF_RETURN_IF_ERROR(CheckEngineOptions(flags.engine));
  PF_ASSIGN_OR_RETURN(flags.engine.session, MakeSessionOptions(flags.session));
  return ReadCacheFlags(flags.cache, flags.engine.session.pipeline.options);
}

absl::StatusOr<serve::ServedModel> LoadServed(GenerateFlags& flags, const ServedFlags& served) {
  PF_ASSIGN_OR_RETURN(GenerateSetup setup, OpenSetup(flags));
  std::string run_key;
  const auto on_read = [&](const Model& read) { run_key = RunKey(read, flags.engine); };
  serve::ServedModel model;
  PF_ASSIGN_OR_RETURN(model.decoder, LoadDecoder(flags, setup.folder.graph, on_read));
  PF_RETURN_IF_ERROR(TakeBytes(flags, model.decoder->vocabulary(), setup));
  PF_RETURN_IF_ERROR(WarmUpServer(*model.decoder));
  model.name = served.name.empty() ? FolderName(flags.model.path) : served.name;
  model.texts = setup.texts;
  model.tokenizer = setup.tokenizer;
  model.config = setup.folder.config;
  model.sampling = setup.sampling;
  model.created = std::time(nullptr);
  PF_RETURN_IF_ERROR(model.FindFormat({.reasoning = served.reasoning, .tools = served.tools}));
  model.fingerprint = FingerprintOf(run_key, flags);
  // Rows of a GPU have other bits among others.
  model.batch_invariant = model.decoder->engine() == nullptr ||
                          (flags.engine.prefix_reuse != PrefixReuse::kAll &&
                           model.decoder->engine()->session().device() == nullptr);
  return model;
}

}  // namespace pagefuse::tools
