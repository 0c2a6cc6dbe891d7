#include "server/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/infill.h"
#include "kernels/state_memory.h"

namespace spa {
namespace {

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Prepared caches kept at a time. Preparing one again reads its proxies from disk.
constexpr size_t kMaxCaches = 8;

// Rows of a step that scores a prompt; other requests wait for it.
constexpr size_t kScoreRows = 512;

LikelihoodOptions ScoreOptions() {
  LikelihoodOptions options;
  options.estimator = Estimator::kChain;
  options.batch_rows = kScoreRows;
  return options;
}

// The prompt's tokens after its first, and one more if the task predicts it.
std::vector<LikelihoodRequest> ScoreRequests(const GenerationTask& task) {
  std::vector<LikelihoodRequest> requests;
  if (task.prompt.size() > 1) {
    requests.push_back({{task.prompt.front()}, {task.prompt.begin() + 1, task.prompt.end()}});
  }
  if (task.max_tokens > 0) requests.push_back({task.prompt, {task.prompt.front()}});
  return requests;
}

}  // namespace

Scheduler::Scheduler(Engine& engine, const SchedulerOptions& options, SharedCache cache,
                     Metrics& metrics)
    : engine_(engine),
      options_(options),
      metrics_(metrics),
      memory_(engine, options.memory),
      prefixes_(options.prefix_memory),
      own_cache_(cache->spec.ToString()),
      runner_(engine) {
  caches_[own_cache_] = std::move(cache);
  metrics_.SetMemory(options.memory);
  engine_.transformer().set_on_layer(
      [this](size_t layer, size_t layers) { TellProgress(layer, layers); });
  thread_ = std::thread([this] { Loop(); });
}

Scheduler::~Scheduler() {
  Drain(std::chrono::milliseconds(0));
  thread_.join();
  engine_.transformer().set_on_layer({});
}

Scheduler::Admission Scheduler::Submit(std::vector<GenerationTask> tasks,
                                       const std::shared_ptr<Mailbox>& mailbox) {
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return Admission::kDraining;
    if (waiting_.size() + tasks.size() > options_.queue) return Admission::kQueueFull;
    for (size_t i = 0; i < tasks.size(); ++i) {
      auto job = std::make_unique<Job>();
      job->task = std::move(tasks[i]);
      job->mailbox = mailbox;
      job->choice = i;
      job->submitted = Clock::now();
      waiting_.push_back(std::move(job));
    }
    metrics_.SetQueued(waiting_.size());
  }
  wake_.notify_one();
  return Admission::kAccepted;
}

void Scheduler::Drain(std::chrono::milliseconds grace) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  idle_.wait_for(lock, grace, [&] { return waiting_.empty() && !busy_; });
  stop_ = true;
  wake_.notify_one();
  // Bounded: the loop ends everything before its next step.
  idle_.wait(lock, [&] { return waiting_.empty() && !busy_; });
}

void Scheduler::Loop() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      busy_ = !running_.empty();
      metrics_.SetRunning(running_.size());
      if (!busy_ && waiting_.empty()) idle_.notify_all();
      wake_.wait(lock, [&] { return busy_ || !waiting_.empty() || stop_; });
      Sweep(waiting_);
      if (stop_ && waiting_.empty() && running_.empty()) {
        busy_ = false;
        idle_.notify_all();
        return;
      }
      busy_ = true;
    }
    Admit();
    std::erase_if(running_, [&](const JobPtr& job) { return ShouldEnd(*job); });
    metrics_.SetRunning(running_.size());
    if (!running_.empty()) Step();
  }
}

void Scheduler::Step() {
  const auto start = Clock::now();
  told_ = start;
  try {
    runner_.Step();
  } catch (...) {
    // Which one was at fault is unknown; all states are half-way through a step.
    for (const JobPtr& job : running_) EndByException(*job);
    running_.clear();
    return;
  }
  for (const JobPtr& job : running_) {
    try {
      if (job->scorer) {
        StepScore(*job);
      } else {
        Publish(*job);
      }
    } catch (...) {
      EndByException(*job);
    }
  }
  metrics_.CountStep(Seconds(Clock::now() - start), running_.size());
  std::erase_if(running_, [](const JobPtr& job) { return job->ended; });
}

void Scheduler::StepScore(Job& job) {
  if (!job.scorer->done()) job.scorer->Step();
  if (!job.scorer->done()) return;
  std::vector<TokenLikelihood> scores;
  for (const Likelihood& part : job.scorer->Results()) {
    scores.insert(scores.end(), part.tokens.begin(), part.tokens.end());
  }
  Event event{.kind = Event::Kind::kEnd, .choice = job.choice};
  event.ending = Ending::kLength;
  event.stats.cache = "none";
  event.stats.prompt_tokens = job.task.prompt.size();
  event.stats.generated_tokens = event.stats.canvas_tokens = job.task.max_tokens;
  event.stats.steps = job.scorer->passes();
  event.stats.seconds = Seconds(Clock::now() - job.started);
  event.stats.queue_seconds = Seconds(job.started - job.submitted);
  event.scores = std::move(scores);
  Release(job, Prefix::kDrop);
  metrics_.CountGeneration(event.stats);
  job.mailbox->Post(std::move(event));
}

void Scheduler::TellProgress(size_t layer, size_t layers) {
  if (Clock::now() - told_ < options_.long_step) return;
  told_ = Clock::now();
  for (const JobPtr& job : running_) {
    if (!job->task.frames) continue;
    Event event{.kind = Event::Kind::kProgress, .choice = job->choice};
    event.layer = layer;
    event.layers = layers;
    job->mailbox->Post(std::move(event));
  }
}

void Scheduler::Sweep(std::deque<JobPtr>& waiting) {
  std::erase_if(waiting, [&](const JobPtr& job) { return ShouldEnd(*job); });
  metrics_.SetQueued(waiting.size());
}

bool Scheduler::ShouldEnd(Job& job) {
  if (job.mailbox->cancelled()) {
    metrics_.CountCancelled();
    Release(job, Prefix::kKeep);
  } else if (stop_) {
    End(job, Ending::kShutdown, "the server is shutting down");
  } else if (job.task.deadline && Clock::now() > *job.task.deadline) {
    End(job, Ending::kTimeout, "the request took longer than this server allows");
  } else {
    return false;
  }
  return true;
}

void Scheduler::Admit() {
  while (running_.size() < options_.parallel) {
    JobPtr job;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
      metrics_.SetQueued(waiting_.size());
    }
    if (ShouldEnd(*job) || !PrepareJob(*job)) continue;
    if (!MakeRoom(job->need)) {
      // In order: it starts as soon as enough earlier ones have ended.
      if (!std::exchange(job->waited, true)) metrics_.CountMemoryWait();
      const std::lock_guard lock(mutex_);
      waiting_.push_front(std::move(job));
      metrics_.SetQueued(waiting_.size());
      return;
    }
    if (StartJob(*job)) running_.push_back(std::move(job));
  }
}

bool Scheduler::PrepareJob(Job& job) {
  if (job.cache != nullptr) return true;
  const GenerationTask& task = job.task;
  try {
    job.cache = Prepare(task.score ? CacheSpec{} : task.cache);
    DecodeOptions decode = task.decode;
    if (task.score) decode.gen_length = kScoreRows;
    decode.gen_length += task.given.suffix.size() + decode.grow.value_or(0);
    job.need = NeedOf(engine_, task.prompt.size(), decode, *job.cache);
  } catch (...) {
    EndByException(job);
    return false;
  }
  if (!memory_.NeverFits(job.need)) return true;
  metrics_.CountTooLarge();
  End(job, Ending::kTooLarge,
      fmt::format("this answer needs {} of memory and the server has {} for all: ask for fewer "
                  "tokens or another cache",
                  FormatBytes(TotalBytes(engine_, job.need)), FormatBytes(options_.memory)));
  return false;
}

bool Scheduler::StartJob(Job& job) {
  if (memory_.Take(job.need)) engine_.transformer().ReleaseWorkspace();
  if (memory_.promised() + StateMemoryKept() > options_.memory) ReleaseStateMemory();
  job.admitted = true;
  metrics_.SetPromised(memory_.promised());
  try {
    const GenerationTask& task = job.task;
    job.started = Clock::now();
    if (task.score) {
      job.scorer.emplace(engine_, ScoreRequests(task), ScoreOptions());
      job.mailbox->Post({.kind = Event::Kind::kStarted, .choice = job.choice});
      return true;
    }
    job.generation = &runner_.Add({.prompt = task.prompt,
                                   .decode = task.decode,
                                   .cache = job.cache,
                                   .warm_from = nullptr,
                                   .prefixes = options_.prefix_memory > 0 ? &prefixes_ : nullptr,
                                   .given = task.given});
    job.generation->times().queue_seconds = Seconds(Clock::now() - job.submitted);
    job.answer.emplace(engine_.tokenizer(), task.stops, task.max_tokens);
    if (task.frames) {
      job.generation->state().trace = true;
      job.confidence.assign(
          std::max(job.generation->decoder().canvas().size(), MaxCanvas(task.decode)), -1.0f);
    }
  } catch (...) {
    EndByException(job);
    return false;
  }
  job.mailbox->Post({.kind = Event::Kind::kStarted, .choice = job.choice});
  PostText(job, job.task.before);
  return true;
}

void Scheduler::PostText(Job& job, std::string text) {
  if (text.empty()) return;
  job.mailbox->Post({.kind = Event::Kind::kText, .choice = job.choice, .text = std::move(text)});
}

SharedCache Scheduler::Prepare(const CacheSpec& spec) {
  const std::string key = spec.ToString();
  const auto found = caches_.find(key);
  if (found != caches_.end()) return found->second;
  SharedCache cache = engine_.PrepareCache(spec, {.quick = true});
  if (caches_.size() >= kMaxCaches) {
    std::erase_if(caches_, [&](const auto& item) { return item.first != own_cache_; });
  }
  return caches_[key] = cache;
}

void Scheduler::Publish(Job& job) {
  const Decoder& decoder = job.generation->decoder();
  const Decoder::Prefix prefix = decoder.SettledPrefix();
  if (job.task.frames) {
    job.mailbox->Post({.kind = Event::Kind::kFrame, .choice = job.choice, .frame = MakeFrame(job)});
  }
  std::string text =
      job.answer->Advance(decoder.ids().subspan(decoder.prompt_length(), prefix.length),
                          prefix.ended || decoder.done(), prefix.ended || decoder.infills());
  if (!text.empty()) {
    double& first_text = job.generation->times().first_text_seconds;
    if (first_text == 0.0) first_text = Seconds(Clock::now() - job.submitted);
    PostText(job, std::move(text));
  }
  if (job.answer->finished()) {
    PostText(job, job.task.after);
    End(job, job.answer->stopped() ? Ending::kStop : Ending::kLength);
  }
}

Frame Scheduler::MakeFrame(Job& job) const {
  const Decoder& decoder = job.generation->decoder();
  const size_t begin = decoder.prompt_length();
  Frame frame;
  frame.step = decoder.steps();
  frame.prompt_tokens = begin;
  // The first block may hold the prompt's tail, or be the prompt's last.
  frame.block_begin = std::max(decoder.input().block_begin, begin) - begin;
  frame.block_end = std::max(decoder.input().block_end, begin) - begin;
  frame.cells.resize(decoder.canvas().size());
  job.confidence.resize(frame.cells.size(), -1.0f);
  if (decoder.infills()) {
    for (Frame::Cell& cell : frame.cells) cell.given = true;
    for (const BlockRange& gap : decoder.gaps()) {
      for (size_t pos = gap.begin; pos < gap.end; ++pos) frame.cells[pos - begin].given = false;
    }
  }
  for (size_t i = 0; i < decoder.positions().size(); ++i) {
    if (decoder.positions()[i] >= decoder.moved_from()) continue;  // has moved
    const size_t cell = decoder.positions()[i] - begin;
    const Candidate& candidate = decoder.candidates()[i];
    job.confidence[cell] = static_cast<float>(candidate.probability);
    frame.cells[cell].token = candidate.token;
  }
  for (size_t cell = 0; cell < frame.cells.size(); ++cell) {
    frame.cells[cell].settled = decoder.masked()[begin + cell] == 0;
    frame.cells[cell].confidence = job.confidence[cell];
    if (frame.cells[cell].settled) frame.cells[cell].token = decoder.ids()[begin + cell];
  }
  frame.rows = job.generation->state().traced_rows;
  return frame;
}

void Scheduler::EndByException(Job& job) {
  const char* const failed = "the server failed while it worked on this request";
  try {
    throw;
  } catch (const ModelChanged& error) {
    End(job, Ending::kFailed, "the model's file was changed: the server must be started again",
        error.what());
    if (options_.on_model_changed) options_.on_model_changed(error.what());
  } catch (const Error& error) {
    // Errors before the start are the request's fault.
    if (job.generation == nullptr && !job.scorer) {
      return End(job, Ending::kInvalid, error.what());
    }
    End(job, Ending::kFailed, failed, error.what());
  } catch (const std::bad_alloc&) {
    End(job, Ending::kFailed, "the server ran out of memory");
  } catch (const std::exception& error) {
    End(job, Ending::kFailed, failed, error.what());
  } catch (...) {
    End(job, Ending::kFailed, failed, "an exception of unknown type");
  }
}

bool Scheduler::MakeRoom(const MemoryNeed& need) {
  while (!memory_.Fits(need)) {
    if (!prefixes_.DropOldest()) return false;
    NotePrefixes();
  }
  return true;
}

void Scheduler::NotePrefixes() {
  memory_.SetHeld(prefixes_.bytes());
  metrics_.SetPrefixes(prefixes_.size(), prefixes_.bytes(), prefixes_.dropped());
}

void Scheduler::Release(Job& job, Prefix prefix) {
  job.ended = true;
  if (job.generation != nullptr) {
    auto generation = runner_.Remove(*std::exchange(job.generation, nullptr));
    if (prefix == Prefix::kKeep) prefixes_.Keep(std::move(generation), engine_.pool());
  }
  if (std::exchange(job.admitted, false)) memory_.Return(job.need);
  NotePrefixes();
  while (memory_.Over() && prefixes_.DropOldest()) NotePrefixes();
  metrics_.SetPromised(memory_.promised());
}

void Scheduler::End(Job& job, Ending ending, std::string message, std::string reason) {
  Event event{.kind = Event::Kind::kEnd, .choice = job.choice, .text = std::move(message)};
  event.ending = ending;
  event.reason = std::move(reason);
  GenerationStats& stats = event.stats;
  if (job.generation != nullptr) {
    stats = job.generation->Stats();
    if (!job.generation->decoder().infills()) {
      stats.generated_tokens = job.answer ? job.answer->num_tokens() : 0;  // stop strings cut
    } else {
      for (FilledPiece& piece : FilledPieces(engine_, job.generation->decoder())) {
        if (piece.filled) event.gaps.push_back(std::move(piece.text));
      }
    }
  } else {
    stats.cache = job.task.cache.ToString();
    stats.prompt_tokens = job.task.prompt.size();
    stats.canvas_tokens = job.task.decode.gen_length;
    stats.seed = job.task.decode.seed;
  }
  // A failed step leaves its states half-way.
  Release(job, ending == Ending::kFailed ? Prefix::kDrop : Prefix::kKeep);
  metrics_.CountGeneration(stats);
  job.mailbox->Post(std::move(event));
}

}  // namespace spa
