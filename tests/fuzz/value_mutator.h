// SPDX-License-Identifier: Apache-2.0
// Mutations of what a model holds besides its edges: numbers, types, tensors, attributes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "random.h"
#include <onnx/onnx_pb.h>

namespace pagefuse::fuzz {

// A number that breaks code: near a power of two, at an end of a type, negative; mostly a small
// one, so that what reads it still runs.
int64_t OddInt(Random& random);
float OddFloat(Random& random);
std::string OddName(Random& random, const std::vector<std::string>& names);

// Repeats or cuts the data to what the dims say, where that is little.
void FitData(onnx::TensorProto& tensor);
void MutateTensor(Random& random, onnx::TensorProto& tensor);
// Element type, a dim, the rank, or whether there is a shape.
void MutateType(Random& random, onnx::TypeProto& type);
void MutateAttribute(Random& random, onnx::AttributeProto& attribute);
// Flips, cuts, repeats.
void MutateBytes(Random& random, std::string& bytes);

}  // namespace pagefuse::fuzz
