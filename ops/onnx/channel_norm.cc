// SPDX-License-Identifier: Apache-2.0
// Norms of [N, C, ...] with a scale and a bias for each channel: Batch-, Group- and
// InstanceNormalization; and LRN, over neighbouring channels.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/elementwise.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

using Doubles = std::vector<double>;

// X as [images, channels, size].
struct Planes {
  int64_t images = 1, channels = 1, size = 1;
};

Planes PlanesOf(const TensorArg& x) {
  Planes planes;
  if (!x.dims.empty()) planes.images = x.dims[0];
  if (x.dims.size() > 1) planes.channels = x.dims[1];
  for (size_t d = 2; d < x.dims.size(); ++d) planes.size *= x.dims[d];
  return planes;
}

// Inputs [first, last) must be vectors of `length`.
absl::Status CheckVectors(const ShapeContext& c, int first, int last, const Dim& length) {
  for (int i = first; i < last; ++i) {
    PF_RETURN_IF_ERROR(ExpectShape(c, i, Shape({length})));
  }
  return absl::OkStatus();
}

absl::Status CheckRank(const ShapeContext& c, int rank) {
  const Shape* x = c.input_shape(0);
  if (x == nullptr || x->rank() >= rank) return absl::OkStatus();
  return c.InputError(0, StrCat("expected rank ", rank, " or more, got shape ", x->ToString()));
}

Dim ChannelsOf(const ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  if (x == nullptr) return Dim();
  return x->rank() > 1 ? (*x)[1] : Dim(1);
}

struct Statistics {
  double mean = 0, variance = 0;
};

// The sum of term(x) over n elements: several sums side by side, as one would wait for itself.
template <typename T, typename Term>
double SumOf(const T* x, int64_t n, const Term& term) {
  constexpr int64_t kSums = 16;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int64_t k = 0; k < kSums; ++k) sums[k] += term(static_cast<double>(Load(x[i + k])));
  }
  for (; i < n; ++i) sums[0] += term(static_cast<double>(Load(x[i])));
  return std::accumulate(sums, sums + kSums, 0.0);
}

// Over n elements.
template <typename T>
Statistics StatisticsOf(const T* x, int64_t n) {
  const auto count = static_cast<double>(n);
  const double mean = SumOf(x, n, [](double v) { return v; }) / count;
  return {mean, SumOf(x, n, [mean](double v) { return (v - mean) * (v - mean); }) / count};
}

// y = x * factor + offset.
template <typename T>
void Affine(const T* x, int64_t n, double factor, double offset, T* y) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = Store<T>(static_cast<Compute<T>>(static_cast<double>(Load(x[i])) * factor + offset));
  }
}

// --- GroupNormalization, InstanceNormalization ---

// Channels are normalised in groups. Scale and bias have a value for each channel, or each group.
struct GroupNorm {
  Planes planes;
  int64_t groups = 1;
  double epsilon = 0;
  Doubles scale = {}, bias = {};
};

template <typename T>
void NormaliseGroupsTyped(const KernelArgs& args, const GroupNorm& norm) {
  const Planes& planes = norm.planes;
  const int64_t per_group = planes.channels / std::max<int64_t>(norm.groups, 1);
  const int64_t n = per_group * planes.size;
  const bool by_group = static_cast<int64_t>(norm.scale.size()) != planes.channels;
  ParallelFor(planes.images * norm.groups, n + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* x = args.input(0).as<T>() + i * n;
      T* y = args.output(0).as<T>() + i * n;
      const Statistics s = StatisticsOf(x, n);
      const double inverse = 1 / std::sqrt(s.variance + norm.epsilon);
      for (int64_t c = 0; c < per_group; ++c) {
        const int64_t group = i % norm.groups;
        const int64_t k = by_group ? group : group * per_group + c;
        const double factor = inverse * norm.scale[k];
        Affine(x + c * planes.size, planes.size, factor, norm.bias[k] - s.mean * factor,
               y + c * planes.size);
      }
    }
  });
}

absl::Status NormaliseGroups(const KernelArgs& args, int64_t groups) {
  GroupNorm norm = {.planes = PlanesOf(args.input(0)), .groups = groups};
  PF_ASSIGN_OR_RETURN(const float epsilon, args.node->FloatAttribute("epsilon", 1e-5f));
  norm.epsilon = static_cast<double>(epsilon);
  PF_ASSIGN_OR_RETURN(norm.scale, DecodedDoubles(args.input(1)));
  PF_ASSIGN_OR_RETURN(norm.bias, DecodedDoubles(args.input(2)));
  return Dispatch(Floats(), args.input(0).dtype,
                  [&]<typename T>() { NormaliseGroupsTyped<T>(args, norm); });
}

absl::Status InferGroupNorm(ShapeContext& c) {
  PF_RETURN_IF_ERROR(CheckRank(c, 2));
  PF_ASSIGN_OR_RETURN(const int64_t groups, c.node().IntAttribute("num_groups", 1));
  const Dim channels = ChannelsOf(c);
  if (groups < 1 || (channels.is_constant() && *channels.constant() % groups != 0)) {
    return c.AttributeError(
        "num_groups", StrCat(groups, " groups do not divide ", channels.ToString(), " channels"));
  }
  // Before opset 21 a group has one scale.
  PF_RETURN_IF_ERROR(CheckVectors(c, 1, 3, c.opset() < 21 ? Dim(groups) : channels));
  return InferSameShape(c);
}

absl::Status RunGroupNorm(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t groups, args.node->IntAttribute("num_groups", 1));
  return NormaliseGroups(args, groups);
}

absl::Status InferInstanceNorm(ShapeContext& c) {
  PF_RETURN_IF_ERROR(CheckRank(c, 3));
  PF_RETURN_IF_ERROR(CheckVectors(c, 1, 3, ChannelsOf(c)));
  return InferSameShape(c);
}

absl::Status RunInstanceNorm(KernelArgs& args) {
  return NormaliseGroups(args, PlanesOf(args.input(0)).channels);
}

// --- BatchNormalization ---

absl::Status InferBatchNorm(ShapeContext& c) {
  PF_RETURN_IF_ERROR(CheckRank(c, 1));
  PF_ASSIGN_OR_RETURN(const int64_t training, c.node().IntAttribute("training_mode", 0));
  const Dim channels = ChannelsOf(c);
  PF_RETURN_IF_ERROR(CheckVectors(c, 1, 5, channels));
  if (training == 0 && c.num_outputs() > 1) {
    return c.Error("expected 1 output where training_mode is 0");
  }
  PF_RETURN_IF_ERROR(InferSameShape(c));
  for (int i = 1; i < c.num_outputs(); ++i) c.SetOutput(i, c.input_type(3), Shape({channels}));
  return absl::OkStatus();
}

// Mean and variance of a channel over all images.
template <typename T>
Statistics ChannelStatistics(const T* x, const Planes& planes, int64_t channel) {
  Statistics s;
  const auto count = static_cast<double>(planes.images * planes.size);
  const auto for_each = [&](const auto& f) {
    for (int64_t n = 0; n < planes.images; ++n) {
      const T* plane = x + (n * planes.channels + channel) * planes.size;
      for (int64_t i = 0; i < planes.size; ++i) f(static_cast<double>(Load(plane[i])));
    }
  };
  for_each([&](double value) { s.mean += value; });
  s.mean /= count;
  for_each([&](double value) { s.variance += (value - s.mean) * (value - s.mean); });
  s.variance /= count;
  return s;
}

struct BatchNorm {
  double epsilon = 0, momentum = 0;
  bool training = false;
  Doubles scale, bias;
  Doubles mean, variance;  // running ones, which training updates
};

template <typename T>
void NormaliseBatch(const TensorArg& x, const TensorArg& y, BatchNorm& norm) {
  const Planes planes = PlanesOf(x);
  for (int64_t c = 0; c < planes.channels; ++c) {
    double& mean = norm.mean[c];
    double& variance = norm.variance[c];
    Statistics s{mean, variance};
    if (norm.training) {
      s = ChannelStatistics(x.as<T>(), planes, c);
      mean = mean * norm.momentum + s.mean * (1 - norm.momentum);
      variance = variance * norm.momentum + s.variance * (1 - norm.momentum);
    }
    const double factor = norm.scale[c] / std::sqrt(s.variance + norm.epsilon);
    for (int64_t n = 0; n < planes.images; ++n) {
      const int64_t at = (n * planes.channels + c) * planes.size;
      Affine(x.as<T>() + at, planes.size, factor, norm.bias[c] - s.mean * factor, y.as<T>() + at);
    }
  }
}

absl::Status RunBatchNorm(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  BatchNorm norm;
  PF_ASSIGN_OR_RETURN(const float epsilon, args.node->FloatAttribute("epsilon", 1e-5f));
  PF_ASSIGN_OR_RETURN(const float momentum, args.node->FloatAttribute("momentum", 0.9f));
  PF_ASSIGN_OR_RETURN(const int64_t training, args.node->IntAttribute("training_mode", 0));
  norm.epsilon = static_cast<double>(epsilon);
  norm.momentum = static_cast<double>(momentum);
  norm.training = training != 0;
  PF_ASSIGN_OR_RETURN(norm.scale, DecodedDoubles(args.input(1)));
  PF_ASSIGN_OR_RETURN(norm.bias, DecodedDoubles(args.input(2)));
  PF_ASSIGN_OR_RETURN(norm.mean, DecodedDoubles(args.input(3)));
  PF_ASSIGN_OR_RETURN(norm.variance, DecodedDoubles(args.input(4)));
  PF_RETURN_IF_ERROR(Dispatch(Floats(), x.dtype,
                              [&]<typename T>() { NormaliseBatch<T>(x, args.output(0), norm); }));
  if (args.output(1).present()) PF_RETURN_IF_ERROR(EncodeDoubles(norm.mean, args.output(1), 0));
  if (args.output(2).present()) PF_RETURN_IF_ERROR(EncodeDoubles(norm.variance, args.output(2), 0));
  return absl::OkStatus();
}

// --- LRN ---

absl::Status InferLrn(ShapeContext& c) {
  PF_RETURN_IF_ERROR(CheckRank(c, 2));
  PF_ASSIGN_OR_RETURN(const int64_t size, c.node().IntAttribute("size", 0));
  if (size < 1) return c.AttributeError("size", StrCat("expected 1 or more, got ", size));
  return InferSameShape(c);
}

absl::Status RunLrn(KernelArgs& args) {
  const Planes planes = PlanesOf(args.input(0));
  PF_ASSIGN_OR_RETURN(const float alpha, args.node->FloatAttribute("alpha", 1e-4f));
  PF_ASSIGN_OR_RETURN(const float beta, args.node->FloatAttribute("beta", 0.75f));
  PF_ASSIGN_OR_RETURN(const float bias, args.node->FloatAttribute("bias", 1.0f));
  PF_ASSIGN_OR_RETURN(const int64_t attribute, args.node->IntAttribute("size", 1));
  // A wider window has all channels too.
  const int64_t size = std::min(attribute, 2 * planes.channels + 1);
  const double weight = static_cast<double>(alpha) / static_cast<double>(attribute);
  return Dispatch(Floats(), args.input(0).dtype, [&]<typename T>() {
    const T* x = args.input(0).as<T>();
    T* y = args.output(0).as<T>();
    for (int64_t at = 0, count = args.input(0).size(); at < count; ++at) {
      const int64_t c = at / planes.size % planes.channels;
      const int64_t first = std::max<int64_t>(c - (size - 1) / 2, 0);
      const int64_t last = std::min(c + size / 2, planes.channels - 1);
      double squares = 0;
      for (int64_t k = first; k <= last; ++k) {
        const auto value = static_cast<double>(Load(x[at + (k - c) * planes.size]));
        squares += value * value;
      }
      const double power = std::pow(bias + weight * squares, static_cast<double>(beta));
      y[at] = Store<T>(static_cast<Compute<T>>(static_cast<double>(Load(x[at])) / power));
    }
  });
}

}  // namespace

OpDef GroupNormalizationDef() {
  return OpDef("", "GroupNormalization", 18)
      .Doc("(X - mean) / sqrt(variance + epsilon) * scale + bias, over groups of channels.")
      .Input("X", "T", "[N, C, ...]")
      .Input("scale", "T", "[C]; [num_groups] before opset 21")
      .Input("bias", "T", "as scale")
      .Output("Y", "T", "as X")
      .Attr("epsilon", 1e-5f, "added to the variance")
      .RequiredAttr("num_groups", "groups of channels")
      .Attr("stash_type", int64_t{1}, "type of the statistics; they are double here")
      .Types("T", TypesOf(Floats()))
      .InferShapes(InferGroupNorm)
      .AddKernel({.name = "reference", .run = RunGroupNorm});
}

OpDef InstanceNormalizationDef() {
  return OpDef("", "InstanceNormalization", 6)
      .Doc("(X - mean) / sqrt(variance + epsilon) * scale + B, over each plane.")
      .Input("input", "T", "[N, C, ...]")
      .Input("scale", "T", "[C]")
      .Input("B", "T", "[C]")
      .Output("output", "T", "as input")
      .Attr("epsilon", 1e-5f, "added to the variance")
      .Types("T", TypesOf(Floats()))
      .InferShapes(InferInstanceNorm)
      .AddKernel({.name = "reference", .run = RunInstanceNorm});
}

OpDef BatchNormalizationDef() {
  return OpDef("", "BatchNormalization", 9)
      .Doc(
          "(X - mean) / sqrt(var + epsilon) * scale + B by channel; in training mode with mean and "
          "variance of the batch, which then move the running ones.")
      .Input("X", "T", "[N, C, ...]")
      .Input("scale", "T1", "[C]")
      .Input("B", "T1", "[C]")
      .Input("input_mean", "T2", "[C]")
      .Input("input_var", "T2", "[C]")
      .Output("Y", "T", "as X")
      .Output("running_mean", "T2", "[C]", PortKind::kOptional)
      .Output("running_var", "T2", "[C]", PortKind::kOptional)
      .Attr("epsilon", 1e-5f, "added to the variance")
      .Attr("momentum", 0.9f, "what stays of the running mean and variance")
      .FlagAttr("training_mode", int64_t{0}, "1: statistics of the batch")
      .Types("T", TypesOf(Floats()))
      .Types("T1", TypesOf(Floats()))
      .Types("T2", TypesOf(Floats()))
      .InferShapes(InferBatchNorm)
      .AddKernel({.name = "reference", .run = RunBatchNorm});
}

OpDef LRNDef() {
  return OpDef("", "LRN", 1)
      .Doc("X / (bias + alpha / size * sum of squares of `size` neighbouring channels)^beta.")
      .Input("X", "T", "[N, C, ...]")
      .Output("Y", "T", "as X")
      .Attr("alpha", 1e-4f, "weight of the squares")
      .Attr("beta", 0.75f, "exponent")
      .Attr("bias", 1.0f, "what is added")
      .RequiredAttr("size", "channels that are summed")
      .Types("T", TypesOf(Floats()))
      .InferShapes(InferLrn)
      .AddKernel({.name = "reference", .run = RunLrn});
}

}  // namespace pagefuse::onnx_ops
