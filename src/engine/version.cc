#include "spa/version.h"

const char* spa_version() { return SPA_VERSION_STRING; }
