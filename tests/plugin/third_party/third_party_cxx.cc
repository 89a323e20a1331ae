// SPDX-License-Identifier: Apache-2.0
// A library of custom ops with ONNX Runtime's own header for C++, compiled with nothing of pagefuse: ops
// made of functions and structs, ops made of classes, and errors that are thrown.
#define ORT_API_MANUAL_INIT
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onnxruntime_cxx_api.h"
#include "onnxruntime_lite_custom_op.h"
#undef ORT_API_MANUAL_INIT

namespace {

using Ort::Custom::Tensor;

// Functions.
void Filter(const Tensor<float>& x, Tensor<float>& y) {
  std::vector<float> kept;
  for (int64_t i = 0; i < x.NumberOfElement(); ++i) {
    if (x.Data()[i] > 0) kept.push_back(x.Data()[i]);
  }
  std::copy(kept.begin(), kept.end(), y.Allocate({static_cast<int64_t>(kept.size())}));
}

// A number, a list and an input that may be left out.
void Mix(const Tensor<float>& x, const Ort::Custom::Span<int64_t>& places, float factor,
         std::optional<float> shift, Tensor<float>& y) {
  float* out = y.Allocate({static_cast<int64_t>(places.size())});
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] < 0 || places[i] >= x.NumberOfElement()) {
      ORT_CXX_API_THROW("place " + std::to_string(places[i]) + " is out of range",
                        ORT_INVALID_ARGUMENT);
    }
    out[i] = x.Data()[places[i]] * factor + shift.value_or(0);
  }
}

Ort::Status MixShapes(Ort::ShapeInferContext& context) {
  context.SetOutputShape(0, context.GetInputShape(1));
  return Ort::Status(nullptr);
}

// A struct, which reads attributes while it is made.
struct Power {
  Power(const OrtApi* /*api*/, const OrtKernelInfo* info) {
    const Ort::ConstKernelInfo node(info);
    exponent = node.GetAttribute<float>("exponent");
    name = node.GetAttribute<std::string>("label");
    offsets = node.GetAttributes<int64_t>("offsets");
  }
  void Compute(const Tensor<double>& x, Tensor<double>& y) {
    double* out = y.Allocate(x.Shape());
    for (int64_t i = 0; i < x.NumberOfElement(); ++i) {
      out[i] = std::pow(x.Data()[i], exponent) + static_cast<double>(name.size());
      for (const int64_t offset : offsets) out[i] += static_cast<double>(offset);
    }
  }
  float exponent = 1;
  std::string name;
  std::vector<int64_t> offsets;
};

// Inputs and outputs of any number and type.
void Ends(const Ort::Custom::Variadic& inputs, Ort::Custom::Variadic& outputs) {
  for (size_t i = 0; i < inputs.Size(); ++i) {
    const auto& x = inputs[i];
    float* y = outputs.AllocateOutput<float>(i, {2});
    const auto* data = static_cast<const float*>(x->DataRaw());
    y[0] = data[0];
    y[1] = data[x->NumberOfElement() - 1];
  }
}

// Classes.
struct MeanKernel {
  explicit MeanKernel(const OrtKernelInfo* info) : logger(Ort::ConstKernelInfo(info).GetLogger()) {}
  void Compute(OrtKernelContext* raw) {
    Ort::KernelContext context(raw);
    const Ort::ConstValue x = context.GetInput(0);
    const auto info = x.GetTensorTypeAndShapeInfo();
    double sum = 0;
    for (size_t i = 0; i < info.GetElementCount(); ++i) sum += x.GetTensorData<float>()[i];
    ORT_CXX_LOG(logger, ORT_LOGGING_LEVEL_INFO, "a mean");
    const std::vector<int64_t> shape;
    context.GetOutput(0, shape).GetTensorMutableData<float>()[0] =
        static_cast<float>(sum / static_cast<double>(info.GetElementCount()));
  }
  Ort::Logger logger;
};

struct Mean : Ort::CustomOpBase<Mean, MeanKernel> {
  void* CreateKernel(const OrtApi& /*api*/, const OrtKernelInfo* info) const {
    return new MeanKernel(info);
  }
  const char* GetName() const { return "Mean"; }
  size_t GetInputTypeCount() const { return 1; }
  ONNXTensorElementDataType GetInputType(size_t) const {
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  }
  size_t GetOutputTypeCount() const { return 1; }
  ONNXTensorElementDataType GetOutputType(size_t) const {
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  }
  static Ort::Status InferOutputShape(Ort::ShapeInferContext& context) {
    context.SetOutputShape(0, {});
    return Ort::Status(nullptr);
  }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(
    OrtSessionOptions* options, const OrtApiBase* base) {
  Ort::InitApi(base->GetApi(ORT_API_VERSION));
  constexpr char kCpu[] = "CPUExecutionProvider";
  try {
    using Ort::Custom::CreateLiteCustomOp;
    using Ort::Custom::OrtLiteCustomOp;
    static const std::unique_ptr<OrtLiteCustomOp> filter(
        CreateLiteCustomOp("Filter", kCpu, Filter));
    static const std::unique_ptr<OrtLiteCustomOp> mix(
        CreateLiteCustomOp("Mix", kCpu, Mix, MixShapes));
    static const std::unique_ptr<OrtLiteCustomOp> power(CreateLiteCustomOp<Power>("Power", kCpu));
    static const std::unique_ptr<OrtLiteCustomOp> ends(CreateLiteCustomOp("Ends", kCpu, Ends));
    static const Mean mean;
    static Ort::CustomOpDomain domain("third.party.cxx");
    for (const OrtCustomOp* op :
         {static_cast<const OrtCustomOp*>(filter.get()), static_cast<const OrtCustomOp*>(mix.get()),
          static_cast<const OrtCustomOp*>(power.get()), static_cast<const OrtCustomOp*>(ends.get()),
          static_cast<const OrtCustomOp*>(&mean)}) {
      domain.Add(op);
    }
    Ort::UnownedSessionOptions(options).Add(domain);
  } catch (const std::exception& error) {
    return Ort::Status(error).release();
  }
  return nullptr;
}
