// spa options: every option of decoding and of the caches.
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/flags.h"
#include "engine/option_reference.h"

namespace spa::cli {

void AddOptions(CommandLine& line) {
  struct Flags {
    bool json = false, markdown = false;
  };
  auto flags = std::make_shared<Flags>();
  Command command = line.Add("options", "List every decoding and cache option");
  command.Add("--json", flags->json, "Print one JSON object");
  command.Add("--markdown", flags->markdown, "Print docs/options.md (default)");
  command.Footer("Examples:\n  spa options | less\n  spa options --json | jq '.caches[].name'");
  command.Action([flags] {
    std::string text = flags->json ? OptionsJson().dump() : OptionsMarkdown();
    while (text.ends_with('\n')) text.pop_back();
    PrintLine(text);
  });
}

}  // namespace spa::cli
