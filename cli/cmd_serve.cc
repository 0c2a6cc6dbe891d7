// spa serve: the OpenAI-compatible server and its page.
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "engine/memory.h"
#include "lab/compare.h"
#include "server/http_checks.h"
#include "server/server.h"

namespace spa::cli {
namespace {

struct ServeFlags {
  ModelFlags model;
  CacheFlags cache;
  ServerOptions server;
  std::string key, key_file, memory, prefix_memory;
  double grace = 10.0;
  double request_time = 0.0;
  bool no_key = false, quiet = false;
};

std::vector<std::string> ReadKeys(const ServeFlags& flags) {
  std::vector<std::string> keys;
  if (!flags.key.empty()) keys.push_back(flags.key);
  if (const char* key = std::getenv("SPA_API_KEY"); key != nullptr && *key != '\0') {
    keys.emplace_back(key);
  }
  if (flags.key_file.empty()) return keys;
  std::istringstream lines(ReadText(flags.key_file));
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
    if (!line.empty()) keys.push_back(line);
  }
  if (keys.empty()) throw Error("{} holds no key", flags.key_file);
  return keys;
}

std::vector<std::string> Examples(const ServeFlags& flags) {
  if (!flags.model.model.empty()) {
    return {"Why is the sky blue?", "Write a haiku about the sea.",
            "A train leaves at 9:40 and arrives at 12:05. How long is the ride?"};
  }
  std::vector<std::string> examples;
  for (const Question& question : BuiltInQuestions()) examples.push_back(question.text);
  return examples;
}

// Waits for a signal to shut down. Signals must be blocked in all threads.
int WaitForSignal(const sigset_t& signals) {
  int signal = 0;
  while (sigwait(&signals, &signal) != 0) {
  }
  return signal;
}

// Memory for requests, besides the model.
size_t MemoryForRequests(const ServeFlags& flags) {
  if (flags.memory.empty()) return AvailableMemory() / 10 * 9;  // leave a tenth to others
  const size_t all = ParseBytes(flags.memory), used = ResidentBytes();
  if (all <= used) {
    throw Error("the model alone takes {}: --memory must be more", FormatBytes(used));
  }
  return all - used;
}

// For prefixes of finished requests.
size_t PrefixMemory(const ServeFlags& flags) {
  constexpr size_t kStandard = 1'000'000'000;
  if (flags.prefix_memory.empty()) return kStandard;
  return flags.prefix_memory == "0" ? 0 : ParseBytes(flags.prefix_memory);
}

void RunServe(ServeFlags flags) {
  ServerOptions& options = flags.server;
  // Checked before the model is loaded.
  if (!flags.memory.empty()) ParseBytes(flags.memory);
  const size_t prefix_memory = PrefixMemory(flags);
  flags.cache.Check();
  options.api_keys = ReadKeys(flags);
  if (!IsLoopback(options.host) && options.api_keys.empty() && !flags.no_key) {
    throw Error("{} can be reached by others: set --api-key, or --no-key to serve everybody",
                options.host);
  }
  // Before any thread exists, so that all of them inherit the blocked signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const auto engine = flags.model.Load();
  if (options.model_id.empty()) {
    options.model_id =
        flags.model.model.empty()
            ? "minillada"
            : std::filesystem::path(flags.model.model).lexically_normal().stem().string();
  }
  options.cache = flags.cache.Spec(*engine);
  options.examples = Examples(flags);
  options.version = SPA_VERSION;
  options.request_time = std::chrono::milliseconds(static_cast<int64_t>(flags.request_time * 1e3));
  // One thread per connection; waiting threads cost almost nothing.
  options.listener.connections = options.scheduler.parallel + options.scheduler.queue + 448;
  std::mutex log_mutex;
  if (!flags.quiet) {
    options.log = [&](const std::string& line) {
      const std::lock_guard lock(log_mutex);
      PrintStderr("{}\n", line);
    };
  }
  SharedCache cache;
  {
    // Computes missing proxies, with a progress bar.
    ProgressBar bar;
    engine->set_progress([&](std::string_view what, double share) { bar.Show(what, share); });
    cache = engine->PrepareCache(options.cache);
    engine->set_progress({});
  }
  options.scheduler.memory = MemoryForRequests(flags);
  options.scheduler.prefix_memory = prefix_memory;
  std::mutex changed_mutex;
  std::string changed;  // why the server must stop
  options.scheduler.on_model_changed = [&](const std::string& message) {
    const std::lock_guard lock(changed_mutex);
    if (std::exchange(changed, message).empty()) kill(getpid(), SIGTERM);
  };
  Server server(*engine, options, cache);
  const bool v6 = options.host.find(':') != std::string::npos;
  PrintLine(fmt::format("{} on http://{}:{}  (page: /, API: /v1, cache: {}; Ctrl-C ends)",
                        options.model_id, v6 ? "[" + options.host + "]" : options.host,
                        server.port(), options.cache.ToString()));
  WaitForSignal(signals);
  const auto model_changed = [&] {
    const std::lock_guard lock(changed_mutex);
    return changed;
  };
  if (!model_changed().empty()) {
    server.Shutdown(std::chrono::milliseconds(0));
    throw Error("{}", model_changed());
  }
  PrintStderr("spa: finishing running requests, {:.0f} s at most; a second signal stops at once\n",
              flags.grace);
  std::thread([signals] {
    WaitForSignal(signals);
    _exit(130);
  }).detach();
  server.Shutdown(std::chrono::milliseconds(static_cast<int64_t>(flags.grace * 1e3)));
}

}  // namespace

void AddServe(CommandLine& line) {
  auto flags = std::make_shared<ServeFlags>();
  Command command = line.Add("serve", "OpenAI-compatible server with a web page");
  ServerOptions& server = flags->server;
  command.Add("--host", server.host, "Address to listen on (default 127.0.0.1)").Type("ADDR");
  command.Add("--port", server.port, "Port (default 8080; 0: any free one)")
      .Between(0, 65535)
      .Type("N");
  command.Add("--model-name", server.model_id, "Name of the model in the API").Type("NAME");
  command.Add("--parallel", server.scheduler.parallel, "Answers computed together (default 4)")
      .Between(1, 256)
      .Type("N");
  command
      .Add("--queue", server.scheduler.queue,
           "Answers that may wait; further ones get 429 (default 64)")
      .Between(1, 4096)
      .Type("N");
  command
      .Add("--max-tokens", server.limits.max_tokens,
           "Longest answer a request may ask for (default: the context)")
      .Positive()
      .Type("N");
  command
      .Add("--max-prompt", server.limits.max_prompt_tokens,
           "Longest prompt in tokens (default: the context)")
      .Positive()
      .Type("N");
  command
      .Add("--memory", flags->memory,
           "Memory limit of the server, model included, such as 2G (default: nine tenths of what "
           "is free)")
      .Type("BYTES");
  command
      .Add("--prefix-memory", flags->prefix_memory,
           "Part of --memory for keys and values that later requests with the same beginning "
           "reuse (block attention only); 0: none (default 1G)")
      .Type("BYTES");
  command.Add("--lenient", server.limits.lenient,
              "Ignore unknown request fields and name them in a header");
  command
      .Add("--request-time", flags->request_time,
           "Seconds a request may take, waiting included (default: no limit)")
      .Between(0.0, 1e6)
      .Type("S");
  command
      .Add("--grace", flags->grace,
           "Seconds that running requests get after a signal to stop (default 10)")
      .Between(0.0, 1e5)
      .Type("S");
  const Flag key =
      command.Add("--api-key", flags->key, "Key that clients must send (or set SPA_API_KEY)")
          .Type("KEY");
  const Flag key_file =
      command.Add("--api-key-file", flags->key_file, "File with one key per line").Type("FILE");
  command.Add("--no-key", flags->no_key, "Listen on a public address without a key")
      .Without(key)
      .Without(key_file);
  command
      .Add("--cors-origin", server.origins,
           "Web origin that may call the API; * for all; may be repeated")
      .Type("URL");
  command.Add("--quiet", flags->quiet, "Log no requests on stderr");
  flags->model.Add(command);
  flags->cache.Add(command);
  command.Footer(
      "Examples:\n"
      "  spa serve\n"
      "  spa serve -m LLaDA-8B-Instruct-Q4_0.gguf --port 8000 --parallel 8\n"
      "  curl localhost:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"messages\":[{\"role\":\"user\",\"content\":\"not ( True ) is\"}]}'");
  command.Action([flags] { RunServe(*flags); });
}

}  // namespace spa::cli
