// spa reference: writes man pages and shell completions from the declarations of the commands. The
// build calls it; it is not listed in the help.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/atomic_file.h"
#include "cli/commands.h"

namespace spa::cli {
namespace {

std::string Replace(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

bool TakesFile(const FlagInfo& flag) {
  return flag.value.starts_with("FILE") || flag.value == "PATH" || flag.value == "MODEL";
}

// --- man pages ---

std::string Roff(const std::string& text) {
  std::string safe = Replace(Replace(text, "\\", "\\e"), "-", "\\-");
  // A line must not begin with a roff request.
  safe = Replace("\n" + safe, "\n.", "\n\\&.");
  return Replace(safe, "\n'", "\n\\&'").substr(1);
}

std::string Names(const FlagInfo& flag) {
  const std::string names =
      flag.positional.empty() ? fmt::format("{}", fmt::join(flag.names, ", ")) : flag.positional;
  return flag.value.empty() || !flag.positional.empty() ? names : names + " " + flag.value;
}

std::string Head(const std::string& name, const std::string& description) {
  return fmt::format(".TH {} 1 \"\" \"spa {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n",
                     Roff(name), SPA_VERSION, Roff(name), Roff(description));
}

std::string CommandPage(const CommandInfo& command) {
  std::string page = Head("spa-" + command.name, command.description);
  page += fmt::format(".SH SYNOPSIS\n.B spa {}\n[OPTIONS]", command.name);
  for (const FlagInfo& flag : command.flags) {
    if (flag.positional.empty()) continue;
    page += flag.required ? " " + flag.positional : " [" + flag.positional + "]";
  }
  page += "\n";
  std::vector<std::string> groups;
  for (const FlagInfo& flag : command.flags) {
    if (std::ranges::find(groups, flag.group) == groups.end()) groups.push_back(flag.group);
  }
  for (const std::string& group : groups) {
    page += fmt::format(".SH {}\n", Roff(group));
    for (const FlagInfo& flag : command.flags) {
      if (flag.group != group) continue;
      page += fmt::format(".TP\n.B {}\n{}\n", Roff(Names(flag)), Roff(flag.help));
      if (!flag.choices.empty()) {
        page += Roff(fmt::format("One of: {}.\n", fmt::join(flag.choices, ", ")));
      }
    }
  }
  if (!command.footer.empty()) {
    page += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", Roff(command.footer));
  }
  return page + ".SH SEE ALSO\n.BR spa (1)\n";
}

std::string MainPage(const LineInfo& line) {
  std::string page = Head("spa", Replace(line.description, "spa - ", ""));
  page += ".SH SYNOPSIS\n.B spa\nCOMMAND [OPTIONS]\n.SH COMMANDS\n";
  for (const CommandInfo& command : line.commands) {
    page +=
        fmt::format(".TP\n.BR spa\\-{} (1)\n{}\n", Roff(command.name), Roff(command.description));
  }
  return page;
}

// --- completions ---

std::string BashCompletion(const LineInfo& line) {
  std::vector<std::string> names;
  std::string values, flags;
  for (const CommandInfo& command : line.commands) {
    names.push_back(command.name);
    std::vector<std::string> all;
    for (const FlagInfo& flag : command.flags) {
      if (!flag.positional.empty()) continue;
      std::ranges::copy(flag.names, std::back_inserter(all));
      if (flag.value.empty()) continue;
      std::vector<std::string> cases;
      for (const std::string& name : flag.names) cases.push_back(command.name + "/" + name);
      // Free-form values get no suggestions.
      const std::string reply =
          !flag.choices.empty()
              ? fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$word\"))",
                            fmt::join(flag.choices, " "))
              : (TakesFile(flag) ? "COMPREPLY=($(compgen -f -- \"$word\"))" : ":");
      values += fmt::format("    {}) {}; return ;;\n", fmt::join(cases, "|"), reply);
    }
    flags += fmt::format("      {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")) ;;\n", command.name,
                         fmt::join(all, " "));
  }
  return fmt::format(R"(# bash completion for spa
_spa() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} IFS=$' \t\n'
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{} --help --version' -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}/$before" in
{}  esac
  if [[ $word == -* ]]; then
    case "${{COMP_WORDS[1]}}" in
{}    esac
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _spa spa
)",
                     fmt::join(names, " "), values, flags);
}

std::string ZshText(const std::string& text) {
  std::string safe = Replace(Replace(text, "'", "'\\''"), "\n", " ");
  for (const char* special : {"[", "]", ":"})
    safe = Replace(safe, special, "\\" + std::string(special));
  return safe;
}

std::string ZshCompletion(const LineInfo& line) {
  std::string names, cases;
  for (const CommandInfo& command : line.commands) {
    names += fmt::format("    '{}:{}'\n", command.name, ZshText(command.description));
    cases += fmt::format("    {}) _arguments", command.name);
    for (const FlagInfo& flag : command.flags) {
      const std::string action = !flag.choices.empty()
                                     ? fmt::format("({})", fmt::join(flag.choices, " "))
                                     : (TakesFile(flag) ? "_files" : " ");
      if (!flag.positional.empty()) {
        cases += fmt::format(" \\\n      '*:{}:_files'", ZshText(flag.positional));
        continue;
      }
      const std::string value =
          flag.value.empty() ? "" : fmt::format(":{}:{}", ZshText(flag.value), action);
      for (const std::string& name : flag.names) {
        cases += fmt::format(" \\\n      '*{}[{}]{}'", name, ZshText(flag.help), value);
      }
    }
    cases += " ;;\n";
  }
  return fmt::format(R"(#compdef spa
_spa() {{
  local -a commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
}}
_spa "$@"
)",
                     names, cases);
}

std::string FishText(const std::string& text) {
  return "'" + Replace(Replace(Replace(text, "\\", "\\\\"), "'", "\\'"), "\n", " ") + "'";
}

std::string FishCompletion(const LineInfo& line) {
  std::string text = "# fish completion for spa\n";
  for (const CommandInfo& command : line.commands) {
    text += fmt::format("complete -c spa -n __fish_use_subcommand -f -a {} -d {}\n", command.name,
                        FishText(command.description));
    for (const FlagInfo& flag : command.flags) {
      if (!flag.positional.empty()) continue;
      text += fmt::format("complete -c spa -n '__fish_seen_subcommand_from {}'", command.name);
      for (const std::string& name : flag.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!flag.choices.empty()) {
        text += fmt::format(" -x -a '{}'", fmt::join(flag.choices, " "));
      } else if (!flag.value.empty()) {
        text += TakesFile(flag) ? " -r -F" : " -x";
      }
      text += fmt::format(" -d {}\n", FishText(flag.help));
    }
  }
  return text;
}

void Write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  AtomicFile file(path);
  file.Write(text.data(), text.size());
  file.Commit();
}

void WriteReference(const LineInfo& line, const std::filesystem::path& folder) {
  for (const CommandInfo& command : line.commands) {
    Write(folder / "man/man1" / ("spa-" + command.name + ".1"), CommandPage(command));
  }
  Write(folder / "bash-completion/completions/spa", BashCompletion(line));
  Write(folder / "zsh/site-functions/_spa", ZshCompletion(line));
  Write(folder / "fish/vendor_completions.d/spa.fish", FishCompletion(line));
  Write(folder / "man/man1/spa.1", MainPage(line));
}

}  // namespace

void AddReference(CommandLine& line) {
  auto folder = std::make_shared<std::string>();
  Command command = line.Add("reference", "Write man pages and shell completions");
  command.Add("folder", *folder, "Folder that receives them").Required();
  command.Hide();
  command.Action([&line, folder] { WriteReference(line.Describe(), *folder); });
}

}  // namespace spa::cli
