// Descriptions of the server and its model.
#pragma once

#include <string>

#include "engine/engine.h"
#include "server/server_options.h"

namespace spa {

// GET /props: model, defaults, caches and limits, as the page needs them.
std::string PropsBody(const Engine& engine, const ServerOptions& options);
// GET /v1/models, GET /v1/models/ID
std::string ModelListBody(const Engine& engine, const ServerOptions& options);
std::string ModelBody(const Engine& engine, const ServerOptions& options);

}  // namespace spa
