#include "cli/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>

namespace spa::cli {

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
  option_->check(CLI::IsMember(values));
  return *this;
}

template <typename T>
Flag Command::Add(const std::string& names, T& to, const std::string& help) {
  return Flag(app_->add_option(names, to, help));
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

void Command::Action(std::function<void()> action) { app_->callback(std::move(action)); }

CommandLine::CommandLine(const std::string& description, const std::string& version,
                         const std::string& footer)
    : app_(std::make_unique<CLI::App>(description)) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
  app_->fallthrough(false);
  app_->footer(footer);
}

CommandLine::~CommandLine() = default;

Command CommandLine::Add(const std::string& name, const std::string& description) {
  return Command(app_->add_subcommand(name, description));
}

int CommandLine::Run(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error);  // --help, --version
    const auto commands = app_->get_subcommands();
    fmt::print(stderr, "spa: {}\nTry: spa {}--help\n", error.what(),
               commands.empty() ? "" : commands.front()->get_name() + " ");
    return 2;
  }
}

}  // namespace spa::cli
