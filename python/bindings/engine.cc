// Engine: prompts in, tokens out.
#include "pagefuse/runtime/engine.h"

#include <exception>
#include <functional>
#include <memory>
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
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/runtime/decoder.h"
#include "pagefuse/runtime/model_folder.h"

namespace pagefuse::python {
namespace {

namespace py = pybind11;

struct PythonEngine {
  std::unique_ptr<Decoder> decoder;
  ModelConfig config;
};

// What generate() takes beside prompts.
struct Generation {
  int64_t max_new_tokens, samples;
  std::optional<std::vector<int64_t>> stop_tokens;  // those of the model's files where left out
  SamplingOptions sampling;
  bool logits;
  std::function<std::optional<bool>(int64_t, int64_t)> on_token;
};

std::unique_ptr<PythonEngine> Load(const std::string& path, const std::string& graph,
                                   EngineOptions options, bool require_paged,
                                   const std::string& check_paging) {
  const DecoderOptions how{.require_paged = require_paged,
                           .check_paging = Unwrap(ParseCheckPaging(check_paging))};
  const ModelFolder folder = Unwrap(OpenModelFolder(path, graph));
  auto engine = std::make_unique<PythonEngine>();
  engine->config = folder.config;
  const auto load = [&] {
    const py::gil_scoped_release nothing_of_python;
    return Decoder::Create([&] { return LoadModel(folder.graph); }, options, how);
  };
  engine->decoder = Unwrap(load());
  return engine;
}

Request RequestOf(const Tensor& prompt, const PythonEngine& engine, const Generation& how) {
  if (prompt.rank() != 1) {
    throw py::value_error("prompt: expected a list of token ids, got " +
                          std::to_string(prompt.rank()) + " dims");
  }
  Request request;
  if (prompt.size() > 0) request.prompt = Unwrap(IntegerValues(prompt));
  request.max_new_tokens = how.max_new_tokens;
  request.samples = how.samples;
  request.stop_tokens = how.stop_tokens.value_or(engine.config.end_tokens);
  request.keep_logits = how.logits;
  request.sampling = how.sampling;
  return request;
}

// One prompt, or a list of them.
bool IsOnePrompt(const py::object& prompts) {
  if (py::isinstance<py::list>(prompts) || py::isinstance<py::tuple>(prompts)) {
    const py::sequence items = prompts;
    if (py::len(items) == 0) return true;
    const py::object first = items[0];
    return PyIndex_Check(first.ptr()) != 0 && !py::hasattr(first, "__len__");
  }
  return TensorFrom(prompts).rank() == 1;
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
  }
  return "";
}

py::dict ToPython(const Completion& completion) {
  py::dict result;
  const auto count = static_cast<int64_t>(completion.tokens.size());
  result["tokens"] = ArrayOf(Tensor::Of<int64_t>({count}, completion.tokens));
  result["finish"] = NameOf(completion.finish);
  result["seed"] = completion.seed;
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

// What ends a generation from Python's side: an exception of on_token, or Ctrl-C.
class Listener {
 public:
  explicit Listener(const Generation& how) : how_(how) {}

  bool Hear(const NewToken& token) {
    const py::gil_scoped_acquire gil;
    if (raised_) return false;
    try {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!how_.on_token) return true;
      return how_.on_token(static_cast<int64_t>(token.completion), token.token).value_or(true);
    } catch (...) {
      raised_ = std::current_exception();
      return false;
    }
  }
  void Rethrow() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  const Generation& how_;
  std::exception_ptr raised_;
};

py::object Generate(PythonEngine& engine, const py::object& prompts, const Generation& how) {
  const bool one = IsOnePrompt(prompts);
  std::vector<Request> requests;
  if (one) {
    requests.push_back(RequestOf(TensorFrom(prompts), engine, how));
  } else {
    for (const py::handle prompt : prompts) {
      requests.push_back(RequestOf(TensorFrom(prompt), engine, how));
    }
  }
  Listener listener(how);
  const auto run = [&] {
    const py::gil_scoped_release nothing_of_python;
    return engine.decoder->Generate(requests,
                                    [&](const NewToken& token) { return listener.Hear(token); });
  };
  auto completions = run();
  listener.Rethrow();
  py::list results;
  for (const Completion& completion : Unwrap(std::move(completions))) {
    results.append(ToPython(completion));
  }
  if (one && how.samples == 1) return results[0];
  return results;
}

py::dict StatsOf(const PythonEngine& engine) {
  const EngineStats stats = engine.decoder->stats();
  py::dict result;
  result["steps"] = stats.steps;
  result["prefill_tokens"] = stats.prefill_tokens;
  result["decode_tokens"] = stats.decode_tokens;
  result["prefill_seconds"] = stats.prefill_seconds;
  result["decode_seconds"] = stats.decode_seconds;
  result["cache_bytes_per_token"] = stats.cache_bytes_per_token;
  result["cache_bytes_per_sequence"] = stats.cache_bytes_per_sequence;
  result["peak_blocks"] = stats.peak_blocks;
  return result;
}

void BindGenerate(py::class_<PythonEngine>& engine) {
  const SamplingOptions usual;
  engine.def(
      "generate",
      [](PythonEngine& self, const py::object& prompts, int64_t max_new_tokens, double temperature,
         int64_t top_k, double top_p, double min_p, std::optional<uint64_t> seed,
         std::optional<std::vector<int64_t>> stop_tokens, int64_t samples, bool logits,
         std::function<std::optional<bool>(int64_t, int64_t)> on_token) {
        Generation how{.max_new_tokens = max_new_tokens,
                       .samples = samples,
                       .stop_tokens = std::move(stop_tokens),
                       .sampling = {},
                       .logits = logits,
                       .on_token = std::move(on_token)};
        how.sampling.temperature = temperature;
        how.sampling.top_k = top_k;
        how.sampling.top_p = top_p;
        how.sampling.min_p = min_p;
        how.sampling.seed = seed;
        return Generate(self, prompts, how);
      },
      py::arg("prompts"), py::kw_only(), py::arg("max_new_tokens") = Request().max_new_tokens,
      py::arg("temperature") = usual.temperature, py::arg("top_k") = usual.top_k,
      py::arg("top_p") = usual.top_p, py::arg("min_p") = usual.min_p, py::arg("seed") = py::none(),
      py::arg("stop_tokens") = py::none(), py::arg("samples") = 1, py::arg("logits") = false,
      py::arg("on_token") = py::none());
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
                       int64_t max_tokens_per_step, int64_t max_sequences, int64_t cache_tokens,
                       bool require_paged, const std::string& check_paging) {
             EngineOptions made{
                 .session = MakeSessionOptions({weights, threads, max_memory, options}),
                 .kv_cache = kv_cache,
                 .block_size = block_size,
                 .max_tokens_per_step = max_tokens_per_step,
                 .max_sequences = max_sequences,
                 .cache_tokens = cache_tokens};
             return Load(path, graph, std::move(made), require_paged, check_paging);
           }),
           py::arg("path"), py::kw_only(), py::arg("graph") = "", py::arg("kv_cache") = py::none(),
           py::arg("block_size") = py::none(), py::arg("weights") = "float32",
           py::arg("threads") = 0, py::arg("max_memory") = 0,
           py::arg("options") = std::map<std::string, std::string>(),
           py::arg("max_tokens_per_step") = usual.max_tokens_per_step,
           py::arg("max_sequences") = usual.max_sequences, py::arg("cache_tokens") = 0,
           py::arg("require_paged") = false, py::arg("check_paging") = "once")
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
      .def_property_readonly("stats", &StatsOf);
  BindGenerate(engine);
}

}  // namespace pagefuse::python
