// SPDX-License-Identifier: Apache-2.0
#include "bindings/arrays.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/dlpack.h"
#include "bindings/status.h"
#include "pybind11/numpy.h"
#include "pybind11/stl.h"

namespace pagefuse::python {
namespace {

namespace py = pybind11;

// One type in numpy, in DLPack and here.
struct TypeName {
  DataType type;
  const char* numpy;       // dtype.name; of the last ones as the package ml_dtypes has them
  const char* bits;        // a type of numpy's own with elements of that size
  dlpack::Type of_dlpack;  // no bits: none
};
constexpr TypeName kTypes[] = {
    {DataType::kFloat, "float32", nullptr, {dlpack::kFloat, 32, 1}},
    {DataType::kDouble, "float64", nullptr, {dlpack::kFloat, 64, 1}},
    {DataType::kFloat16, "float16", nullptr, {dlpack::kFloat, 16, 1}},
    {DataType::kInt8, "int8", nullptr, {dlpack::kInt, 8, 1}},
    {DataType::kInt16, "int16", nullptr, {dlpack::kInt, 16, 1}},
    {DataType::kInt32, "int32", nullptr, {dlpack::kInt, 32, 1}},
    {DataType::kInt64, "int64", nullptr, {dlpack::kInt, 64, 1}},
    {DataType::kUint8, "uint8", nullptr, {dlpack::kUint, 8, 1}},
    {DataType::kUint16, "uint16", nullptr, {dlpack::kUint, 16, 1}},
    {DataType::kUint32, "uint32", nullptr, {dlpack::kUint, 32, 1}},
    {DataType::kUint64, "uint64", nullptr, {dlpack::kUint, 64, 1}},
    {DataType::kBool, "bool", nullptr, {dlpack::kBool, 8, 1}},
    {DataType::kComplex64, "complex64", nullptr, {dlpack::kComplex, 64, 1}},
    {DataType::kComplex128, "complex128", nullptr, {dlpack::kComplex, 128, 1}},
    {DataType::kBfloat16, "bfloat16", "uint16", {dlpack::kBfloat, 16, 1}},
    {DataType::kFloat8E4M3FN, "float8_e4m3fn", "uint8", {}},
    {DataType::kFloat8E4M3FNUZ, "float8_e4m3fnuz", "uint8", {}},
    {DataType::kFloat8E5M2, "float8_e5m2", "uint8", {}},
    {DataType::kFloat8E5M2FNUZ, "float8_e5m2fnuz", "uint8", {}},
    {DataType::kFloat8E8M0, "float8_e8m0fnu", "uint8", {}},
};

const TypeName* Find(DataType type) {
  for (const TypeName& entry : kTypes) {
    if (entry.type == type) return &entry;
  }
  return nullptr;
}

const TypeName* FindNumpy(const std::string& name) {
  for (const TypeName& entry : kTypes) {
    if (entry.numpy == name) return &entry;
  }
  return nullptr;
}

const TypeName* FindDlpack(const dlpack::Type& type) {
  for (const TypeName& entry : kTypes) {
    const dlpack::Type& own = entry.of_dlpack;
    if (own.bits != 0 && own.code == type.code && own.bits == type.bits && type.lanes == 1) {
      return &entry;
    }
  }
  return nullptr;
}

// Memory of a Python object, which lives as long.
class ObjectBuffer : public Buffer {
 public:
  ObjectBuffer(void* data, size_t bytes, bool writable, py::object owner)
      : Buffer(static_cast<std::byte*>(data), bytes, writable), owner_(std::move(owner)) {}
  // Tensors end on any thread.
  ~ObjectBuffer() override {
    const py::gil_scoped_acquire gil;
    owner_ = py::object();
  }

 private:
  py::object owner_;
};

// Memory that was handed over through DLPack.
class ManagedBuffer : public Buffer {
 public:
  ManagedBuffer(dlpack::Managed* managed, size_t bytes)
      : Buffer(static_cast<std::byte*>(managed->view.data) + managed->view.byte_offset, bytes,
               /*writable=*/true),
        managed_(managed) {}
  ~ManagedBuffer() override {
    const py::gil_scoped_acquire gil;
    if (managed_->release != nullptr) managed_->release(managed_);
  }

 private:
  dlpack::Managed* managed_;
};

Tensor FromNumpy(py::array array) {
  const py::dtype dtype = array.dtype();
  const std::string name = py::str(dtype.attr("name"));
  const TypeName* type = FindNumpy(name);
  if (type == nullptr) throw py::type_error("no tensor has the type of numpy's " + name);
  if (!dtype.attr("isnative").cast<bool>()) {
    array = array.attr("astype")(dtype.attr("newbyteorder")("="));
  }
  if ((array.flags() & py::array::c_style) == 0) array = array.attr("copy")(py::arg("order") = "C");
  std::vector<int64_t> dims(array.shape(), array.shape() + array.ndim());
  auto buffer = std::make_shared<ObjectBuffer>(const_cast<void*>(array.data()), array.nbytes(),
                                               array.writeable(), array);
  return Unwrap(Tensor::View(type->type, std::move(dims), std::move(buffer)));
}

// True if elements lie row after row.
bool IsDense(const dlpack::View& view) {
  int64_t step = 1;
  for (int32_t i = view.rank - 1; i >= 0; --i) {
    if (view.dims[i] != 1 && view.strides != nullptr && view.strides[i] != step) return false;
    step *= view.dims[i];
  }
  return true;
}

// Nothing if its elements are not dense: numpy copies them.
std::optional<Tensor> FromDlpack(const py::object& array) {
  const auto device = array.attr("__dlpack_device__")().cast<std::pair<int, int>>();
  if (device.first != dlpack::kCpu) {
    throw py::value_error("expected an array on the CPU (DLPack device 1), got device " +
                          std::to_string(device.first));
  }
  const py::capsule capsule = array.attr("__dlpack__")();
  auto* managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (managed == nullptr) throw py::error_already_set();
  const TypeName* type = FindDlpack(managed->view.type);
  if (type == nullptr || !IsDense(managed->view)) return std::nullopt;
  std::vector<int64_t> dims(managed->view.dims, managed->view.dims + managed->view.rank);
  const int64_t bytes = Unwrap(ByteSize(type->type, dims));
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  auto buffer = std::make_shared<ManagedBuffer>(managed, static_cast<size_t>(bytes));
  return Unwrap(Tensor::View(type->type, std::move(dims), std::move(buffer)));
}

// What a capsule of ours owns.
struct Shared {
  Tensor tensor;
  std::vector<int64_t> dims;
  dlpack::Managed managed;
};

void ReleaseCapsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor") == 0) return;  // somebody took it
  auto* managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule, "dltensor"));
  managed->release(managed);
}

py::capsule ToDlpack(const Tensor& tensor, const py::object& /*stream*/) {
  const TypeName* type = Find(tensor.dtype());
  if (type == nullptr || type->of_dlpack.bits == 0) {
    throw py::type_error("DLPack has no type for " + std::string(DataTypeName(tensor.dtype())));
  }
  auto* shared = new Shared{tensor, tensor.dims(), {}};
  shared->managed = {
      .view = {.data = const_cast<void*>(tensor.data()),
               .device = {dlpack::kCpu, 0},
               .rank = tensor.rank(),
               .type = type->of_dlpack,
               .dims = shared->dims.data(),
               .strides = nullptr,
               .byte_offset = 0},
      .context = shared,
      .release = [](dlpack::Managed* self) { delete static_cast<Shared*>(self->context); }};
  return py::capsule(&shared->managed, "dltensor", &ReleaseCapsule);
}

// The elements under a type of numpy's.
py::array View(const Tensor& tensor, const char* type) {
  py::capsule owner(new Tensor(tensor), [](void* held) { delete static_cast<Tensor*>(held); });
  py::array array(py::dtype(type), tensor.dims(), tensor.data(), owner);
  const bool writable = tensor.buffer() != nullptr && tensor.buffer()->writable();
  if (!writable) array.attr("setflags")(py::arg("write") = false);
  return array;
}

// Elements without a type in numpy: bytes where two share one.
py::array Bits(const Tensor& tensor) {
  const TypeName* type = Find(tensor.dtype());
  if (type != nullptr) return View(tensor, type->bits != nullptr ? type->bits : type->numpy);
  if (BitWidth(tensor.dtype()) != 4) throw py::type_error("strings have no bits");
  const Tensor bytes = Unwrap(Tensor::View(DataType::kUint8, {tensor.byte_size()}, tensor.buffer(),
                                           tensor.buffer_offset()));
  return View(bytes, "uint8");
}

DataType TypeOf(const std::string& name) {
  if (const auto type = DataTypeFromName(name)) return *type;
  if (const TypeName* type = FindNumpy(name)) return type->type;
  throw py::value_error("no tensor has the type \"" + name + "\"");
}

// `array` has the bits of elements of the type, two to a byte where that is how they lie.
Tensor FromBits(const py::object& array, const std::string& type_name,
                std::optional<std::vector<int64_t>> dims) {
  const Tensor from = TensorFrom(array);
  return Unwrap(Tensor::View(TypeOf(type_name), dims ? *dims : from.dims(), from.buffer(),
                             from.buffer_offset()));
}

std::string Text(const Tensor& tensor) {
  std::string text = "pagefuse.Tensor(" + std::string(DataTypeName(tensor.dtype())) + "[";
  for (int i = 0; i < tensor.rank(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(tensor.dims()[i]);
  }
  return text + "])";
}

}  // namespace

Tensor TensorFrom(py::handle array) {
  if (py::isinstance<Tensor>(array)) return array.cast<Tensor>();
  if (py::isinstance<py::array>(array)) return FromNumpy(py::reinterpret_borrow<py::array>(array));
  if (py::hasattr(array, "__dlpack__")) {
    const auto object = py::reinterpret_borrow<py::object>(array);
    if (std::optional<Tensor> tensor = FromDlpack(object)) return *std::move(tensor);
    return FromNumpy(py::module_::import("numpy").attr("from_dlpack")(object));
  }
  return FromNumpy(py::module_::import("numpy").attr("asarray")(array));
}

py::object ArrayOf(const Tensor& tensor) {
  const TypeName* type = Find(tensor.dtype());
  if (type == nullptr || type->bits != nullptr) return py::cast(tensor);
  return View(tensor, type->numpy);
}

void BindTensor(py::module_& module) {
  py::class_<Tensor>(module, "Tensor",
                     "Elements of a type that numpy may lack, as bfloat16 or float8e4m3fn.")
      .def(py::init(&FromBits), py::arg("bits"), py::arg("dtype"), py::arg("shape") = py::none(),
           "Takes the bits of an array as elements of `dtype`, without a copy.")
      .def_property_readonly(
          "dtype", [](const Tensor& t) { return std::string(DataTypeName(t.dtype())); },
          "The name of the type, as ONNX spells it.")
      .def_property_readonly(
          "shape", [](const Tensor& t) { return py::tuple(py::cast(t.dims())); }, "Its dims.")
      .def(
          "bits", &Bits,
          "The same memory as an array of unsigned integers; bytes of two elements where they have "
          "four bits.")
      .def("__dlpack__", &ToDlpack, py::arg("stream") = py::none())
      .def("__dlpack_device__", [](const Tensor&) { return std::pair(dlpack::kCpu, 0); })
      .def("__repr__", &Text);
}

}  // namespace pagefuse::python
