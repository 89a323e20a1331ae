// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/session.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/parts.h"
#include "bindings/status.h"
#include "pybind11/stl.h"

namespace pagefuse::python {
namespace {

namespace py = pybind11;

std::unique_ptr<Session> Load(const std::string& path, bool optimise,
                              const LoadArguments& arguments) {
  SessionOptions options = MakeSessionOptions(arguments);
  options.optimise = optimise;
  const py::gil_scoped_release nothing_of_python;
  auto session = Session::Load(path, options);
  const py::gil_scoped_acquire gil;
  return Unwrap(std::move(session));
}

// A number, a name, or None where it is not known.
py::object DimOf(const Dim& dim) {
  if (dim.constant()) return py::int_(*dim.constant());
  if (dim.known()) return py::str(dim.ToString());
  return py::none();
}

py::object DimsOf(const Value& value) {
  if (!value.shape()) return py::none();
  py::list dims;
  for (const Dim& dim : value.shape()->dims()) dims.append(DimOf(dim));
  return py::tuple(dims);
}

// Name, type and dims.
py::list Ports(const std::vector<Value*>& values) {
  py::list ports;
  for (const Value* value : values) {
    ports.append(
        py::make_tuple(value->name(), std::string(DataTypeName(value->dtype())), DimsOf(*value)));
  }
  return ports;
}

py::dict Run(Session& session, const std::map<std::string, py::object>& feeds,
             const std::vector<std::string>& fetches) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, array] : feeds) tensors[name] = TensorFrom(array);
  auto run = [&] {
    const py::gil_scoped_release nothing_of_python;
    return session.Run(tensors, fetches);
  };
  const std::vector<Tensor> outputs = Unwrap(run());
  py::dict result;
  const auto& values = session.model().graph->outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = fetches.empty() ? values[i]->name() : fetches[i];
    result[py::str(name)] = ArrayOf(outputs[i]);
  }
  return result;
}

}  // namespace

SessionOptions MakeSessionOptions(const LoadArguments& arguments) {
  SessionOptions options;
  UseWeights(Unwrap(FindWeightFormat(arguments.weights)), options);
  if (arguments.threads < 0 || arguments.threads > kMaxThreads) {
    throw py::value_error("threads: expected 0 to " + std::to_string(kMaxThreads) + ", got " +
                          std::to_string(arguments.threads));
  }
  options.num_threads = arguments.threads;
  options.max_memory_bytes = arguments.max_memory;
  options.pipeline.rules = RegisteredRules();
  for (const auto& [name, value] : arguments.options) options.pipeline.options[name] = value;
  return options;
}

void BindSession(py::module_& module) {
  py::class_<Session>(module, "Session")
      .def(py::init([](const std::string& path, bool optimise, const std::string& weights,
                       int threads, int64_t max_memory,
                       const std::map<std::string, std::string>& options) {
             return Load(path, optimise, {weights, threads, max_memory, options});
           }),
           py::arg("path"), py::kw_only(), py::arg("optimise") = true,
           py::arg("weights") = "float32", py::arg("threads") = 0, py::arg("max_memory") = 0,
           py::arg("options") = std::map<std::string, std::string>())
      .def("run", &Run, py::arg("feeds"), py::arg("fetches") = std::vector<std::string>())
      .def_property_readonly("inputs",
                             [](const Session& s) { return Ports(s.model().graph->inputs()); })
      .def_property_readonly("outputs",
                             [](const Session& s) { return Ports(s.model().graph->outputs()); })
      .def("kernels", &Session::KernelReport);
}

}  // namespace pagefuse::python
