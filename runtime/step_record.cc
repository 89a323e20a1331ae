// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/step_record.h"

#include <algorithm>
#include <cstring>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {

void StepRecord::Clear() {
  fields_.clear();
  size_ = 0;
  if (buffer_.use_count() > 1) buffer_ = nullptr;
}

absl::Status StepRecord::Grow(size_t size) {
  if (buffer_ && size <= buffer_->size()) return absl::OkStatus();
  const size_t now = buffer_ ? buffer_->size() : 0;
  PF_ASSIGN_OR_RETURN(auto larger, Buffer::Allocate(std::max(size, 2 * now)));
  std::ranges::copy(bytes(), larger->data());
  buffer_ = std::move(larger);
  return absl::OkStatus();
}

absl::Status StepRecord::Append(Field field, std::span<const std::byte> values) {
  PF_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(field.dtype, field.dims));
  if (bytes != static_cast<int64_t>(values.size())) {
    return absl::InvalidArgumentError(StrCat("input \"", field.input, "\" of a step: expected ",
                                             bytes, " bytes for ", DimsToString(field.dims),
                                             ", got ", values.size()));
  }
  field.offset = (size_ + kAlignment - 1) / kAlignment * kAlignment;
  PF_RETURN_IF_ERROR(Grow(field.offset + values.size()));
  std::fill(buffer_->data() + size_, buffer_->data() + field.offset, std::byte{0});
  std::ranges::copy(values, buffer_->data() + field.offset);
  size_ = field.offset + values.size();
  fields_.push_back(std::move(field));
  return absl::OkStatus();
}

absl::Status StepRecord::Fill(std::string_view input, std::span<const int64_t> values) {
  const auto field = std::ranges::find(fields_, input, &Field::input);
  if (field == fields_.end() || field->dtype != DataType::kInt64 ||
      ByteSize(field->dtype, field->dims).value_or(-1) !=
          static_cast<int64_t>(values.size_bytes())) {
    return absl::InvalidArgumentError(StrCat("input \"", input,
                                             "\" of a step: expected a field of ", values.size(),
                                             " int64, the record has none"));
  }
  std::ranges::copy(std::as_bytes(values), buffer_->data() + field->offset);
  return absl::OkStatus();
}

absl::Status StepRecord::AddFeeds(const std::shared_ptr<Buffer>& memory,
                                  std::map<std::string, Tensor>& feeds) const {
  for (const Field& field : fields_) {
    PF_ASSIGN_OR_RETURN(feeds[field.input],
                        Tensor::View(field.dtype, field.dims, memory, field.offset));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
