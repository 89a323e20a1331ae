// SPDX-License-Identifier: Apache-2.0
// The models that the fuzzer starts from.
#pragma once

#include <string>
#include <vector>

#include "random.h"
#include <onnx/onnx_pb.h>

namespace pagefuse::fuzz {

class SeedModels {
 public:
  // Reads the .onnx and .onnxtxt files below the folders. Types of inner values are inferred, so
  // that a cut through a graph has typed ends. Each folder is picked from equally often.
  explicit SeedModels(const std::vector<std::string>& folders);

  // A small model, a run of nodes out of a large one, or now and then a large one.
  onnx::ModelProto Pick(Random& random) const;
  // A node of any model.
  const onnx::NodeProto* PickNode(Random& random) const;
  size_t size() const;

 private:
  using Models = std::vector<onnx::ModelProto>;
  std::vector<Models> small_;  // by folder
  Models large_;
};

}  // namespace pagefuse::fuzz
