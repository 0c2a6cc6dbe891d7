#include "policies/spa_profile.h"

#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json_depth.h"
#include "base/mapped_file.h"
#include "policies/spa_proxy.h"

namespace spa {

std::filesystem::path ProfilePath(const ModelFile& file) {
  const std::filesystem::path proxies = ProxyPath(file, 1);
  if (proxies.empty()) return {};
  return proxies.parent_path() / fmt::format("profile-{:016x}.json", file.Fingerprint());
}

Budget ReadProfile(const std::filesystem::path& path, const ModelFile& file) {
  const MappedFile stored(path);
  CheckJsonDepth(stored.text(), path.string());
  Budget budget;
  std::string fingerprint, model;
  try {
    const nlohmann::json json = nlohmann::json::parse(stored.text());
    json.at("fingerprint").get_to(fingerprint);
    model = json.value("model", "another model");
    const nlohmann::json& fitted = json.at("budget");
    fitted.at("peak_layer").get_to(budget.peak_layer);
    fitted.at("peak_ratio").get_to(budget.peak_ratio);
    fitted.at("first_ratio").get_to(budget.first_ratio);
    fitted.at("last_ratio").get_to(budget.last_ratio);
  } catch (const nlohmann::json::exception&) {
    throw Error("{} is not a profile: make one with spa profile", path.string());
  }
  if (fingerprint != fmt::format("{:016x}", file.Fingerprint())) {
    throw Error(
        "the profile {} was made for {} ({}), not for this model: make one with spa profile",
        path.string(), model, fingerprint);
  }
  const auto ratio = [](double value) { return value > 0.0 && value <= 1.0; };
  if (!ratio(budget.peak_ratio) || !ratio(budget.first_ratio) || !ratio(budget.last_ratio) ||
      !(budget.peak_layer >= 1.0 &&
        budget.peak_layer <= static_cast<double>(file.config().num_layers))) {
    throw Error("the budget in the profile {} makes no sense: make it anew with spa profile",
                path.string());
  }
  return budget;
}

Budget ChooseBudget(OptionReader& reader, const ModelFile& file, bool use_stored) {
  const std::string choice = reader.Text("profile", "auto");
  if (choice == "off") return PublishedBudget(file.config());
  if (choice != "auto") return ReadProfile(choice, file);
  const std::filesystem::path stored = ProfilePath(file);
  if (use_stored && FileExists(stored)) {
    try {
      const Budget budget = ReadProfile(stored, file);
      reader.Note(fmt::format("budget of {}", stored.filename().string()));
      return budget;
    } catch (const Error&) {
      // A damaged file in the cache folder must not prevent decoding.
    }
  }
  return PublishedBudget(file.config());
}

}  // namespace spa
