#include "pagefuse/ops/pagefuse/linear/bf16_weight.h"

#include <cstring>
#include <optional>
#include <utility>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/resident_pages.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr int64_t kPair = 2;

// What a stack's lead adds to the text of one matrix.
struct LeadText {
  std::string_view turned;      // how blocks become rows of K
  std::string_view first_axis;  // of w: column blocks
  std::string_view sizes;       // of the turned rows, in front of theirs
  std::string_view lead = "";   // the lines that define it
};

LeadText TextOf(Bf16Lead lead) {
  switch (lead) {
    case Bf16Lead::kExperts:
      return {"0, 2, 3, 5, 1, 4", "start = 1, end = 2", "experts, ",
              "  experts = Shape <start = 0, end = 1> (w)\n"};
    case Bf16Lead::kGateAndUp:
      return {"1, 2, 3, 5, 0, 4", "start = 0, end = 1", "both, ",
              "  both = Constant <value_ints: ints = [2]> ()\n"};
    case Bf16Lead::kNone:
      break;
  }
  return {"1, 2, 4, 0, 3", "start = 0, end = 1", ""};
}

class OwnWeight : public KernelState {
 public:
  explicit OwnWeight(Tensor weight) : weight_(std::move(weight)) {}
  int64_t packed_bytes() const override { return weight_.byte_size(); }
  const Tensor& weight() const { return weight_; }

 private:
  const Tensor weight_;
};

}  // namespace

absl::StatusOr<Bf16Sizes> Bf16Sizes::Of(const Node& node) {
  Bf16Sizes sizes;
  PF_ASSIGN_OR_RETURN(sizes.k, node.IntAttribute("K", 0));
  PF_ASSIGN_OR_RETURN(sizes.n, node.IntAttribute("N", 0));
  return sizes;
}

std::vector<int64_t> Bf16Sizes::Dims() const {
  return {column_blocks(), row_blocks(), PackedBf16::kBlockRows / kPair, PackedBf16::kBlockColumns,
          kPair};
}

std::vector<int64_t> Bf16Sizes::GatedDims() const {
  std::vector<int64_t> dims = Dims();
  dims.insert(dims.begin() + 1, kPair);
  return dims;
}

void SetRowsOutput(ShapeContext& c, int x, const Bf16Sizes& sizes) {
  std::optional<Shape> y;
  if (c.input_shape(x) != nullptr) {
    y = *c.input_shape(x);
    y->dims().back() = Dim(sizes.n);
  }
  c.SetOutput(0, c.input_type(x), y);
}

absl::StatusOr<std::unique_ptr<KernelState>> PrepareBf16Weight(const PrepareArgs& args, int port) {
  constexpr int64_t kLeastBytes = int64_t{2} << 20;  // a huge page
  const Tensor* weight = args.constants[static_cast<size_t>(port)];
  if (weight == nullptr || weight->byte_size() < kLeastBytes || !IsMappedFile(*weight->buffer())) {
    return nullptr;
  }
  PF_ASSIGN_OR_RETURN(Tensor copy,
                      Tensor::Allocate(weight->dtype(), weight->dims(), *args.allocator));
  const auto* from = static_cast<const std::byte*>(weight->data());
  auto* to = static_cast<std::byte*>(copy.mutable_data());
  ParallelFor(weight->byte_size(), 1, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
    ReleasePages(*weight->buffer(), from + begin, static_cast<size_t>(end - begin));
  });
  return std::make_unique<OwnWeight>(std::move(copy));
}

TensorArg Bf16WeightOf(const KernelArgs& args, int port) {
  TensorArg weight = args.input(port);
  if (args.state == nullptr) return weight;
  // Kernels read it.
  weight.data = const_cast<void*>(static_cast<const OwnWeight*>(args.state)->weight().data());
  return weight;
}

PackedBf16 PackedOf(const TensorArg& weight, const Bf16Sizes& sizes, int matrices) {
  return PackedBf16::Over(weight.as<uint16_t>(), sizes.k, sizes.n, matrices);
}

double Bf16ReferenceDot(const float* x, const PackedBf16& weight, int64_t n, int matrix) {
  double sum = 0;
  for (int64_t k = 0; k < weight.k(); ++k) {
    const auto rounded = static_cast<float>(Bfloat16(x[k]));
    sum += double{rounded} * static_cast<float>(Bfloat16::FromBits(weight.Word(k, n, matrix)));
  }
  return sum;
}

std::string RoundedText(std::string_view x) {
  return StrCat("  narrow = Cast <to = 16> (", x, ")\n  rounded = Cast <to = 1> (narrow)\n");
}

std::string DecodedBf16Text(Bf16Lead lead) {
  const LeadText text = TextOf(lead);
  return StrCat(
      "  column_blocks = Shape <", text.first_axis, "> (w)\n", text.lead,
      "  block_columns = Constant <value_ints: ints = [", PackedBf16::kBlockColumns,
      "]> ()\n  columns = Mul (column_blocks, block_columns)\n",
      "  rest = Constant <value_ints: ints = [-1]> ()\n", "  sizes = Concat <axis = 0> (",
      text.sizes, "rest, columns)\n", "  turned = Transpose <perm = [", text.turned, "]> (w)\n",
      "  matrix = Reshape (turned, sizes)\n  padded = Cast <to = 1> (matrix)\n",
      "  k = Constant <value_int: int = @K> ()\n", "  n = Constant <value_int: int = @N> ()\n",
      "  one = Constant <value_ints: ints = [1]> ()\n",
      "  k_end = Reshape (k, one)\n  n_end = Reshape (n, one)\n",
      "  ends = Concat <axis = 0> (k_end, n_end)\n",
      "  begins = Constant <value_ints: ints = [0, 0]> ()\n",
      "  last_axes = Constant <value_ints: ints = [-2, -1]> ()\n",
      "  weight = Slice (padded, begins, ends, last_axes)\n");
}

}  // namespace pagefuse::pagefuse_ops
