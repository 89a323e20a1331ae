// SPDX-License-Identifier: Apache-2.0
// The inputs of `pagefuse run`: from files, from the command line, and made up.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse::tools {

// What -i says: `[NAME=]FILE` with a .pb, .npy or .npz, told apart by their content, or `NAME=VALUE` with
// numbers as JSON writes them; one number fills the whole input.
class RunFeeds {
 public:
  // Errors name the argument, and similar names where the model has no such input.
  static absl::StatusOr<RunFeeds> Read(const std::vector<std::string>& arguments,
                                       const Model& model);

  // All inputs; `attempt` and `seed` as RandomFeeds takes them. Without a seed InvalidArgument names the
  // first input that is not given.
  absl::StatusOr<std::map<std::string, Tensor>> Make(std::optional<int> seed, int attempt) const;

 private:
  explicit RunFeeds(Model model) : model_(std::move(model)) {}

  absl::Status Add(const std::string& argument);
  absl::Status AddFile(const std::string& name, const std::string& path);
  absl::Status AddValue(const std::string& name, const std::string& text);
  absl::Status CheckNew(const std::string& name) const;
  absl::Status Give(const std::string& name, Tensor tensor);
  absl::StatusOr<const Value*> Input(const std::string& name) const;
  // Writes the sizes that what is given has into the shapes of the other inputs.
  void BindSizes();
  absl::Status Fill();

  Model model_;  // its inputs alone are looked at
  std::map<std::string, Tensor> given_;
  std::map<std::string, double> fills_;  // inputs of one number everywhere
};

}  // namespace pagefuse::tools
