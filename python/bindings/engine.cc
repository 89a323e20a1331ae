// SPDX-License-Identifier: Apache-2.0
// Engine: prompts in, tokens out.
#include "pagefuse/runtime/engine.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/parts.h"
#include "bindings/status.h"
#include "pybind11/functional.h"
#include "pybind11/stl.h"

#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/runtime/decoder.h"
#include "pagefuse/runtime/model_folder.h"

namespace pagefuse::python {
namespace {

namespace py = pybind11;

// Hears of prefill and decode as they go on: whether it is decode, and how many tokens the step had.
using OnStep = std::function<void(bool, int64_t)>;
// Hears what loading has come to: "reading", then "rewriting".
using OnStage = std::function<void(const char*)>;

struct PythonEngine {
  std::unique_ptr<Decoder> decoder;
  ModelConfig config;
  OnStep on_step;             // of the call that runs
  std::exception_ptr raised;  // by a function of Python's in the call that runs, which then ends

  // Figures as of the last step: may be asked for while another thread runs.
  EngineStats stats() const {
    const std::lock_guard turn(stats_turn_);
    return stats_;
  }
  // By the thread that runs.
  void KeepStats() {
    if (decoder == nullptr) return;  // while it is loaded
    const EngineStats now = decoder->stats();
    const std::lock_guard turn(stats_turn_);
    stats_ = now;
  }

 private:
  mutable std::mutex stats_turn_;
  EngineStats stats_;
};

// What generate() takes beside prompts.
struct Generation {
  std::vector<int64_t> max_new_tokens;  // one for all, or one a prompt
  std::vector<std::string> refused;     // for each prompt why it is, or nothing; or for none
  int64_t samples = 1;
  std::optional<std::vector<int64_t>> stop_tokens;  // those of the model's files where left out
  SamplingOptions sampling;
  bool logits = false;
  std::function<std::optional<bool>(int64_t, int64_t)> on_token;
  OnStep on_step;
};

// Calls into Python from a thread that does not hold the interpreter's lock. False once something was
// raised, also by a signal such as that of Ctrl-C.
template <class Call>
bool CallPython(std::exception_ptr& raised, const Call& call) {
  const py::gil_scoped_acquire gil;
  if (raised) return false;
  try {
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    return call();
  } catch (...) {
    raised = std::current_exception();
    return false;
  }
}

void Rethrow(std::exception_ptr& raised) {
  if (raised) std::rethrow_exception(std::exchange(raised, nullptr));
}

std::unique_ptr<PythonEngine> Load(const std::string& path, const std::string& graph,
                                   EngineOptions options, const DecoderOptions& how,
                                   const OnStage& on_stage) {
  const ModelFolder folder = Unwrap(OpenModelFolder(path, graph));
  auto engine = std::make_unique<PythonEngine>();
  engine->config = folder.config;
  options.on_step = [self = engine.get()](const EngineStep& step) {
    self->KeepStats();
    const bool goes_on = !self->on_step || CallPython(self->raised, [&] {
      return self->on_step(step.decode, step.tokens + step.shared_tokens), true;
    });
    // What was raised, also by Ctrl-C in a long prompt, is told instead.
    return goes_on ? absl::OkStatus() : absl::CancelledError("generate: ended by what was raised");
  };
  const auto tell = [&](const char* stage) {
    if (on_stage) CallPython(engine->raised, [&] { return on_stage(stage), true; });
  };
  const auto load = [&] {
    const py::gil_scoped_release nothing_of_python;
    return Decoder::Create(
        [&] {
          tell("reading");
          auto model = LoadModel(folder.graph);
          tell("rewriting");
          return model;
        },
        options, how);
  };
  auto decoder = load();
  Rethrow(engine->raised);
  engine->decoder = Unwrap(std::move(decoder));
  engine->KeepStats();
  return engine;
}

Request RequestOf(const py::handle& prompt, const PythonEngine& engine, const Generation& how) {
  if (py::isinstance<py::str>(prompt)) {
    throw py::type_error("prompt: expected token ids, got the text " +
                         ShortMessage(std::string(py::repr(prompt))) +
                         ": pagefuse.load(FOLDER) gives a model that takes texts");
  }
  const Tensor ids = TensorFrom(prompt);
  if (ids.rank() != 1) {
    throw py::value_error("prompt: expected a list of token ids, got " +
                          std::to_string(ids.rank()) + " dims");
  }
  Request request;
  if (ids.size() > 0) request.prompt = Unwrap(IntegerValues(ids));
  request.samples = how.samples;
  request.stop_tokens = how.stop_tokens.value_or(engine.config.end_tokens);
  request.keep_logits = how.logits;
  request.sampling = how.sampling;
  return request;
}

std::vector<Request> RequestsOf(const std::vector<py::object>& prompts, const PythonEngine& engine,
                                const Generation& how) {
  std::vector<Request> requests;
  for (const py::object& prompt : prompts) requests.push_back(RequestOf(prompt, engine, how));
  const std::vector<int64_t>& counts = how.max_new_tokens;
  if (counts.size() != 1 && counts.size() != requests.size()) {
    throw py::value_error("max_new_tokens: expected one number, or " +
                          std::to_string(requests.size()) + ", got " +
                          std::to_string(counts.size()));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].max_new_tokens = counts[counts.size() == 1 ? 0 : i];
    if (i >= how.refused.size() || how.refused[i].empty()) continue;
    requests[i].refused = absl::InvalidArgumentError(how.refused[i]);
  }
  return requests;
}

// One prompt, or a list of them.
bool IsOnePrompt(const py::object& prompts) {
  if (py::isinstance<py::list>(prompts) || py::isinstance<py::tuple>(prompts)) {
    const py::sequence items = prompts;
    if (py::len(items) == 0) return true;
    const py::object first = items[0];
    if (py::isinstance<py::str>(first)) return false;
    return PyIndex_Check(first.ptr()) != 0 && !py::hasattr(first, "__len__");
  }
  return py::isinstance<py::str>(prompts) || TensorFrom(prompts).rank() == 1;
}

const char* NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return "length";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kEnded:
      return "ended";
    case FinishReason::kFailed:
      return "failed";
    case FinishReason::kRefused:
      return "refused";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "";
}

py::dict ToPython(const Completion& completion) {
  py::dict result;
  const auto count = static_cast<int64_t>(completion.tokens.size());
  result["tokens"] = ArrayOf(Tensor::Of<int64_t>({count}, completion.tokens));
  result["finish"] = NameOf(completion.finish);
  result["seed"] = completion.seed;
  result["cached_tokens"] = completion.cached_tokens;
  result["as_exported"] = completion.as_exported;
  if (!completion.error.ok()) result["error"] = ShortMessage(StdView(completion.error.message()));
  if (!completion.logits.empty()) {
    std::vector<float> rows;
    for (const auto& row : completion.logits) rows.insert(rows.end(), row.begin(), row.end());
    const auto width = static_cast<int64_t>(completion.logits[0].size());
    result["logits"] =
        ArrayOf(Tensor::Of<float>({static_cast<int64_t>(completion.logits.size()), width}, rows));
  }
  return result;
}

std::vector<Completion> Run(PythonEngine& engine, const std::vector<Request>& requests,
                            const Generation& how) {
  const OnToken on_token = [&](const NewToken& token) {
    return CallPython(engine.raised, [&] {
      const auto place = static_cast<int64_t>(token.completion);
      return !how.on_token || how.on_token(place, token.token).value_or(true);
    });
  };
  const auto run = [&] {
    const py::gil_scoped_release nothing_of_python;
    return engine.decoder->Generate(requests, on_token);
  };
  engine.on_step = how.on_step;
  auto completions = run();
  engine.on_step = nullptr;
  engine.KeepStats();
  Rethrow(engine.raised);
  return Unwrap(std::move(completions));
}

// Reads answers into the cache until none is left, or `goes_on` says no between two steps.
void Reread(PythonEngine& engine, const std::function<bool()>& goes_on) {
  const auto run = [&] {
    const py::gil_scoped_release nothing_of_python;
    engine.decoder->Reread([&] { return CallPython(engine.raised, goes_on); });
  };
  run();
  engine.KeepStats();
  Rethrow(engine.raised);
}

bool IsRefused(const Completion& completion) { return completion.finish == FinishReason::kRefused; }

py::object Generate(PythonEngine& engine, const py::object& prompts, const Generation& how) {
  const bool one = IsOnePrompt(prompts);
  std::vector<py::object> each;
  if (one) {
    each.push_back(prompts);
  } else {
    for (const py::handle prompt : prompts)
      each.push_back(py::reinterpret_borrow<py::object>(prompt));
  }
  const std::vector<Completion> completions = Run(engine, RequestsOf(each, engine, how), how);
  // Of several the others are worth having; where there are none of these, an exception says why.
  if (!completions.empty() && std::ranges::all_of(completions, IsRefused)) {
    Check(one ? completions[0].error : FirstError(completions));
  }
  py::list results;
  for (const Completion& completion : completions) results.append(ToPython(completion));
  if (one && how.samples == 1) return results[0];
  return results;
}

template <class Value>
void TakeNumber(const py::dict& named, const char* name, Value& value,
                const char* expected = "a number") {
  if (!named.contains(name)) return;
  const py::object given = named[name];
  try {
    value = given.cast<Value>();
  } catch (const py::cast_error&) {
    throw py::type_error(std::string(name) + ": expected " + expected + ", got " +
                         ShortMessage(std::string(py::repr(given))));
  }
}

// By the names of SamplingOptions; what is left out stays as it is.
void TakeSampling(const py::dict& named, SamplingOptions& sampling) {
  TakeNumber(named, "temperature", sampling.temperature);
  TakeNumber(named, "top_k", sampling.top_k, "a whole number");
  TakeNumber(named, "top_p", sampling.top_p);
  TakeNumber(named, "min_p", sampling.min_p);
  TakeNumber(named, "repetition_penalty", sampling.repetition_penalty);
  TakeNumber(named, "frequency_penalty", sampling.frequency_penalty);
  TakeNumber(named, "presence_penalty", sampling.presence_penalty);
  TakeNumber(named, "seed", sampling.seed, "a whole number, 0 or more");
}

py::dict SamplingOf(const PythonEngine& engine) {
  const SamplingOptions& sampling = engine.config.sampling;
  py::dict named;
  named["temperature"] = sampling.temperature;
  named["top_k"] = sampling.top_k;
  named["top_p"] = sampling.top_p;
  named["min_p"] = sampling.min_p;
  named["repetition_penalty"] = sampling.repetition_penalty;
  named["frequency_penalty"] = sampling.frequency_penalty;
  named["presence_penalty"] = sampling.presence_penalty;
  return named;
}

// As many as the model and the cache have room for where no number is wanted.
int64_t NewTokensOf(const PythonEngine& engine, int64_t prompt, std::optional<int64_t> wanted,
                    int64_t usual) {
  const int64_t count =
      Unwrap(NewTokens(engine.config, static_cast<size_t>(prompt), wanted, usual));
  const int64_t room = engine.decoder->capacity().value_or(prompt + count) + 1 - prompt;
  return wanted || room <= 0 ? count : std::min(count, room);
}

py::dict StatsOf(const PythonEngine& engine) {
  const EngineStats stats = engine.stats();
  py::dict result;
  result["steps"] = stats.steps;
  result["prefill_tokens"] = stats.prefill_tokens;
  result["shared_tokens"] = stats.shared_tokens;
  result["decode_tokens"] = stats.decode_tokens;
  result["draft_tokens"] = stats.draft_tokens;
  result["drafts_right"] = stats.drafts_right;
  result["prefill_seconds"] = stats.prefill_seconds;
  result["decode_seconds"] = stats.decode_seconds;
  result["cache_bytes_per_token"] = stats.cache_bytes_per_token;
  result["cache_bytes_per_sequence"] = stats.cache_bytes_per_sequence;
  result["peak_pages"] = stats.peak_pages;
  return result;
}

// What an argument of this name says, or an exception that names it.
template <class Value>
Value Named(const char* name, absl::StatusOr<Value> value) {
  Check(AtPlace(name, value.status()));
  return *std::move(value);
}

void BindGenerate(py::class_<PythonEngine>& engine) {
  engine.def(
      "generate",
      [](PythonEngine& self, const py::object& prompts, std::vector<int64_t> max_new_tokens,
         const py::dict& sampling, std::optional<std::vector<int64_t>> stop_tokens, int64_t samples,
         bool logits, std::function<std::optional<bool>(int64_t, int64_t)> on_token, OnStep on_step,
         std::vector<std::string> refused) {
        Generation how{.max_new_tokens = std::move(max_new_tokens),
                       .refused = std::move(refused),
                       .samples = samples,
                       .stop_tokens = std::move(stop_tokens),
                       .sampling = {},
                       .logits = logits,
                       .on_token = std::move(on_token),
                       .on_step = std::move(on_step)};
        TakeSampling(sampling, how.sampling);
        return Generate(self, prompts, how);
      },
      py::arg("prompts"), py::kw_only(), py::arg("max_new_tokens"), py::arg("sampling"),
      py::arg("stop_tokens") = py::none(), py::arg("samples") = 1, py::arg("logits") = false,
      py::arg("on_token") = py::none(), py::arg("on_step") = py::none(),
      py::arg("refused") = std::vector<std::string>());
  engine.def("reread", &Reread, py::arg("goes_on"));
  engine.def("new_tokens", &NewTokensOf, py::arg("prompt"), py::arg("wanted"), py::arg("usual"));
}

}  // namespace

void BindEngine(py::module_& module) {
  const EngineOptions usual;
  py::class_<PythonEngine> engine(module, "Engine");
  engine
      .def(py::init([](const std::string& path, const std::string& graph,
                       const std::optional<std::string>& kv_cache,
                       std::optional<int64_t> block_size, const std::string& weights, int threads,
                       int64_t max_memory, const std::map<std::string, std::string>& options,
                       int64_t max_tokens_per_step, std::optional<int64_t> max_sequences,
                       int64_t cache_tokens, int64_t cache_bytes, const std::string& prefix_reuse,
                       bool no_reread, const std::string& drafts, int64_t step_ms,
                       bool require_paged, const std::string& check_paging,
                       const OnStage& on_stage) {
             EngineOptions made{
                 .session = MakeSessionOptions({weights, threads, max_memory, options}),
                 .kv_cache = kv_cache,
                 .block_size = block_size,
                 .max_tokens_per_step = max_tokens_per_step,
                 .max_sequences = max_sequences,
                 .cache_tokens = cache_tokens,
                 .cache_bytes = cache_bytes,
                 .prefix_reuse = Named("prefix_reuse", ParsePrefixReuse(prefix_reuse)),
                 .rereads = !no_reread,
                 .drafts = Named("drafts", ParseDrafts(drafts)),
                 .step_seconds = Named("step_ms", StepSecondsOf(step_ms))};
             const DecoderOptions how{.require_paged = require_paged,
                                      .check_paging = Unwrap(ParseCheckPaging(check_paging))};
             return Load(path, graph, std::move(made), how, on_stage);
           }),
           py::arg("path"), py::kw_only(), py::arg("graph") = "", py::arg("kv_cache") = py::none(),
           py::arg("block_size") = py::none(), py::arg("weights") = "float32",
           py::arg("threads") = 0, py::arg("max_memory") = 0,
           py::arg("options") = std::map<std::string, std::string>(),
           py::arg("max_tokens_per_step") = usual.max_tokens_per_step,
           py::arg("max_sequences") = py::none(), py::arg("cache_tokens") = 0,
           py::arg("cache_bytes") = 0, py::arg("prefix_reuse") = "exact",
           py::arg("no_reread") = false, py::arg("drafts") = "auto", py::arg("step_ms") = 200,
           py::arg("require_paged") = false, py::arg("check_paging") = "once",
           py::arg("on_stage") = py::none())
      .def_property_readonly("paged",
                             [](const PythonEngine& e) { return e.decoder->engine() != nullptr; })
      .def_property_readonly("why_not_paged",
                             [](const PythonEngine& e) { return e.decoder->why_not_paged(); })
      .def_property_readonly("verdict",
                             [](const PythonEngine& e) {
                               const auto& verdict = e.decoder->verdict();
                               return verdict ? verdict->Text() : std::string();
                             })
      .def_property_readonly("vocabulary",
                             [](const PythonEngine& e) { return e.decoder->vocabulary(); })
      .def_property_readonly("end_tokens",
                             [](const PythonEngine& e) { return e.config.end_tokens; })
      .def_property_readonly("contradictions",
                             [](const PythonEngine& e) { return e.config.contradictions; })
      .def_property_readonly("sampling", &SamplingOf)
      .def_property_readonly("stats", &StatsOf);
  BindGenerate(engine);
}

}  // namespace pagefuse::python
