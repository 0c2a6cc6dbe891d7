#include "cli/commands.h"
namespace spa::cli { void AddChat(CLI::App&) {} }
