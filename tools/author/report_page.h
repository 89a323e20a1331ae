// SPDX-License-Identifier: Apache-2.0
// Writes a report as one HTML page that needs nothing from outside.
#pragma once

#include <string>

#include "tools/author/report_data.h"

namespace pagefuse::tools {

// HTML with `data` (report_data.h) embedded as JSON in the element "report". Graphs of more nodes
// than kMostListed are not listed.
std::string ReportPage(const ReportSource& source, const ReportJson& data);
inline constexpr int64_t kMostListed = 3000;

}  // namespace pagefuse::tools
