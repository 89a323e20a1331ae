// SPDX-License-Identifier: Apache-2.0
// pagefuse serve: a model behind the APIs that people's clients speak.
#include <csignal>
#include <ctime>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include <pthread.h>
#include <unistd.h>

#include "tools/cli/subcommand.h"
#include "tools/run/generate.h"
#include "tools/run/key_file.h"
#include "tools/run/load_served.h"
#include "tools/run/remarks_to_log.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/access.h"
#include "pagefuse/serve/server.h"

namespace pagefuse::tools {
namespace {

using serve::ServedModel;
using serve::ServeOptions;

struct ServeFlags {
  GenerateFlags generate;
  ServeOptions options;
  ServedFlags served;
  std::string key_file, log = "auto", trace;
  bool insecure = false, no_page = false;
  int64_t drain_seconds = 30, waiting = 256, connections = 1024;
  uint64_t body_bytes = 0;
};

void AddNetworkFlags(Command command, ServeFlags& flags) {
  ServeOptions& options = flags.options;
  command.Group("Network");
  command.AddNumber("--port", options.port, {0, 65535}, "0 for one that is free, which is printed")
      .ShowsDefault();
  command
      .AddText("--host", options.host,
               "the address to listen at; one that others reach needs --api-key-file or --insecure")
      .ShowsDefault();
  command.AddText("--api-key-file", flags.key_file,
                  "a file with a key a line, of which callers need one");
  command.AddFlag("--insecure", flags.insecure, "listen at such an address without keys");
  command.AddTexts("--allowed-host", options.allowed_hosts,
                   "a name by which the server may be called besides loopback and --host");
  command.AddText("--cors-origin", options.cors_origin,
                  "pages from there may call, as https://a.org");
  command.AddFlag("--no-page", flags.no_page, "nothing at /");
}

void AddServerFlags(Command command, ServeFlags& flags) {
  command.Group("Requests");
  AddServedFlags(command, flags.generate, flags.served);
  command.AddFlag("--strict", flags.options.strict,
                  "parameters that are not known are errors, not told of in Pagefuse-Ignored");
  command
      .AddNumber("--max-waiting", flags.waiting, {1, kMaxInt32},
                 "requests that wait for a step at most; more are 429")
      .ShowsDefault();
  command.AddNumber("--max-connections", flags.connections, {1, kMaxInt32}, "open at one time")
      .ShowsDefault();
  command.AddSize("--max-body", flags.body_bytes, "of a request, as 8MiB or in bytes [4MiB]");
  command
      .AddNumber("--drain-seconds", flags.drain_seconds, {0, kMaxInt32},
                 "what requests that run may take after SIGTERM")
      .ShowsDefault();
  command.AddText("--log", flags.log, "json, text, none or auto: text on a terminal")
      .ShowsDefault();
  command.AddText("--trace", flags.trace,
                  "a file for what the server does, as Chrome's tracing and Perfetto show it");
  command.AddFlag("--log-prompts", flags.options.log_prompts, "prompts stand in the log");
  command.AddText("--metrics-prefix", flags.options.metrics_prefix, "of the names at /metrics")
      .ShowsDefault();
  AddSamplingFlags(command, flags.generate.sampling);
}

absl::StatusOr<serve::Log::Form> LogForm(const std::string& name) {
  using Form = serve::Log::Form;
  if (name == "json") return Form::kJson;
  if (name == "text") return Form::kText;
  if (name == "none") return Form::kNone;
  if (name == "auto") return isatty(STDERR_FILENO) == 1 ? Form::kText : Form::kJson;
  return absl::InvalidArgumentError(
      StrCat("--log: expected json, text, none or auto, got \"", name, "\""));
}

absl::StatusOr<ServeOptions> OptionsOf(const ServeFlags& flags) {
  ServeOptions options = flags.options;
  options.page = !flags.no_page;
  options.limits.waiting_requests = flags.waiting;
  options.limits.connections = static_cast<size_t>(flags.connections);
  options.limits.drain = std::chrono::seconds(flags.drain_seconds);
  if (flags.body_bytes > 0) options.limits.body_bytes = flags.body_bytes;
  if (!flags.key_file.empty()) {
    PF_ASSIGN_OR_RETURN(options.keys, ReadKeys(flags.key_file));
  }
  if (!serve::IsLoopback(options.host) && options.keys.empty() && !flags.insecure) {
    return absl::InvalidArgumentError(StrCat(
        "--host ", options.host,
        ": others reach it: expected --api-key-file, or --insecure for a server without keys"));
  }
  return options;
}

nlohmann::ordered_json FactsOf(const ServedModel& model, const ServeFlags& flags, int port) {
  const std::optional<int64_t> most = model.MaxTokens();
  const EngineStats stats = model.decoder->stats();
  const Engine* engine = model.decoder->engine();
  return {{"model", model.name},
          {"url", StrCat("http://", flags.options.host, ":", port)},
          {"paged", engine != nullptr},
          {"cache", engine ? engine->cache_settings().format : ""},
          {"fused", CountOps(*model.decoder->session().model().graph, "pagefuse")},
          {"pages", engine ? engine->cache().pool().num_pages() : 0},
          {"page_bytes", stats.bytes_per_page},
          {"hit_unit", stats.hit_unit},
          {"weights", flags.generate.session.weights.format},
          {"max_model_len", most ? nlohmann::ordered_json(*most) : nlohmann::ordered_json()},
          {"chat_template", model.texts != nullptr && model.texts->has_chat_template()},
          {"fingerprint", model.fingerprint}};
}

// SIGTERM and SIGINT are waited for; threads that begin after this know nothing of them.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  void Wait() const {
    int signal = 0;
    sigwait(&set_, &signal);
  }
  bool Pending() const {
    const timespec now = {};
    return sigtimedwait(&set_, nullptr, &now) > 0;
  }

 private:
  sigset_t set_;
};

absl::Status Serve(const ServeFlags& given) {
  ServeFlags flags = given;
  GenerateFlags& generate = flags.generate;
  PF_ASSIGN_OR_RETURN(ServeOptions options, OptionsOf(flags));
  PF_ASSIGN_OR_RETURN(const serve::Log::Form form, LogForm(flags.log));
  PF_RETURN_IF_ERROR(ReadServedFlags(generate));
  std::unique_ptr<serve::Trace> trace;
  if (!flags.trace.empty()) {
    PF_ASSIGN_OR_RETURN(trace, serve::Trace::Open(flags.trace));
    options.trace = trace.get();
    generate.engine.session.profile = true;
    generate.engine.on_step = [trace = trace.get()](const EngineStep& step) {
      trace->AddNodes(*step.session, step.start);
      return absl::OkStatus();
    };
  }
  const EndSignals signals;
  serve::Log log(form);
  PF_ASSIGN_OR_RETURN(auto server, serve::Server::Listen(options, &log));
  std::optional<RemarksToLog> remarks;
  if (form == serve::Log::Form::kJson) remarks.emplace(&log);
  PF_ASSIGN_OR_RETURN(ServedModel model, LoadServed(generate, flags.served));
  remarks.reset();
  const nlohmann::ordered_json facts = FactsOf(model, flags, server->port());
  server->Serve(std::move(model));
  log.Add("start", facts);
  std::cout << "serving " << facts["model"].get<std::string>() << " at "
            << facts["url"].get<std::string>() << std::endl;
  signals.Wait();
  log.Add("drain", {{"seconds", flags.drain_seconds}});
  server->Drain([&] { return signals.Pending(); });
  log.Add("end", nlohmann::ordered_json::object());
  return absl::OkStatus();
}

}  // namespace

void AddServeCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<ServeFlags>();
  flags->generate.session.weights.format = ServedWeights();
  Command command = AddSubcommand(
      app, outcome, {"serve", "serves OpenAI's and Anthropic's APIs over the fused graph"}, flags,
      &Serve);
  AddModelArgument(command, flags->generate.model);
  AddNetworkFlags(command, *flags);
  AddServerFlags(command, *flags);
  command.Group("Cache");
  AddEngineFlags(command, flags->generate);
  AddSessionFlags(command, flags->generate.session);
  AddLoadFlags(command, flags->generate.session);
}

}  // namespace pagefuse::tools
