// Asks the model compiled in a question and shows the answer resolving.
#include <cstdio>

#include "spa/spa.h"

int main(int argc, char** argv) {
  spa::Result<spa::Model> model = spa::Model::Load();
  if (!model) return std::fprintf(stderr, "%s\n", model.error().c_str()), 1;
  spa::GenerateOptions options;
  options.on_step = [](const spa::Frame& frame) {
    return std::printf("%3zu %s\n", frame.step, frame.text.c_str()) > 0;
  };
  const auto answer = model->Ask(argc > 1 ? argv[1] : "not ( True and False ) is", options);
  if (!answer) return std::fprintf(stderr, "%s\n", answer.error().c_str()), 1;
  std::printf("%s\n%.0f%% of the rows\n", answer->text.c_str(), 100 * answer->rows_fraction);
}
