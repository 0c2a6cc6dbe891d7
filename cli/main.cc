// spa: run diffusion language models on a CPU. One binary, a table of subcommands.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <clocale>
#include <cstdio>
#include <new>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/terminal.h"

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "C.UTF-8");
  CLI::App app{"spa - diffusion language models (LLaDA, Dream) on CPUs, with SPA-Cache"};
  app.set_version_flag("--version", SPA_VERSION);
  app.require_subcommand(1);
  app.fallthrough(false);
  app.footer("`spa COMMAND --help` explains a command and gives an example.");
  for (const auto add : {spa::cli::AddGenerate, spa::cli::AddChat, spa::cli::AddServe, spa::cli::AddDemo, spa::cli::AddInspect, spa::cli::AddLogits,
                         spa::cli::AddConvert, spa::cli::AddQuantize, spa::cli::AddSynth,
                         spa::cli::AddProxy, spa::cli::AddBench, spa::cli::AddEval,
                         spa::cli::AddCompare, spa::cli::AddProfile}) {
    add(app);
  }
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const auto commands = app.get_subcommands();
    fmt::print(stderr, "spa: {}\nTry: spa {}--help\n", error.what(),
               commands.empty() ? "" : commands.front()->get_name() + " ");
    return 2;
  } catch (const spa::Error& error) {
    fmt::print(stderr, "spa: {}\n", error.what());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "spa: not enough memory\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "spa: {}\n", error.what());
  }
  return 1;
}
