// SPDX-License-Identifier: Apache-2.0
#include "bindings/status.h"

#include "pagefuse/base/short_message.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::python {
namespace {

PyObject* ExceptionOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
      return PyExc_ValueError;
    case absl::StatusCode::kNotFound:
      return PyExc_FileNotFoundError;
    case absl::StatusCode::kUnimplemented:
      return PyExc_NotImplementedError;
    case absl::StatusCode::kResourceExhausted:
      return PyExc_MemoryError;
    default:
      return PyExc_RuntimeError;
  }
}

}  // namespace

void Check(const absl::Status& status) {
  if (status.ok()) return;
  PyErr_SetString(ExceptionOf(status.code()), ShortMessage(StdView(status.message())).c_str());
  throw pybind11::error_already_set();
}

}  // namespace pagefuse::python
