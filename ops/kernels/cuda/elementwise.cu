// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/dense_step.h"
#include "pagefuse/ops/kernels/cuda/element_steps.h"
#include "pagefuse/ops/kernels/cuda/elementwise.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/strided.h"

namespace pagefuse::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTensors = kMaxElementInputs + 1;
constexpr int kOutput = kMaxElementInputs;  // the last tensor of a walk
// That every launch may have.
constexpr int64_t kSharedBytes = 48 << 10;

// Each new line of it that a kernel reads takes as long as its whole work on a small tensor: what all read comes first, and the walk, which
// tensors without strides have no need of, last.
struct Launched {
  uint32_t size;  // threads that have work
  // Bit i: neighbours of the result have the same element of tensor i.
  uint32_t repeated;
  bool dense;  // there is one axis, whose other tensors have neighbours
  void* output;
  const void* inputs[kMaxElementInputs];
  ElementProgram program;
  Strided<kTensors> walk;
};

// Registers of one thread, in a column of shared memory of its own: each of kVector elements.
template <typename Word, int kVector>
struct Registers {
  Word* own;
  __device__ Word& at(int index, int element) {
    return own[(index * kVector + element) * kThreads];
  }
};

template <typename Word, int kVector, typename T, typename F>
__device__ void LoadAs(const void* data, int64_t place, bool repeats,
                       Registers<Word, kVector> registers, int to, const F& widen) {
  const T* from = static_cast<const T*>(data) + place;
  if (kVector == 1 || repeats) {
    const Word word = widen(*from);
    for (int i = 0; i < kVector; ++i) registers.at(to, i) = word;
    return;
  }
  const auto elements = *reinterpret_cast<const Vector<T, kVector>*>(from);
#pragma unroll
  for (int i = 0; i < kVector; ++i) registers.at(to, i) = widen(elements.at[i]);
}

template <typename Word, int kVector>
__device__ void Load(DataType type, const void* data, int64_t place, bool repeats,
                     Registers<Word, kVector> registers, int to) {
  using W = ElementWord<Word>;
  using Signed = typename W::Signed;
  const auto load = [&]<typename T>(T*, const auto& widen) {
    LoadAs<Word, kVector, T>(data, place, repeats, registers, to, widen);
  };
  const auto floats = [](auto x) { return W::Of(ToFloat(x)); };
  const auto signs = [](auto x) { return W::Of(static_cast<Signed>(x)); };
  const auto bits = [](auto x) { return static_cast<Word>(x); };
  switch (type) {
    case DataType::kFloat:
      return load(static_cast<float*>(nullptr), floats);
    case DataType::kFloat16:
      return load(static_cast<Half*>(nullptr), floats);
    case DataType::kBfloat16:
      return load(static_cast<Bfloat*>(nullptr), floats);
    case DataType::kInt8:
      return load(static_cast<int8_t*>(nullptr), signs);
    case DataType::kInt16:
      return load(static_cast<int16_t*>(nullptr), signs);
    case DataType::kInt32:
      return load(static_cast<int32_t*>(nullptr), signs);
    case DataType::kUint16:
      return load(static_cast<uint16_t*>(nullptr), bits);
    case DataType::kUint32:
      return load(static_cast<uint32_t*>(nullptr), bits);
    case DataType::kBool:
      return load(static_cast<uint8_t*>(nullptr), [](uint8_t x) -> Word { return x != 0 ? 1 : 0; });
    case DataType::kUint8:
      return load(static_cast<uint8_t*>(nullptr), bits);
    default:  // 8 bytes
      return load(static_cast<uint64_t*>(nullptr), bits);
  }
}

template <typename Word, int kVector, typename T, typename F>
__device__ void StoreAs(void* data, int64_t place, Registers<Word, kVector> registers, int from,
                        const F& narrow) {
  Vector<T, kVector> elements;
#pragma unroll
  for (int i = 0; i < kVector; ++i) elements.at[i] = narrow(registers.at(from, i));
  *reinterpret_cast<Vector<T, kVector>*>(static_cast<T*>(data) + place) = elements;
}

template <typename Word, int kVector>
__device__ void Store(DataType type, void* data, int64_t place, Registers<Word, kVector> registers,
                      int from) {
  using W = ElementWord<Word>;
  const auto store = [&]<typename T>(T*, const auto& narrow) {
    StoreAs<Word, kVector, T>(data, place, registers, from, narrow);
  };
  switch (type) {
    case DataType::kFloat16:
      return store(static_cast<Half*>(nullptr),
                   [](Word x) { return FromFloat<Half>(W::AsFloat(x)); });
    case DataType::kBfloat16:
      return store(static_cast<Bfloat*>(nullptr),
                   [](Word x) { return FromFloat<Bfloat>(W::AsFloat(x)); });
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kBool:
      return store(static_cast<uint8_t*>(nullptr), [](Word x) { return static_cast<uint8_t>(x); });
    case DataType::kInt16:
    case DataType::kUint16:
      return store(static_cast<uint16_t*>(nullptr),
                   [](Word x) { return static_cast<uint16_t>(x); });
    case DataType::kFloat:
    case DataType::kInt32:
    case DataType::kUint32:
      return store(static_cast<uint32_t*>(nullptr),
                   [](Word x) { return static_cast<uint32_t>(x); });
    default:
      return store(static_cast<uint64_t*>(nullptr),
                   [](Word x) { return static_cast<uint64_t>(x); });
  }
}

// Thread i has element i of the walk, or kVector neighbours that the walk counts as one.
template <typename Word, int kVector>
__global__ void __launch_bounds__(kThreads)
    ElementwiseKernel(const __grid_constant__ Launched launched) {
  extern __shared__ __align__(16) unsigned char shared[];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= launched.size) return;
  const ElementProgram& program = launched.program;
  Registers<Word, kVector> registers{reinterpret_cast<Word*>(shared) + threadIdx.x};
  const auto repeats = [&](int tensor) { return (launched.repeated >> tensor & 1) != 0; };
  const auto place_of = [&](int tensor) {
    if (launched.dense) return repeats(tensor) ? 0 : int64_t{index} * kVector;
    int64_t place = 0;
    uint32_t rest = index;
    for (int axis = 0; axis < launched.walk.axes; ++axis) {
      const uint32_t next = launched.walk.sizes[axis].Quotient(rest);
      place += int64_t{rest - next * launched.walk.sizes[axis].size} *
               launched.walk.strides[tensor][axis];
      rest = next;
    }
    return place;
  };
  for (int i = 0; i < program.inputs; ++i) {
    Load<Word, kVector>(static_cast<DataType>(program.input_types[i]), launched.inputs[i],
                        place_of(i), repeats(i), registers, i);
  }
  const auto operand = [&](int id, int element) {
    return id < kElementConstant ? registers.at(id, element)
                                 : static_cast<Word>(program.constant[id - kElementConstant]);
  };
#pragma unroll 1
  for (int e = 0; e < kVector; ++e) {
#pragma unroll 1
    for (int s = 0; s < program.steps; ++s) {
      const ElementStep& step = program.step[s];
      registers.at(step.to, e) =
          RunStep(step, operand(step.a, e), operand(step.b, e), operand(step.c, e));
    }
  }
  Store<Word, kVector>(static_cast<DataType>(program.result_type), launched.output,
                       place_of(kOutput), registers, program.step[program.steps - 1].to);
}

int64_t WidthOf(uint8_t type) { return ElementWidth(static_cast<DataType>(type)); }

constexpr int kVectorElements = 4;
// Up to here a thread has one element: the steps of several come one after the other.
constexpr int64_t kFewElements = 1 << 15;

// Whether each tensor's inner elements are neighbours that one access takes, or one element.
bool SuitsVectors(const ElementwiseParams& params, const StridedAxes<kTensors>& axes) {
  const ElementProgram& program = *params.program;
  if (axes.axes.back().size % kVectorElements != 0) return false;
  const auto suits = [&](int tensor, const void* data, uint8_t type) {
    const int64_t inner = axes.axes.back().strides[tensor];
    if (inner == 0) return true;
    if (inner != 1 || !IsAligned(data, kVectorElements * WidthOf(type))) return false;
    for (size_t i = 0; i + 1 < axes.axes.size(); ++i) {
      if (axes.axes[i].strides[tensor] % kVectorElements != 0) return false;
    }
    return true;
  };
  for (int i = 0; i < program.inputs; ++i) {
    if (!suits(i, params.inputs[i].data, program.input_types[i])) return false;
  }
  return suits(kOutput, params.output, program.result_type);
}

template <typename Word, int kVector>
Error LaunchWalks(const ElementwiseParams& params, StridedAxes<kTensors> axes, Stream stream) {
  const ElementProgram& program = *params.program;
  Launched launched{.program = program};
  launched.dense = axes.axes.size() == 1;
  for (int i = 0; i < kTensors; ++i) {
    const int64_t stride = axes.inner().strides[i];
    if (stride == 0) launched.repeated |= 1u << i;
    launched.dense = launched.dense && (stride == 0 || stride == 1);
  }
  if (kVector > 1) {
    axes.inner().size /= kVector;
    for (int64_t& stride : axes.inner().strides) stride *= kVector;
  }
  launched.walk = axes.Walked();
  launched.size = static_cast<uint32_t>(axes.walked_size());
  const size_t shared = sizeof(Word) * kVector * kThreads * program.registers;
  const LaunchShape shape{.grid = static_cast<unsigned>(CeilDiv(launched.size, kThreads)),
                          .block = kThreads,
                          .shared_bytes = shared};
  return axes.ForEachWalk([&](const auto& places) {
    for (int i = 0; i < program.inputs; ++i) {
      launched.inputs[i] = static_cast<const char*>(params.inputs[i].data) +
                           places[i] * WidthOf(program.input_types[i]);
    }
    launched.output =
        static_cast<char*>(params.output) + places[kOutput] * WidthOf(program.result_type);
    return Launch(ElementwiseKernel<Word, kVector>, shape, stream, launched);
  });
}

}  // namespace

Error LaunchElementwise(const ElementwiseParams& params, Stream stream) {
  const ElementProgram& program = *params.program;
  std::vector<std::vector<int64_t>> strides(kTensors, std::vector<int64_t>(params.dims.size(), 0));
  for (int i = 0; i < program.inputs; ++i) {
    strides[i] = RepeatedStrides(params.inputs[i].dims, params.dims);
  }
  strides[kOutput] = DenseStrides(params.dims);
  const StridedAxes<kTensors> axes(params.dims, strides);
  if (axes.size() == 0) return 0;
  if (program.wide) return LaunchWalks<uint64_t, 1>(params, axes, stream);
  const bool suits_vectors = SuitsVectors(params, axes);
  const std::optional<DenseProgram> dense = DenseProgramOf(program);
  if (axes.axes.size() == 1 && axes.outer_axes() == 0 && dense) {
    const auto repeats = [&](int input) { return axes.axes[0].strides[input] == 0; };
    return LaunchDenseStep(params, *dense, axes.size(), suits_vectors, repeats, stream);
  }
  const bool fits = int64_t{kVectorElements} * 4 * kThreads * program.registers <= kSharedBytes;
  if (fits && suits_vectors && axes.walked_size() > kFewElements) {
    return LaunchWalks<uint32_t, kVectorElements>(params, axes, stream);
  }
  return LaunchWalks<uint32_t, 1>(params, axes, stream);
}

}  // namespace pagefuse::cuda
