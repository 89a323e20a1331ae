// SPDX-License-Identifier: Apache-2.0
// template_lines CONVERSATIONS TEMPLATE...: what our own templates make of conversations, as render_templates.py writes it, with the
// errors on the error stream. For templates.mjs.
#include <fstream>
#include <iostream>
#include <iterator>

#include "nlohmann/json.hpp"
#include "tests/text/render_now.h"

#include "pagefuse/text/template/chat_template.h"

int main(int argc, char** argv) {
  if (argc < 2) return 1;
  std::ifstream conversations_file(argv[1]);
  const auto conversations = nlohmann::ordered_json::parse(conversations_file);
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (int i = 2; i < argc; ++i) {
    std::ifstream file(argv[i]);
    const std::string source((std::istreambuf_iterator<char>(file)),
                             std::istreambuf_iterator<char>());
    const auto chat_template = pagefuse::ChatTemplate::Parse(source);
    if (!chat_template.ok())
      std::cerr << argv[i] << ": " << chat_template.status().message() << "\n";
    auto& texts = out.emplace_back(nlohmann::ordered_json::array());
    for (const auto& conversation : conversations) {
      auto rendered = chat_template.ok() ? (*chat_template)
                                               ->Render(pagefuse::OwnVariables(), conversation,
                                                        pagefuse::RenderTime())
                                         : chat_template.status();
      if (rendered.ok()) {
        texts.push_back(rendered->text);
      } else {
        texts.push_back(nullptr);
        std::cerr << argv[i] << ", " << texts.size() - 1 << ": " << rendered.status().message()
                  << "\n";
      }
    }
  }
  std::cout << out.dump() << "\n";
  return 0;
}
