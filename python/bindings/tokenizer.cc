#include "pagefuse/text/tokenizer/tokenizer.h"

#include <memory>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/parts.h"
#include "bindings/status.h"

#include "pagefuse/runtime/model_folder.h"

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

}  // namespace

void BindTokenizer(py::module_& module) {
  py::class_<PythonTokenizer>(module, "Tokenizer")
      .def(py::init(&Load), py::arg("path"))
      .def(
          "encode",
          [](const PythonTokenizer& self, const std::string& text, bool add_special) {
            Tokenizer::EncodeOptions options;
            options.adds_special = add_special;
            const std::vector<int64_t> ids = Unwrap(self.tokenizer->Encode(text, options));
            return ArrayOf(Tensor::Of<int64_t>({static_cast<int64_t>(ids.size())}, ids));
          },
          py::arg("text"), py::kw_only(), py::arg("add_special") = true)
      .def(
          "decode",
          [](const PythonTokenizer& self, const py::object& ids, bool special) {
            return self.tokenizer->Decode(Unwrap(IntegerValues(TensorFrom(ids))), special);
          },
          py::arg("ids"), py::kw_only(), py::arg("special") = false)
      .def("__len__", [](const PythonTokenizer& self) { return self.tokenizer->size(); });
}

}  // namespace pagefuse::python
