// spa chat: a conversation in the terminal; answers are drawn as they resolve.
#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <functional>

#include "base/atomic_file.h"
#include "base/counted.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/line_reader.h"
#include "cli/watch.h"
#include "engine/known_questions.h"
#include "engine/runner.h"

namespace spa::cli {
namespace {

struct ChatFlags {
  ModelFlags model;
  DecodeFlags decode;
  CacheFlags cache;
  std::string system;
  bool warm = false;
};

// Ctrl-C ends an answer, not the program.
std::atomic<bool> interrupted{false};
void OnInterrupt(int) { interrupted = true; }

struct Stopped {};

class Chat {
 public:
  Chat(Engine& engine, const ChatFlags& flags)
      : engine_(engine),
        choices_(flags.decode.Choices()),
        system_(flags.system),
        warm_(flags.warm) {
    choices_.Resolve(engine);
    SetCache(flags.cache.Spec(engine));
  }

  void Run() {
    struct sigaction action {};
    action.sa_handler = OnInterrupt;
    sigaction(SIGINT, &action, nullptr);
    if (reader_.interactive()) {
      fmt::print("{}Cache {}. /help lists commands, Ctrl-D exits.{}{}{}\n", style_.dim,
                 cache_->description,
                 engine_.config().single_turn
                     ? "\nThis model answers one question at a time: each is sent alone."
                     : "",
                 engine_.config().knows.empty() ? "" : "\nIt knows " + engine_.config().knows,
                 style_.reset);
    }
    const std::string prompt = reader_.interactive() ? "> " : "";
    size_t failed = 0;
    while (!done_) {
      std::fflush(stdout);
      interrupted = false;
      const auto line = reader_.Read(prompt);
      if (!line) break;
      try {
        Handle(*line);
      } catch (const Error& error) {
        PrintStderr("{}{}{}\n", style_.red, error.what(), style_.reset);
        ++failed;
      }
    }
    if (!reader_.interactive() && failed > 0) throw Error("lines without an answer: {}", failed);
    if (reader_.interactive() && !done_) fmt::print("\n");
  }

 private:
  struct Command {
    const char* name;
    const char* argument;
    const char* help;
    std::function<void(const std::string&)> run;
  };

  void Handle(const std::string& line) {
    const size_t first = line.find_first_not_of(" \t");
    if (first == std::string::npos) return;
    if (line[first] != '/') return Ask(line);
    const size_t space = line.find(' ', first);
    const std::string name = line.substr(first, space - first);
    const std::string argument = space == std::string::npos ? "" : line.substr(space + 1);
    for (const Command& command : Commands()) {
      if (name == command.name) return command.run(argument);
    }
    throw Error("there is no command {}: /help lists them", name);
  }

  std::vector<Command> Commands() {
    return {
        {"/help", "", "This list", [this](const std::string&) { Help(); }},
        {"/new", "", "Forget the conversation", [this](const std::string&) { Forget(); }},
        {"/undo", "", "Take back the last question", [this](const std::string&) { Undo(); }},
        {"/retry", "[SEED]", "Answer the last question again",
         [this](const std::string& seed) { Retry(seed); }},
        {"/system", "[TEXT]", "Set or clear the system message",
         [this](const std::string& text) { system_ = text; }},
        {"/cache", "NAME[:K=V...]", "Use another cache",
         [this](const std::string& text) {
           if (choices_.exact()) throw Error("exact decoding uses no cache: first /set exact off");
           SetCache(ParseCacheSpec(text));
         }},
        {"/set", "NAME VALUE", "Change a decoding option, such as gen-length or threshold",
         [this](const std::string& text) { Set(text); }},
        {"/save", "FILE", "Write the conversation to a file",
         [this](const std::string& path) { Save(path); }},
        {"/quit", "", "End", [this](const std::string&) { done_ = true; }},
    };
  }

  void Help() {
    for (const Command& command : Commands()) {
      fmt::print("{:<8} {:<14} {}\n", command.name, command.argument, command.help);
    }
    fmt::print("End a line with \\ to continue it. Ctrl-C stops an answer.\n");
  }

  void Ask(const std::string& question) {
    turns_.push_back({"user", question});
    try {
      turns_.push_back({"assistant", Answer()});
    } catch (...) {
      turns_.pop_back();  // not answered: the conversation stays as it was
      throw;
    }
  }

  std::string Answer() {
    Prompt prompt{.messages = turns_, .text = {}};
    if (engine_.config().single_turn) prompt.messages = {turns_.back()};
    CheckKnown(engine_, prompt.messages);
    if (!system_.empty()) prompt.messages.insert(prompt.messages.begin(), {"system", system_});
    const DecodeOptions options = choices_.Resolve(engine_);
    std::vector<TokenId> ids = engine_.Encode(prompt);
    if (ids.size() + options.gen_length > engine_.config().context_length) {
      throw Error(
          "the conversation has {} and the answer {}, but the model's context is {}: "
          "/new starts over, /undo takes the last question back",
          Counted(ids.size(), "token"), options.gen_length, engine_.config().context_length);
    }
    Watch watch;
    StepClock steps(options.steps);
    engine_.transformer().set_on_layer([&](size_t done, size_t layers) {
      steps.LayerDone(done, layers);
      if (reader_.interactive() && !steps.quick()) watch.DrawStatus(steps.Describe());
    });
    std::unique_ptr<Generation> generation;
    try {
      generation = RunAlone(engine_,
                            {.prompt = std::move(ids),
                             .decode = options,
                             .cache = cache_,
                             .warm_from = warm_ ? last_.get() : nullptr,
                             .prefixes = warm_ ? nullptr : &prefixes_},
                            [&](Generation& running) {
                              steps.StepDone(running.decoder().steps());
                              if (reader_.interactive()) {
                                watch.Show(engine_, running.decoder(), steps.Describe());
                              }
                              if (interrupted) throw Stopped{};
                            });
    } catch (const Stopped&) {
      engine_.transformer().set_on_layer({});
      watch.Finish();
      throw Error("stopped");
    }
    engine_.transformer().set_on_layer({});
    watch.Finish();
    std::string text = AnswerText(engine_, generation->decoder());
    PrintLine(text);
    if (reader_.interactive()) {
      const GenerationStats stats = generation->Stats();
      fmt::print("{}{:.1f} tokens/s · {} · {:.0f}% of rows{}{}\n", style_.dim,
                 stats.tokens_per_second(), Counted(stats.steps, "step"),
                 100.0 * stats.rows_fraction(),
                 stats.ended ? "" : " · cut off: /set gen-length gives more room", style_.reset);
    }
    if (warm_) {
      last_ = std::move(generation);
    } else {
      prefixes_.Keep(std::move(generation), engine_.pool());
    }
    return text;
  }

  void Forget() {
    turns_.clear();
    last_.reset();  // its states belong to the old conversation
  }

  std::string Undo() {
    if (turns_.size() < 2) throw Error("there is nothing to take back");
    std::string question = std::move(turns_[turns_.size() - 2].content);
    turns_.resize(turns_.size() - 2);
    return question;
  }

  void Retry(const std::string& seed) {
    if (!seed.empty()) Set("seed " + seed);
    const std::vector<ChatMessage> before = turns_;
    try {
      Ask(Undo());
    } catch (...) {
      turns_ = before;
      throw;
    }
  }

  void SetCache(const CacheSpec& spec) {
    ProgressBar bar;
    engine_.set_progress([&](std::string_view what, double share) { bar.Show(what, share); });
    cache_ = engine_.PrepareCache(spec, {.warm = warm_});
    engine_.set_progress({});
    last_.reset();
  }

  void Set(const std::string& text) {
    const size_t space = text.find(' ');
    const std::string key = text.substr(0, space);
    if (space == std::string::npos) {
      throw Error("/set needs a name and a value, such as: /set gen-length 64");
    }
    DecodeChoices next = choices_;
    next.Set(key, text.substr(space + 1));
    next.Resolve(engine_);  // throws if the options contradict each other
    choices_ = next;
  }

  void Save(const std::string& path) {
    if (path.empty()) throw Error("/save needs the name of a file");
    std::string text;
    for (const ChatMessage& turn : turns_) {
      text += fmt::format("{}: {}\n\n", turn.role, turn.content);
    }
    AtomicFile out(path);
    out.Write(text.data(), text.size());
    out.Commit();
  }

  Engine& engine_;
  DecodeChoices choices_;
  std::string system_;
  bool warm_;
  SharedCache cache_;
  std::vector<ChatMessage> turns_;
  std::unique_ptr<Generation> last_;       // what the next answer starts warm from
  PrefixStore prefixes_{size_t{1} << 30};  // what it need not compute again
  LineReader reader_;
  Style style_{StdoutIsTerminal()};
  bool done_ = false;
};

}  // namespace

void AddChat(CommandLine& line) {
  auto flags = std::make_shared<ChatFlags>();
  Command command = line.Add("chat", "Talk to the model in the terminal");
  command.Add("--system", flags->system, "System message").Type("TEXT");
  command.Add("--warm", flags->warm,
              "Start each answer from the states of the last one instead of recomputing the "
              "conversation; an approximation, with --cache spa");
  flags->model.Add(command);
  flags->decode.Add(command);
  flags->cache.Add(command);
  command.Footer(
      "Examples:\n"
      "  spa chat\n"
      "  spa chat -m LLaDA-8B-Instruct-Q4_0.gguf -n 256 --threshold 0.9\n"
      "  echo 'not ( True ) is' | spa chat");
  command.Action([flags] {
    flags->cache.Check(flags->decode.Choices());
    const auto engine = flags->model.Load();
    Chat(*engine, *flags).Run();
  });
}

}  // namespace spa::cli
