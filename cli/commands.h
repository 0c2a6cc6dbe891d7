// The subcommands. Each Add function declares one with its flags and its action.
#pragma once

#include "cli/command.h"

namespace spa::cli {

void AddGenerate(CommandLine& line);
void AddInspect(CommandLine& line);
void AddLogits(CommandLine& line);
void AddConvert(CommandLine& line);
void AddQuantize(CommandLine& line);
void AddSynth(CommandLine& line);
void AddProxy(CommandLine& line);
void AddBench(CommandLine& line);
void AddEval(CommandLine& line);
void AddCompare(CommandLine& line);
void AddProfile(CommandLine& line);
void AddServe(CommandLine& line);
void AddChat(CommandLine& line);
void AddDemo(CommandLine& line);
void AddOptions(CommandLine& line);
void AddReference(CommandLine& line);

}  // namespace spa::cli
