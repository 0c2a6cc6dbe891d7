// The scheduler without HTTP: what is submitted, what arrives in the mailbox.
#include "server/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "base/error.h"
#include "tests/server/test_engine.h"

namespace spa::scheduler_test {
namespace {

using std::chrono::milliseconds;

GenerationTask Task(const std::string& question, size_t length = 32) {
  GenerationTask task;
  task.prompt = TestEngine().Encode({.messages = {{"user", question}}, .text = ""});
  task.decode = TestEngine().DefaultDecodeOptions();
  task.decode.gen_length = task.decode.steps = length;
  task.decode.block_length = 32;
  task.cache = {.name = "none", .options = {}};
  task.max_tokens = length;
  return task;
}

// Takes many steps and never ends by itself.
GenerationTask LongTask() {
  GenerationTask task = Task("True is", 960);
  task.decode.stop = Stop::kNever;
  task.decode.eos_rule = EosRule::kLogits;
  return task;
}

// What happened to one choice.
struct Outcome {
  size_t started = 0;
  std::string text;
  std::vector<Frame> frames;
  std::vector<size_t> layers;  // of the progress told
  std::vector<Event> ends;
};

constexpr int kRounds = 3000;  // of 200 ms: a hang, not a slow machine

// Reads the mailbox until each of `count` choices has ended. Throws if that takes too long.
std::map<size_t, Outcome> Collect(Mailbox& mailbox, size_t count) {
  std::map<size_t, Outcome> outcomes;
  size_t ended = 0;
  for (int round = 0; round < kRounds && ended < count; ++round) {
    for (Event& event : mailbox.Take(milliseconds(200))) {
      Outcome& outcome = outcomes[event.choice];
      EXPECT_TRUE(outcome.ends.empty()) << "something after the end";
      switch (event.kind) {
        case Event::Kind::kStarted:
          EXPECT_TRUE(outcome.text.empty() && outcome.frames.empty());
          ++outcome.started;
          break;
        case Event::Kind::kText:
          outcome.text += event.text;
          break;
        case Event::Kind::kFrame:
          outcome.frames.push_back(event.frame);
          break;
        case Event::Kind::kProgress:
          EXPECT_EQ(event.layers, TestEngine().config().num_layers);
          outcome.layers.push_back(event.layer);
          break;
        case Event::Kind::kEnd:
          outcome.ends.push_back(event);
          ++ended;
      }
    }
  }
  if (ended < count) throw std::runtime_error("the scheduler is stuck");
  return outcomes;
}

// Waits until a task has been started.
void WaitForStart(Mailbox& mailbox) {
  for (int round = 0; round < kRounds; ++round) {
    for (const Event& event : mailbox.Take(milliseconds(200))) {
      if (event.kind == Event::Kind::kStarted) return;
    }
  }
  FAIL() << "nothing started";
}

struct Running {
  explicit Running(const SchedulerOptions& options)
      : Running(options, TestEngine().PrepareCache({.name = "none", .options = {}})) {}
  Running(const SchedulerOptions& options, SharedCache cache)
      : scheduler(TestEngine(), options, std::move(cache), metrics) {}

  std::shared_ptr<Mailbox> Submit(std::vector<GenerationTask> tasks) {
    auto mailbox = std::make_shared<Mailbox>();
    EXPECT_EQ(scheduler.Submit(std::move(tasks), mailbox), Scheduler::Admission::kAccepted);
    return mailbox;
  }

  Metrics metrics;
  Scheduler scheduler;
};

const char* const kQuestions[] = {"not ( True ) is", "True and False or True is",
                                  "not not False is", "( False or True ) is", "True is"};

TEST(Scheduler, AnswersDoNotDependOnTheBatch) {
  std::vector<std::string> alone;
  for (const char* question : kQuestions) {
    Running one({.parallel = 1, .queue = 8});
    const auto outcomes = Collect(*one.Submit({Task(question)}), 1);
    alone.push_back(outcomes.at(0).text);
    EXPECT_FALSE(alone.back().empty());
  }
  for (const size_t parallel : {2, 8}) {
    Running running({.parallel = parallel, .queue = 8});
    std::vector<GenerationTask> tasks;
    for (const char* question : kQuestions) tasks.push_back(Task(question));
    const auto outcomes = Collect(*running.Submit(std::move(tasks)), std::size(kQuestions));
    for (size_t i = 0; i < std::size(kQuestions); ++i) {
      const Outcome& outcome = outcomes.at(i);
      EXPECT_EQ(outcome.started, 1u);
      EXPECT_EQ(outcome.text, alone[i]);
      EXPECT_TRUE(outcome.frames.empty());
      const Event& end = outcome.ends.front();
      EXPECT_TRUE(end.ending == Ending::kStop || end.ending == Ending::kLength);
      EXPECT_EQ(end.stats.prompt_tokens, Task(kQuestions[i]).prompt.size());
      EXPECT_GT(end.stats.steps, 0u);
      EXPECT_LE(end.stats.steps, 32u);
    }
  }
}

// Whoever watches the steps also hears how far a long one is.
TEST(Scheduler, LongStepsTellHowFarTheyAre) {
  SchedulerOptions options{.parallel = 2, .queue = 8};
  options.long_step = milliseconds(0);
  Running running(options);
  GenerationTask watched = Task("True is");
  watched.frames = true;
  const auto outcomes = Collect(*running.Submit({watched, Task("True is")}), 2);
  const std::vector<size_t>& layers = outcomes.at(0).layers;
  ASSERT_EQ(layers.size(), outcomes.at(0).frames.size() * TestEngine().config().num_layers);
  for (size_t i = 0; i < TestEngine().config().num_layers; ++i) EXPECT_EQ(layers[i], i + 1);
  EXPECT_TRUE(outcomes.at(1).layers.empty());
}

TEST(Scheduler, ARequestIsQueuedWholeOrNotAtAll) {
  Running running({.parallel = 1, .queue = 2});
  auto busy = running.Submit({LongTask()});
  WaitForStart(*busy);
  auto refused = std::make_shared<Mailbox>();
  EXPECT_EQ(running.scheduler.Submit({Task("True is"), Task("True is"), Task("True is")}, refused),
            Scheduler::Admission::kQueueFull);
  auto waiting = running.Submit({Task("True is"), Task("not True is")});
  EXPECT_EQ(running.scheduler.Submit({Task("True is")}, refused), Scheduler::Admission::kQueueFull);
  busy->Cancel();
  Collect(*waiting, 2);
  EXPECT_TRUE(refused->Take(milliseconds(0)).empty());
}

TEST(Scheduler, CancellingFreesThePlaceAndTellsNobody) {
  Running running({.parallel = 1, .queue = 4});
  auto cancelled = running.Submit({LongTask()});
  WaitForStart(*cancelled);
  auto never_started = running.Submit({LongTask()});
  never_started->Cancel();
  cancelled->Cancel();
  const auto outcomes = Collect(*running.Submit({Task("not True is")}), 1);
  EXPECT_FALSE(outcomes.at(0).text.empty());
  EXPECT_TRUE(never_started->Take(milliseconds(0)).empty());
  for (const Event& event : cancelled->Take(milliseconds(0))) {
    EXPECT_NE(event.kind, Event::Kind::kEnd);
  }
}

TEST(Scheduler, TimeRunsOutWhileWaitingAndWhileRunning) {
  Running running({.parallel = 1, .queue = 4});
  GenerationTask running_task = LongTask();
  running_task.deadline = std::chrono::steady_clock::now() + milliseconds(300);
  GenerationTask waiting_task = LongTask();
  waiting_task.deadline = std::chrono::steady_clock::now();
  const auto outcomes = Collect(*running.Submit({running_task, waiting_task}), 2);
  EXPECT_EQ(outcomes.at(0).ends.front().ending, Ending::kTimeout);
  EXPECT_EQ(outcomes.at(1).ends.front().ending, Ending::kTimeout);
  EXPECT_EQ(outcomes.at(1).started, 0u);
}

TEST(Scheduler, WhatCannotRunIsToldWhyAndTheOthersGoOn) {
  Running running({.parallel = 4, .queue = 8});
  GenerationTask wrong = Task("True is");
  wrong.cache = {.name = "spa", .options = {{"nonsense", "1"}}};
  GenerationTask empty = Task("True is");
  empty.prompt.clear();
  const auto outcomes = Collect(*running.Submit({wrong, Task("not True is"), empty}), 3);
  for (const size_t choice : {0, 2}) {
    EXPECT_EQ(outcomes.at(choice).started, 0u);
    EXPECT_EQ(outcomes.at(choice).ends.front().ending, Ending::kInvalid);
    EXPECT_FALSE(outcomes.at(choice).ends.front().text.empty());
  }
  EXPECT_NE(outcomes.at(0).ends.front().text.find("nonsense"), std::string::npos);
  EXPECT_FALSE(outcomes.at(1).text.empty());
}

TEST(Scheduler, AStopStringEndsTheAnswerBeforeIt) {
  Running running({.parallel = 2, .queue = 4});
  const std::string whole = Collect(*running.Submit({Task("not True is")}), 1).at(0).text;
  ASSERT_GE(whole.size(), 3u);
  GenerationTask task = Task("not True is");
  task.stops = {whole.substr(1, 2)};
  const auto outcome = Collect(*running.Submit({task}), 1).at(0);
  EXPECT_EQ(outcome.text, whole.substr(0, whole.find(task.stops[0])));
  EXPECT_EQ(outcome.ends.front().ending, Ending::kStop);
}

TEST(Scheduler, FramesShowEveryStepOfTheCanvas) {
  Running running({.parallel = 2, .queue = 4});
  GenerationTask task = Task("not True is");
  task.decode.stop = Stop::kNever;
  task.frames = true;
  const Outcome outcome = Collect(*running.Submit({task}), 1).at(0);
  ASSERT_EQ(outcome.frames.size(), outcome.ends.front().stats.steps);
  size_t settled_before = 0;
  for (size_t i = 0; i < outcome.frames.size(); ++i) {
    const Frame& frame = outcome.frames[i];
    EXPECT_EQ(frame.step, i + 1);
    ASSERT_EQ(frame.cells.size(), 32u);
    EXPECT_EQ(frame.rows.size(), TestEngine().config().num_layers);
    const auto settled = static_cast<size_t>(
        std::ranges::count_if(frame.cells, [](const Frame::Cell& cell) { return cell.settled; }));
    EXPECT_GT(settled, settled_before);
    settled_before = settled;
  }
}

// A cache that fails in the middle of a layer, in its third step.
class FailingPolicy : public CachePolicy {
 public:
  explicit FailingPolicy(int kind) : kind_(kind) {}
  RowSet BeginStep(const StepInput& step) override {
    all_ = step.visible;
    step_ = step.step;
    return all_;
  }
  LayerPlan PlanLayer(LayerView& view) override {
    if (step_ == 2 && view.layer == 1) {
      if (kind_ == 0) throw Error("told to fail");
      if (kind_ == 1) throw std::bad_alloc();
      SPA_CHECK(kind_ == 3);
    }
    return LayerPlan::Of(all_);
  }

 private:
  int kind_;
  RowSet all_;
  size_t step_ = 0;
};

TEST(Scheduler, AFailureEndsTheRequestsOfItsStepAndNothingElse) {
  std::string before;
  for (const int kind : {0, 1, 2}) {
    const CacheSpec spec{.name = "failing", .options = {}};
    const auto make = [kind] { return std::make_unique<FailingPolicy>(kind); };
    Running running({.parallel = 2, .queue = 8},
                    std::make_shared<PreparedCache>(PreparedCache{spec, make, "failing"}));
    const auto ask = [&] { return Collect(*running.Submit({Task("not True is")}), 1).at(0).text; };
    before = ask();
    GenerationTask failing = Task("True is");
    failing.decode.stop = Stop::kNever;  // still there in its third step
    const GenerationTask beside = failing;
    failing.cache = spec;
    // Both are queued before the first step, so that they run side by side.
    const auto outcomes = Collect(*running.Submit({beside, failing}), 2);
    for (const auto& [choice, outcome] : outcomes) {
      const Event& end = outcome.ends.front();
      EXPECT_EQ(end.ending, Ending::kFailed);
      EXPECT_FALSE(end.text.empty());
      EXPECT_EQ(end.text.find("told"), std::string::npos) << "not for clients";
      if (kind == 0) {
        EXPECT_EQ(end.reason, "told to fail");
      } else if (kind == 2) {
        EXPECT_NE(end.reason.find("kind_ == 3"), std::string::npos) << end.reason;
      }
    }
    EXPECT_EQ(ask(), before) << "what comes after is not touched";
  }
}

TEST(Scheduler, DrainingTakesNothingNewAndEndsTheRest) {
  Running running({.parallel = 1, .queue = 4});
  auto mailbox = running.Submit({LongTask(), LongTask()});
  running.scheduler.Drain(milliseconds(0));
  const auto outcomes = Collect(*mailbox, 2);
  for (const size_t choice : {0, 1}) {
    EXPECT_EQ(outcomes.at(choice).ends.front().ending, Ending::kShutdown);
  }
  auto late = std::make_shared<Mailbox>();
  EXPECT_EQ(running.scheduler.Submit({Task("True is")}, late), Scheduler::Admission::kDraining);
  EXPECT_TRUE(running.scheduler.draining());
  EXPECT_TRUE(late->Take(milliseconds(0)).empty());
}

TEST(Scheduler, DrainingWaitsForWhatIsThere) {
  Running running({.parallel = 1, .queue = 4});
  auto mailbox = running.Submit({Task("True is"), Task("not True is")});
  running.scheduler.Drain(std::chrono::minutes(2));
  for (const auto& [choice, outcome] : Collect(*mailbox, 2)) {
    EXPECT_NE(outcome.ends.front().ending, Ending::kShutdown) << choice;
    EXPECT_FALSE(outcome.text.empty());
  }
}

}  // namespace
}  // namespace spa::scheduler_test
