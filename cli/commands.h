// The subcommands. Each Add function declares one with its flags and sets its action as the
// CLI11 callback; an action throws spa::Error when it fails.
#pragma once

#include <CLI/CLI.hpp>

namespace spa::cli {

void AddGenerate(CLI::App& app);
void AddInspect(CLI::App& app);
void AddLogits(CLI::App& app);
void AddConvert(CLI::App& app);
void AddQuantize(CLI::App& app);
void AddSynth(CLI::App& app);
void AddProxy(CLI::App& app);
void AddBench(CLI::App& app);
void AddEval(CLI::App& app);
void AddCompare(CLI::App& app);
void AddProfile(CLI::App& app);
void AddServe(CLI::App& app);
void AddChat(CLI::App& app);
void AddDemo(CLI::App& app);

}  // namespace spa::cli
