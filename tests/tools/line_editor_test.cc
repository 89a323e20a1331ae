// SPDX-License-Identifier: Apache-2.0
// Ctrl-C at any moment of a line that is typed. The terminal is a pair of pseudo terminals.
#include "tools/cli/line_editor.h"

#include <csignal>
#include <string>
#include <string_view>
#include <thread>

#include <pty.h>
#include <unistd.h>

#include "tools/cli/interrupt.h"
#include <gtest/gtest.h>

namespace pagefuse::tools {
namespace {

using Result = LineEditor::Result;

// Takes the places of the standard input and of the error stream.
class OnTerminal : public testing::Test {
 protected:
  void SetUp() override {
    int slave = -1;
    ASSERT_EQ(openpty(&keys_, &slave, nullptr, nullptr, nullptr), 0);
    input_ = dup(STDIN_FILENO);
    errors_ = dup(STDERR_FILENO);
    dup2(slave, STDIN_FILENO);
    dup2(slave, STDERR_FILENO);
    close(slave);
  }
  void TearDown() override {
    dup2(input_, STDIN_FILENO);
    dup2(errors_, STDERR_FILENO);
    for (const int file : {input_, errors_, keys_}) close(file);
  }
  void Type(std::string_view text) {
    ASSERT_EQ(write(keys_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

 private:
  int keys_ = -1, input_ = -1, errors_ = -1;
};

TEST_F(OnTerminal, AnInterruptBeforeTheReadIsNotLost) {
  const InterruptCatcher catcher;
  LineEditor lines({});
  ASSERT_TRUE(lines.terminal());
  std::string line;
  raise(SIGINT);
  Type("a question\n");
  EXPECT_EQ(lines.Read(line), Result::kInterrupted);
  EXPECT_FALSE(InterruptCatcher::Pending());
  EXPECT_EQ(lines.Read(line), Result::kLine);
  EXPECT_EQ(line, "a question");
}

TEST_F(OnTerminal, AnInterruptThatAnotherThreadGetsEndsTheRead) {
  const InterruptCatcher catcher;
  std::jthread other([] { raise(SIGINT); });  // of this thread alone
  EXPECT_FALSE(InterruptCatcher::WaitToRead(STDIN_FILENO));
  other.join();
  EXPECT_TRUE(InterruptCatcher::Take());
  Type("x\n");
  EXPECT_TRUE(InterruptCatcher::WaitToRead(STDIN_FILENO));
}

}  // namespace
}  // namespace pagefuse::tools
