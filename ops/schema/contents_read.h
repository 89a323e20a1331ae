// SPDX-License-Identifier: Apache-2.0
// Records which contents of tensors an inference asked for, since its answer depends on them
// besides types and shapes.
#pragma once

#include <cstddef>
#include <vector>

namespace pagefuse {

// While one lives, notes the inputs whose contents this thread's inference asks a ShapeContext for.
// Of such scopes in scopes the innermost notes.
class ContentsRead {
 public:
  explicit ContentsRead(size_t num_inputs);
  ~ContentsRead();
  ContentsRead(const ContentsRead&) = delete;
  ContentsRead& operator=(const ContentsRead&) = delete;

  bool contains(size_t input) const { return inputs_[input]; }

  // For ShapeContext.
  static void Note(int input);

 private:
  std::vector<bool> inputs_;
  ContentsRead* const outer_;
};

}  // namespace pagefuse
