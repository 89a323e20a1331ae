// SPDX-License-Identifier: Apache-2.0
// Tokenizer, and what a model's folder says of its texts: prompts, conversations, stops.
#include "pagefuse/text/tokenizer/tokenizer.h"

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/parts.h"
#include "bindings/status.h"
#include "nlohmann/json.hpp"
#include "pybind11/stl.h"

#include "pagefuse/base/json_depth.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/model_folder.h"
#include "pagefuse/text/model/stop_match.h"
#include "pagefuse/text/model/text_model.h"

namespace pagefuse::python {
namespace {

namespace py = pybind11;

struct PythonTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
};

bool EndsWithJson(const std::string& path) { return path.ends_with(".json"); }

// tokenizer.json, or the folder that it is in.
PythonTokenizer Load(const std::string& path) {
  std::string file = path;
  if (!EndsWithJson(path)) file = Unwrap(OpenModelFolder(path)).tokenizer;
  if (file.empty()) {
    Check(absl::NotFoundError("\"" + path + "\" has no tokenizer.json"));
  }
  return {Unwrap(Tokenizer::Load(file))};
}

py::object ArrayOfIds(const std::vector<int64_t>& ids) {
  return ArrayOf(Tensor::Of<int64_t>({static_cast<int64_t>(ids.size())}, ids));
}

struct PythonTexts {
  std::shared_ptr<const TextModel> model;
};

// None where the folder has no tokenizer.
std::optional<PythonTexts> OpenTexts(const std::string& path, const std::string& graph,
                                     const std::string& chat_template) {
  const ModelFolder folder = Unwrap(OpenModelFolder(path, graph));
  if (folder.tokenizer.empty()) return std::nullopt;
  return PythonTexts{Unwrap(TextModel::Load(
      {.tokenizer = folder.tokenizer,
       .tokenizer_config = folder.tokenizer_config,
       .special_tokens_map = folder.special_tokens_map,
       .chat_template = chat_template.empty() ? folder.chat_template : chat_template,
       .chat_template_json = folder.chat_template_json}))};
}

// `given` is JSON: what a template sees beside the model's own tokens.
py::object EncodeChat(const PythonTexts& texts, const std::string& given) {
  if (IsNestedTooDeeply(given)) throw py::value_error("messages: nested too deeply");
  const auto json = nlohmann::ordered_json::parse(given, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw py::value_error("messages: expected texts of whole characters");
  return ArrayOfIds(Unwrap(texts.model->EncodeChat(json, std::time(nullptr))));
}

std::vector<int64_t> StopTokensOf(const PythonTexts& texts, const std::vector<std::string>& stops) {
  auto tokens = StopTokens(*texts.model->tokenizer(), stops);
  if (!tokens.ok())
    throw py::value_error("stop: " + std::string(StdView(tokens.status().message())));
  return *std::move(tokens);
}

// The text of one answer as it comes, up to a stop.
struct AnswerText {
  AnswerText(const PythonTexts& texts, std::vector<std::string> stops)
      : stream(texts.model->tokenizer()), stop(std::move(stops)) {}
  std::string Add(int64_t token) { return stop.Add(stream.Add(token)); }
  std::string Finish() {
    const std::string rest = stop.Add(stream.Finish());
    return rest + stop.Finish();
  }

  TextStream stream;
  StopMatch stop;
};

void BindTexts(py::module_& module) {
  py::class_<PythonTexts>(module, "Texts")
      .def_static("open", &OpenTexts, py::arg("path"), py::arg("graph") = "",
                  py::arg("chat_template") = "")
      .def_property_readonly(
          "tokenizer", [](const PythonTexts& t) { return PythonTokenizer{t.model->tokenizer()}; })
      .def_property_readonly("has_chat_template",
                             [](const PythonTexts& t) { return t.model->has_chat_template(); })
      .def(
          "encode_prompt",
          [](const PythonTexts& t, const std::string& text) {
            return ArrayOfIds(Unwrap(t.model->EncodePrompt(text)));
          },
          py::arg("text"))
      .def(
          "begins_twice",
          [](const PythonTexts& t, const py::object& ids) {
            return t.model->BeginsTwice(Unwrap(IntegerValues(TensorFrom(ids))));
          },
          py::arg("ids"))
      .def("encode_chat", &EncodeChat, py::arg("given"))
      .def("stop_tokens", &StopTokensOf, py::arg("stops"));
  py::class_<AnswerText>(module, "AnswerText")
      .def(py::init<const PythonTexts&, std::vector<std::string>>(), py::arg("texts"),
           py::arg("stops"))
      .def("add", &AnswerText::Add, py::arg("token"))
      .def("finish", &AnswerText::Finish)
      .def_property_readonly("stopped", [](const AnswerText& a) { return a.stop.stopped(); });
}

}  // namespace

void BindTokenizer(py::module_& module) {
  py::class_<PythonTokenizer>(module, "Tokenizer")
      .def(py::init(&Load), py::arg("path"))
      .def(
          "encode",
          [](const PythonTokenizer& self, const std::string& text, bool add_special) {
            Tokenizer::EncodeOptions options;
            options.adds_special = add_special;
            return ArrayOfIds(Unwrap(self.tokenizer->Encode(text, options)));
          },
          py::arg("text"), py::kw_only(), py::arg("add_special") = true)
      .def(
          "decode",
          [](const PythonTokenizer& self, const py::object& ids, bool special) {
            return self.tokenizer->Decode(Unwrap(IntegerValues(TensorFrom(ids))), special);
          },
          py::arg("ids"), py::kw_only(), py::arg("special") = false)
      .def("__len__", [](const PythonTokenizer& self) { return self.tokenizer->size(); });
  BindTexts(module);
}

}  // namespace pagefuse::python
