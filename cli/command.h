// Subcommands and their flags: a thin layer over CLI11, whose header costs seconds in every file
// that includes it. Only command.cc does.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace spa::cli {

// The declarations, for man pages and completions.
struct FlagInfo {
  std::vector<std::string> names;  // with their dashes; none if positional
  std::string positional;
  std::string value;  // what the help calls its value; empty for a switch
  std::string help;
  std::string group;
  std::vector<std::string> choices;  // empty: anything
  bool required = false;
};
struct CommandInfo {
  std::string name, description, footer;
  std::vector<FlagInfo> flags;
};
struct LineInfo {
  std::string description;
  std::vector<CommandInfo> commands;  // without hidden ones
};

// A flag while it is declared.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  Flag& Type(const std::string& name);   // what the help calls its value
  Flag& Group(const std::string& name);  // the heading it has in the help
  Flag& Required();
  Flag& Between(int least, int most);
  Flag& Between(double least, double most);
  Flag& Positive();
  Flag& OneOf(const std::vector<std::string>& values);
  Flag& NotEmpty();
  Flag& OnOff();                     // without a value: on
  Flag& ExistingFile();              // or - for stdin
  Flag& Without(const Flag& other);  // not both
  Flag& With(const Flag& other);     // not without it

 private:
  CLI::Option* option_;
};

// A subcommand while it is declared.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // A flag whose value goes to `to`, which must live as long as the action; names without dashes
  // are positional, a bool takes no value. T: bool, int, size_t, double, std::string,
  // std::optional of the last three, or std::vector<std::string>.
  template <typename T>
  Flag Add(const std::string& names, T& to, const std::string& help);

  void Footer(const std::string& text);
  void Hide();  // not in the help
  // What the command does; it throws spa::Error when it fails.
  void Action(std::function<void()> action);

 private:
  CLI::App* app_;
};

class CommandLine {
 public:
  CommandLine(const std::string& description, const std::string& version,
              const std::string& footer);
  ~CommandLine();

  Command Add(const std::string& name, const std::string& description);
  LineInfo Describe() const;

  // Runs the named command. Returns the exit code: 0, or 2 after printing what is wrong with the
  // arguments.
  int Run(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

// For a switch.
template <>
Flag Command::Add(const std::string& names, bool& to, const std::string& help);

}  // namespace spa::cli
