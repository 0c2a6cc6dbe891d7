#include "cli/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/options.h"
#include "cli/terminal.h"

namespace spa::cli {
namespace {

// The choices of OneOf; CLI11 keeps only the function that checks them.
std::map<const CLI::Option*, std::vector<std::string>>& Choices() {
  static std::map<const CLI::Option*, std::vector<std::string>> choices;
  return choices;
}

// Flags that may stand alone.
std::set<const CLI::Option*>& OnOffFlags() {
  static std::set<const CLI::Option*> flags;
  return flags;
}

bool IsOnOff(const std::string& text) {
  try {
    ParseOption(OptionInfo::Flag("", "", ""), text);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Writes the `on` out that a flag standing alone means. CLI11 would take any argument after it for
// its value.
void WriteOn(const CLI::App& command, std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const CLI::Option* option = command.get_option_no_throw(arguments[i]);
    if (option == nullptr || !OnOffFlags().contains(option)) continue;
    if (i + 1 == arguments.size() || !IsOnOff(arguments[i + 1])) {
      arguments.insert(arguments.begin() + static_cast<ptrdiff_t>(i) + 1, "on");
    }
  }
}

FlagInfo Describe(const CLI::Option& option) {
  FlagInfo info;
  for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
  if (option.get_positional()) info.positional = option.get_name(true);
  // CLI11 appends its check after a colon.
  if (option.get_items_expected_max() > 0) {
    info.value = option.get_type_name().substr(0, option.get_type_name().find(':'));
  }
  info.help = option.get_description();
  info.group = option.get_group();
  info.required = option.get_required();
  if (const auto found = Choices().find(&option); found != Choices().end()) {
    info.choices = found->second;
  }
  return info;
}

// For the first unknown flag: the one it may be a misspelling of.
std::string Suggestion(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const std::string& argument : command.remaining()) {
    if (argument.starts_with("--"))
      return DidYouMean(argument.substr(0, argument.find('=')), names);
  }
  return "";
}

}  // namespace

Flag& Flag::Type(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Flag& Flag::Group(const std::string& name) {
  option_->group(name);
  return *this;
}

Flag& Flag::Required() {
  option_->required();
  return *this;
}

Flag& Flag::Between(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Flag& Flag::Between(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Flag& Flag::Positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

Flag& Flag::OneOf(const std::vector<std::string>& values) {
  Choices()[option_] = values;
  option_->check([values](const std::string& text) {
    if (std::ranges::find(values, text) != values.end()) return std::string();
    return fmt::format("there is no '{}'{}: choose from {}", text, DidYouMean(text, values),
                       fmt::join(values, ", "));
  });
  return *this;
}

Flag& Flag::NotEmpty() {
  option_->check([](const std::string& text) {
    return text.empty() ? std::string("the value is empty") : std::string();
  });
  return *this;
}

Flag& Flag::OnOff() {
  OnOffFlags().insert(option_);
  return *this;
}

Flag& Flag::ExistingFile() {
  option_->check([](const std::string& text) {
    return text == "-" ? std::string() : CLI::ExistingFile(text);
  });
  return *this;
}

Flag& Flag::Without(const Flag& other) {
  option_->excludes(other.option_);
  return *this;
}

Flag& Flag::With(const Flag& other) {
  option_->needs(other.option_);
  return *this;
}

template <typename T>
Flag Command::Add(const std::string& names, T& to, const std::string& help) {
  CLI::Option* option = app_->add_option(names, to, help);
  if constexpr (std::is_same_v<T, size_t> || std::is_same_v<T, std::optional<size_t>>) {
    // CLI11 lets a negative number wrap around.
    option->check([](const std::string& text) {
      size_t number = 0;
      const char* end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data(), end, number);
      return error == std::errc() && stop == end
                 ? std::string()
                 : fmt::format("'{}' is not a whole number from 0 on", text);
    });
  }
  return Flag(option);
}

template <>
Flag Command::Add(const std::string& names, bool& to, const std::string& help) {
  return Flag(app_->add_flag(names, to, help));
}

template Flag Command::Add(const std::string&, int&, const std::string&);
template Flag Command::Add(const std::string&, size_t&, const std::string&);
template Flag Command::Add(const std::string&, double&, const std::string&);
template Flag Command::Add(const std::string&, std::string&, const std::string&);
template Flag Command::Add(const std::string&, std::vector<std::string>&, const std::string&);
template Flag Command::Add(const std::string&, std::optional<size_t>&, const std::string&);
template Flag Command::Add(const std::string&, std::optional<double>&, const std::string&);
template Flag Command::Add(const std::string&, std::optional<std::string>&, const std::string&);

void Command::Footer(const std::string& text) { app_->footer(text); }

void Command::Hide() { app_->group(""); }

void Command::Action(std::function<void()> action) { app_->callback(std::move(action)); }

CommandLine::CommandLine(const std::string& description, const std::string& version,
                         const std::string& footer)
    : app_(std::make_unique<CLI::App>(description, "spa")) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
  app_->fallthrough(false);
  app_->footer(footer);
}

CommandLine::~CommandLine() = default;

Command CommandLine::Add(const std::string& name, const std::string& description) {
  return Command(app_->add_subcommand(name, description));
}

LineInfo CommandLine::Describe() const {
  LineInfo line{.description = app_->get_description(), .commands = {}};
  for (const CLI::App* app : std::as_const(*app_).get_subcommands({})) {
    if (app->get_group().empty()) continue;
    CommandInfo command{.name = app->get_name(),
                        .description = app->get_description(),
                        .footer = app->get_footer(),
                        .flags = {}};
    for (const CLI::Option* option : app->get_options()) {
      command.flags.push_back(cli::Describe(*option));
    }
    line.commands.push_back(std::move(command));
  }
  return line;
}

int CommandLine::Run(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments[0] == "help") {  // spa help [COMMAND]
    arguments.erase(arguments.begin());
    arguments.push_back("--help");
  }
  const auto named = [&](CLI::App* command) { return command->get_name() == arguments[0]; };
  if (!arguments.empty() && !arguments[0].starts_with("-") &&
      app_->get_subcommands(named).empty()) {
    std::vector<std::string> names = {"help"};
    for (const CommandInfo& command : Describe().commands) names.push_back(command.name);
    PrintStderr("spa: there is no command '{}'{} (try: spa --help)\n", arguments[0],
                DidYouMean(arguments[0], names));
    return 2;
  }
  if (!arguments.empty()) {
    for (const CLI::App* command : app_->get_subcommands(named)) WriteOn(*command, arguments);
  }
  std::ranges::reverse(arguments);  // as CLI11 expects them
  try {
    app_->parse(arguments);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error);  // --help, --version
    const auto commands = app_->get_subcommands();
    const CLI::App& command = commands.empty() ? *app_ : *commands.front();
    PrintStderr("spa: {}{} (try: spa {}--help)\n", error.what(), Suggestion(command),
                commands.empty() ? "" : command.get_name() + " ");
    return 2;
  }
}

}  // namespace spa::cli
