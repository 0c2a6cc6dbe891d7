// spa: run diffusion language models on a CPU. One binary, a table of subcommands.
#include <fmt/format.h>

#include <clocale>
#include <cstdio>
#include <new>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/terminal.h"

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "C.UTF-8");
  spa::cli::CommandLine line(
      "spa - diffusion language models (LLaDA, Dream) on CPUs, with SPA-Cache", SPA_VERSION,
      "`spa COMMAND --help` explains a command and gives an example.");
  for (const auto add : {spa::cli::AddGenerate, spa::cli::AddChat, spa::cli::AddServe, spa::cli::AddDemo, spa::cli::AddInspect, spa::cli::AddLogits,
                         spa::cli::AddConvert, spa::cli::AddQuantize, spa::cli::AddSynth,
                         spa::cli::AddProxy, spa::cli::AddBench, spa::cli::AddEval,
                         spa::cli::AddCompare, spa::cli::AddProfile, spa::cli::AddOptions}) {
    add(line);
  }
  try {
    const int code = line.Run(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw spa::Error("cannot write to the standard output");
    }
    return code;
  } catch (const spa::Error& error) {
    spa::cli::PrintStderr("spa: {}\n", error.what());
  } catch (const std::bad_alloc&) {
    spa::cli::PrintStderr("spa: not enough memory\n");
  } catch (const std::exception& error) {
    spa::cli::PrintStderr("spa: {}\n", error.what());
  }
  return 1;
}
