// SPDX-License-Identifier: Apache-2.0
// Matches the declared shapes of an op with the shapes of a node.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/signature.h"

namespace pagefuse {

// All that it refers to must outlive it.
class ShapeMatcher {
 public:
  ShapeMatcher(const OpDef& op, const Signature& signature, ShapeContext& context,
               DeclaredSizes& sizes)
      : op_(op), signature_(signature), c_(context), sizes_(sizes) {}

  // Checks which ports are given, finds what the names of sizes stand for, checks every input and
  // sets the declared shapes of outputs; what no input tells becomes a fresh dim. InvalidArgument
  // `input 1 "k": expected [N, D] with D = 128 of "q", got [40, 64]`.
  absl::Status Run();

 private:
  absl::Status CheckPresence() const;
  absl::Status CheckInputs();
  absl::Status SetOutputs();
  void ReadAttributes();
  absl::Status ComputeLets();
  void BindNames(int input);
  void BindName(int name, const Dim& dim, int input);
  void SolveSizes(int input);
  absl::Status CheckInput(int input) const;
  absl::Status CheckSameShape(int input) const;

  // The lists of a port that apply at this node.
  std::span<const DimList> ListsOf(const ShapePattern& pattern) const;
  // The only one that the input's rank fits; null if there is none or a choice.
  const DimList* OnlyList(int input) const;
  bool Fits(const DimList& list, const Shape& shape) const;
  bool FitsSize(const SizeExpression& size, const Dim& dim) const;
  bool FitsRest(const DimList& list, const Shape& shape) const;
  bool HoldsHere(const Relation& relation) const;

  // An input that has not the shape, or that breaks the relation.
  absl::Status Mismatch(int input, const Relation* broken) const;
  void AppendNames(const DimList& list, int input, std::vector<std::string>& facts) const;
  void AppendNames(const SizeExpression& size, int input, std::vector<std::string>& facts) const;

  absl::StatusOr<std::optional<Shape>> OutputShape(int output);
  absl::Status AppendOutputDims(int output, const std::vector<SizeExpression>& sizes,
                                std::vector<Dim>& dims);

  const OpDef& op_;
  const Signature& signature_;
  ShapeContext& c_;
  DeclaredSizes& sizes_;
};

}  // namespace pagefuse
