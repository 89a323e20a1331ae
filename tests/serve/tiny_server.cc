// SPDX-License-Identifier: Apache-2.0
#include "tiny_server.h"

#include "must.h"
#include "raw_client.h"
#include "tiny_decoder.h"
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {

void StepGate::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

void StepGate::Open() {
  const std::lock_guard lock(mutex_);
  closed_ = false;
  opened_.notify_all();
}

absl::Status StepGate::Pass() {
  {
    std::unique_lock lock(mutex_);
    waits_ = closed_;
    opened_.wait(lock, [this] { return !closed_; });
    waits_ = false;
  }
  if (failing_ > 0 && failing_-- > 0) return absl::InternalError("the step was told to fail");
  return absl::OkStatus();
}

bool StepGate::waits() {
  const std::lock_guard lock(mutex_);
  return waits_;
}

std::unique_ptr<Decoder> TinyEngine(EngineOptions options) {
  options.block_size = 4;
  if (options.cache_tokens == 0) options.cache_tokens = 400;
  options.rereads = false;
  return Must(Decoder::Create([] { return absl::StatusOr<Model>(TinyDecoder()); }, options,
                              {.require_paged = true, .check_paging = CheckPaging::kNever}));
}

TinyServer::TinyServer(ServeOptions options, EngineOptions engine)
    : log_(Log::Form::kJson, [this](std::string_view line) {
        const std::lock_guard lock(mutex_);
        text_ += line;
      }) {
  options.port = 0;
  server_ = Must(Server::Listen(options, &log_));
  engine.on_step = [this](const EngineStep&) { return gate_.Pass(); };
  ServedModel model;
  model.name = "tiny";
  model.tokenizer = Must(Tokenizer::OfBytes());
  model.config.max_positions = 200;
  model.decoder = TinyEngine(engine);
  model.fingerprint = "f";
  server_->Serve(std::move(model));
}

TinyServer::~TinyServer() { gate_.Open(); }

std::string TinyServer::log() {
  const std::lock_guard lock(mutex_);
  return text_;
}

TinyReply TinyServer::Call(const std::string& path, const std::string& body) {
  TinyReply reply;
  const HttpAnswer answer =
      Must(HttpCall(StrCat("http://127.0.0.1:", port(), path),
                    {{"Content-Type", "application/json"}}, body, [&reply](std::string_view piece) {
                      reply.text += piece;
                      return true;
                    }));
  reply.status = answer.status;
  reply.headers = answer.headers;
  if (!reply.text.starts_with("data: ")) {
    reply.json = TestJson::parse(reply.text, nullptr, /*allow_exceptions=*/false);
    return reply;
  }
  for (size_t begin = 0; begin < reply.text.size();) {
    const size_t end = reply.text.find("\n\n", begin);
    const std::string data = reply.text.substr(begin + 6, end - begin - 6);
    if (data == "[DONE]") {
      reply.done = true;
    } else {
      reply.events.push_back(TestJson::parse(data));
    }
    begin = end + 2;
  }
  return reply;
}

TinyReply TinyServer::Post(const std::string& path, const TestJson& body) {
  return Call(path, body.dump());
}

TinyReply TinyServer::Get(const std::string& path) { return Call(path, ""); }

double TinyServer::Metric(const std::string& name, const std::string& labels) {
  const std::string text = Get("/metrics").text;
  const std::string key = StrCat("\npagefuse:", name, "{model_name=\"tiny\"", labels, "} ");
  const size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::stod(text.substr(at + key.size()));
}

bool TinyServer::BecomesIdle() {
  return Becomes([this] {
    return Metric("num_requests_running") == 0 && Metric("num_requests_waiting") == 0 &&
           Metric("pages", ",state=\"held\"") == 0;
  });
}

}  // namespace pagefuse::serve
