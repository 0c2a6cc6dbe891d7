// The budget that `spa profile` measured for a model, as SPA-Cache reads it back: a small JSON file
// keyed by the model's fingerprint, kept beside the singular proxies.
#pragma once

#include <filesystem>

#include "model/model_file.h"
#include "policies/options.h"
#include "policies/spa_budget.h"

namespace spa {

// Where the profile of a model is kept. Empty if the environment names no home.
std::filesystem::path ProfilePath(const ModelFile& file);

// Throws Error if the file is damaged or was made for another model.
Budget ReadProfile(const std::filesystem::path& path, const ModelFile& file);

// The budget SPA-Cache starts from, by its option `profile`: off, a file, or auto (the stored one
// if there is one, else the published numbers).   use_stored: what auto may do
Budget ChooseBudget(OptionReader& reader, const ModelFile& file, bool use_stored);

}  // namespace spa
