// SPDX-License-Identifier: Apache-2.0
// _pagefuse: what pagefuse/__init__.py gives names to.
#include "bindings/arrays.h"
#include "bindings/parts.h"

PYBIND11_MODULE(_pagefuse, module) {
  namespace python = pagefuse::python;
  module.attr("__version__") = PAGEFUSE_VERSION;
  python::BindTensor(module);
  python::BindOptimize(module);
  python::BindSession(module);
  python::BindEngine(module);
  python::BindTokenizer(module);
}
