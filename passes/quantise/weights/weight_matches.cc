// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/quantise/weights/weight_matches.h"

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/node_walk.h"
#include "pagefuse/passes/quantise/weights/kept_weights.h"

namespace pagefuse {
namespace {

constexpr char kMicrosoft[] = "com.microsoft";

absl::Status Kept(std::string_view why) { return absl::FailedPreconditionError(AbslView(why)); }

constexpr int kMatrix = 2, kStack = 3;

// The matrix that a product takes on its right, [K, N], or [N, K] where `transposed`; with an axis
// of experts or heads in front where `rank` is that of a stack. A Transpose of a constant is looked
// through.
absl::StatusOr<WeightUse> MatrixOf(const Value* value, bool transposed, int rank = kMatrix) {
  const Node* producer = value->producer();
  if (producer != nullptr && producer->Is("Transpose")) {
    const std::vector<int64_t> turned =
        rank == kStack ? std::vector<int64_t>{0, 2, 1} : std::vector<int64_t>{1, 0};
    const auto perm = producer->IntsAttribute("perm", {1, 0});
    if (perm.ok() && *perm == turned) {
      return MatrixOf(producer->input(0), !transposed, rank);
    }
  }
  const Tensor* tensor = ConstantOf(value);
  WeightUse use{.value = value};
  if (tensor == nullptr) {
    PF_RETURN_IF_ERROR(ExpectConstant(*value));
    return use;
  }
  const auto expected = [&](std::string_view what, std::string_view found) {
    return Kept(StrCat("weight \"", value->name(), "\": expected ", what, ", got ", found));
  };
  if (tensor->rank() != rank) {
    return expected(rank == kStack ? "a stack of matrices" : "a matrix",
                    StrCat("rank ", tensor->rank()));
  }
  const DataType type = tensor->dtype();
  if (type != DataType::kFloat && type != DataType::kFloat16 && type != DataType::kBfloat16) {
    return expected("float, float16 or bfloat16", DataTypeName(type));
  }
  const WeightMatrix matrix{.tensor = tensor, .columns_sum = transposed};
  if (matrix.k() < kLeastTerms) {
    return expected(StrCat("a sum of ", kLeastTerms, " terms at least"), StrCat(matrix.k()));
  }
  if (matrix.n() == 0 || matrix.count() == 0) return expected("columns", "none");
  if (IsAbsent(*tensor)) return expected("data", "a model without its file of weights");
  use.matrix = matrix;
  return use;
}

bool IsComputed(const WeightUse& use) { return use.matrix.tensor == nullptr; }

absl::Status ExpectFloat(const WeightUse& weight) {
  const DataType type = weight.matrix.tensor->dtype();
  if (type == DataType::kFloat) return absl::OkStatus();
  return Kept(
      StrCat("weight \"", weight.value->name(), "\": expected float, got ", DataTypeName(type)));
}

absl::Status ExpectNumber(const Node& node, const char* attribute, float number) {
  const auto value = node.FloatAttribute(attribute, number);
  if (value.ok() && *value == number) return absl::OkStatus();
  return Kept(StrCat(attribute, ": expected ", number, ", got ", value.value_or(0)));
}

absl::Status ExpectZero(const Node& node, const char* attribute) {
  if (IntOr(node, attribute, 0) == 0) return absl::OkStatus();
  return Kept(StrCat(attribute, ": expected 0, got ", IntOr(node, attribute, 0)));
}

int ExpectedRank(const Value* value) {
  return value->shape() && value->shape()->rank() == kStack ? kStack : kMatrix;
}

// Matrices of x and of a stack are as many, one for each: Linear repeats neither.
absl::Status ExpectMatrices(const Value* x, const WeightMatrix& matrix) {
  if (!matrix.is_stack()) return absl::OkStatus();
  const auto& shape = x->shape();
  if (shape && shape->rank() >= kStack && ProvablyEqual(shape->back(2), Dim(matrix.count()))) {
    return absl::OkStatus();
  }
  return Kept(StrCat("\"", x->name(), "\": expected a matrix for each of the ", matrix.count(),
                     " of the weight, got ", shape ? shape->ToString() : "an unknown shape"));
}

absl::StatusOr<WeightMatch> ProductSite(Node* node, bool transposed) {
  PF_ASSIGN_OR_RETURN(WeightUse weight,
                      MatrixOf(node->input(1), transposed, ExpectedRank(node->input(1))));
  if (IsComputed(weight)) {
    PF_RETURN_IF_ERROR(ExpectRight(*node));
    return WeightMatch{};
  }
  PF_RETURN_IF_ERROR(ExpectZero(*node, "transA"));
  PF_RETURN_IF_ERROR(ExpectNumber(*node, "alpha", 1));
  return WeightMatch{.node = node, .weights = {weight}};
}

absl::StatusOr<WeightMatch> MatMulSite(Node* node) { return ProductSite(node, false); }

absl::StatusOr<WeightMatch> FusedMatMulSite(Node* node) {
  PF_ASSIGN_OR_RETURN(WeightMatch match, ProductSite(node, IntOr(*node, "transB", 0) != 0));
  if (match.weights.empty()) return match;
  for (const char* attribute : {"transBatchA", "transBatchB"}) {
    PF_RETURN_IF_ERROR(ExpectZero(*node, attribute));
  }
  return match;
}

absl::StatusOr<WeightMatch> GemmSite(Node* node) {
  PF_ASSIGN_OR_RETURN(WeightMatch match, ProductSite(node, IntOr(*node, "transB", 0) != 0));
  match.bias = node->input(2);
  if (match.weights.empty() || match.bias == nullptr) return match;
  PF_RETURN_IF_ERROR(ExpectNumber(*node, "beta", 1));
  const Shape columns({Dim(match.weights[0].matrix.n())});
  const auto& shape = match.bias->shape();
  if (shape && shape->rank() == 1 && ProvablyEqual((*shape)[0], columns[0])) return match;
  return Kept(StrCat("bias \"", match.bias->name(), "\": expected ", columns.ToString(), ", got ",
                     shape ? shape->ToString() : "an unknown shape"));
}

// Rows of bfloat16, or codes, under floats.
bool HasFormat(const Node& node, int weight) {
  return node.input(0)->dtype() == DataType::kFloat &&
         node.input(weight)->dtype() != DataType::kFloat;
}

// Experts are quantised each by itself: blocks run along what their products sum over.
absl::StatusOr<WeightMatch> GroupedSite(Node* node) {
  if (HasFormat(*node, 2)) return WeightMatch{};
  PF_ASSIGN_OR_RETURN(const WeightUse weight,
                      MatrixOf(node->input(2), IntOr(*node, "transB", 0) != 0, kStack));
  if (IsComputed(weight)) return WeightMatch{};
  PF_RETURN_IF_ERROR(ExpectFloat(weight));
  return WeightMatch{.node = node, .weights = {weight}, .is_grouped = true};
}

absl::StatusOr<WeightMatch> GatedSite(Node* node) {
  if (HasFormat(*node, 1)) return WeightMatch{};
  WeightMatch match{.node = node};
  for (const int input : {1, 2}) {
    PF_ASSIGN_OR_RETURN(const WeightUse weight,
                        MatrixOf(node->input(input), IntOr(*node, "transB", 0) != 0));
    if (IsComputed(weight)) return WeightMatch{};
    PF_RETURN_IF_ERROR(ExpectFloat(weight));
    match.weights.push_back(weight);
  }
  return match;
}

// True if rows of the look-up have a part in the value, or nothing but constants has.
bool ComesFrom(const Value* value, const Node& gather) {
  if (ConstantOf(value) != nullptr) return true;
  absl::flat_hash_set<const Node*> seen;
  std::vector<const Node*> above = {value->producer()};
  while (!above.empty()) {
    const Node* node = above.back();
    above.pop_back();
    if (node == &gather) return true;
    if (node == nullptr || !seen.insert(node).second) continue;
    for (const Value* input : node->inputs()) {
      if (input != nullptr) above.push_back(input->producer());
    }
  }
  return false;
}

// Cosines and sines: ops that rotate take them, or something that they have no part in is
// multiplied by them. Embeddings have a part in all that they are multiplied by.
bool HoldsAngles(const Node& gather) {
  constexpr int kSteps = 6;
  const auto rotates = [&gather](const Node& reader) {
    if (reader.Is("RotaryEmbedding") || reader.Is("RotaryEmbedding", kMicrosoft)) return true;
    if (reader.domain() == "pagefuse") {
      return reader.op_type().find("Rope") != std::string::npos ||
             reader.op_type().find("Insert") != std::string::npos;
    }
    return reader.Is("Mul") &&
           (!ComesFrom(reader.input(0), gather) || !ComesFrom(reader.input(1), gather));
  };
  return Below(gather, rotates,
               {"Reshape", "Unsqueeze", "Squeeze", "Cast", "Split", "Slice", "Concat", "Identity",
                "Transpose", "Expand"},
               kSteps) != nullptr;
}

absl::StatusOr<WeightMatch> TableSite(Node* node) {
  const Value* rows = node->input(0);
  const auto& shape = rows->shape();
  if (!IsFloatingPoint(rows->dtype()) || !shape || shape->rank() < kMatrix) return WeightMatch{};
  PF_ASSIGN_OR_RETURN(const WeightUse table, MatrixOf(rows, true));
  if (IsComputed(table)) return WeightMatch{};
  const int64_t axis = NormalAxis(IntOr(*node, "axis", 0), kMatrix);
  if (axis != 0) {
    return Kept(StrCat("table \"", table.value->name(), "\": expected axis 0, got ", axis));
  }
  if (HoldsAngles(*node)) {
    return Kept(StrCat("table \"", table.value->name(),
                       "\": expected embeddings, got factors of a rotation"));
  }
  return WeightMatch{.node = node, .weights = {table}, .is_table = true};
}

// Rows of codes in a table are whole bytes and blocks only of widths that blocks divide. Products
// with codes take one matrix.
absl::Status CheckBlocks(const WeightMatch& match, const WeightFormat& format) {
  if (match.weights[0].matrix.is_stack() && !match.is_grouped) {
    return Kept(StrCat("weight \"", match.weights[0].value->name(),
                       "\": expected a matrix, got rank ", kStack));
  }
  const WeightUse& table = match.weights[0];
  if (!match.is_table || table.matrix.k() % format.block == 0) return absl::OkStatus();
  return Kept(StrCat("table \"", table.value->name(), "\": expected rows of a multiple of ",
                     format.block, " numbers, got ", table.matrix.k()));
}

// Products of half types keep their type.
absl::Status CheckRows(const WeightMatch& match) {
  for (const WeightUse& weight : match.weights) {
    PF_RETURN_IF_ERROR(ExpectFloat(weight));
  }
  if (match.is_grouped || match.is_table || match.is_gated()) return absl::OkStatus();
  return ExpectMatrices(match.node->input(0), match.weights[0].matrix);
}

// A table of bfloat16 has the format of rows already.
bool HoldsRows(const WeightMatch& match, const WeightFormat& format) {
  return format.layout == WeightLayout::kRows && match.is_table &&
         match.weights[0].matrix.tensor->dtype() == DataType::kBfloat16;
}

struct SiteOp {
  const char* domain;
  const char* op;
  absl::StatusOr<WeightMatch> (*match)(Node*);
};
constexpr SiteOp kSiteOps[] = {
    {"", "MatMul", MatMulSite}, {kMicrosoft, "FusedMatMul", FusedMatMulSite},
    {"", "Gemm", GemmSite},     {"pagefuse", "GatedLinear", GatedSite},
    {"", "Gather", TableSite},  {"pagefuse", "GroupedMatMul", GroupedSite},
};

}  // namespace

absl::StatusOr<WeightMatch> WeightMatchOf(Node* node, const WeightFormat& format) {
  PF_RETURN_IF_ERROR(ExpectNumbers(*node, format));
  for (const SiteOp& op : kSiteOps) {
    if (!node->Is(op.op, op.domain)) continue;
    PF_ASSIGN_OR_RETURN(WeightMatch match, op.match(node));
    if (match.weights.empty()) return WeightMatch{.node = node};
    if (HoldsRows(match, format)) return WeightMatch{};
    PF_RETURN_IF_ERROR(format.layout == WeightLayout::kRows ? CheckRows(match)
                                                            : CheckBlocks(match, format));
    return match;
  }
  PF_RETURN_IF_ERROR(ExpectOtherOp(*node));
  return WeightMatch{};
}

}  // namespace pagefuse
