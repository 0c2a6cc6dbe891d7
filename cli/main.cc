// spa: run diffusion language models on a CPU. One binary, a table of subcommands.
#include <fmt/format.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <new>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "kernels/simd_targets.h"

namespace {

std::string Version() {
  const spa::SimdTargets simd = spa::FindSimdTargets();
  return fmt::format("spa {} ({})\nSIMD: {} (compiled: {})", SPA_VERSION, SPA_COMMIT, simd.used,
                     fmt::join(simd.compiled, " "));
}

// If a mapped file shrinks, its pages are lost and the program cannot go on; at least say why.
extern "C" void OnLostPage(int) {
  constexpr char kMessage[] = "spa: a file became shorter while it was in use: start again\n";
  const ssize_t ignored = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(ignored < 0 ? 2 : 1);
}

}  // namespace

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "C.UTF-8");
  std::signal(SIGBUS, OnLostPage);
  spa::cli::CommandLine line(
      "spa - diffusion language models (LLaDA, Dream) on CPUs, with SPA-Cache", Version(),
      "Try `spa demo` first. `spa COMMAND --help` explains a command and gives an example.");
  using namespace spa::cli;  // NOLINT(google-build-using-namespace)
  for (const auto add :
       {AddGenerate, AddChat, AddServe, AddDemo, AddInspect, AddLogits, AddConvert, AddQuantize,
        AddSynth, AddProxy, AddBench, AddEval, AddCompare, AddProfile, AddOptions, AddReference}) {
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
