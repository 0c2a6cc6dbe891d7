#include "server/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace spa {
namespace {

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Prepared caches kept at a time. Preparing one again reads its proxies from disk.
constexpr size_t kMaxFactories = 32;

}  // namespace

Scheduler::Scheduler(Engine& engine, const SchedulerOptions& options, const CacheSpec& cache,
                     Metrics& metrics)
    : engine_(engine), options_(options), metrics_(metrics), own_cache_(cache.ToString()) {
  factories_[own_cache_] = engine_.PrepareCache(cache);
  thread_ = std::thread([this] { Loop(); });
}

Scheduler::~Scheduler() {
  Drain(std::chrono::milliseconds(0));
  thread_.join();
}

Scheduler::Admission Scheduler::Submit(std::vector<GenerationTask> tasks,
                                       std::shared_ptr<Mailbox> mailbox) {
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
  std::vector<Generation*> batch;
  for (const JobPtr& job : running_) batch.push_back(job->generation.get());
  const auto start = Clock::now();
  try {
    StepTogether(engine_.transformer(), batch);
  } catch (const std::bad_alloc&) {
    // Which of them was too much cannot be told; the states are half-way through a step.
    for (const JobPtr& job : running_) End(*job, Ending::kFailed, "the server ran out of memory");
    running_.clear();
    return;
  }
  metrics_.CountStep(Seconds(Clock::now() - start), batch.size());
  for (const JobPtr& job : running_) Publish(*job);
  std::erase_if(running_, [](const JobPtr& job) { return job->generation == nullptr; });
}

void Scheduler::Sweep(std::deque<JobPtr>& waiting) {
  std::erase_if(waiting, [&](const JobPtr& job) { return ShouldEnd(*job); });
  metrics_.SetQueued(waiting.size());
}

bool Scheduler::ShouldEnd(Job& job) {
  if (job.mailbox->cancelled()) {
    metrics_.CountCancelled();
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
    if (!ShouldEnd(*job) && StartJob(*job)) running_.push_back(std::move(job));
  }
}

bool Scheduler::StartJob(Job& job) {
  try {
    const GenerationTask& task = job.task;
    job.generation = engine_.Start(task.prompt, task.decode, Factory(task.cache));
    job.answer.emplace(engine_.tokenizer(), task.stops, task.max_tokens);
    if (task.frames) {
      job.generation->state().trace = true;
      job.confidence.assign(task.decode.gen_length, -1.0f);
    }
  } catch (const Error& error) {
    End(job, Ending::kInvalid, error.what());
    return false;
  } catch (const std::bad_alloc&) {
    End(job, Ending::kFailed, "not enough memory for this request");
    return false;
  } catch (const std::exception&) {  // such as a folder that may not be read
    End(job, Ending::kFailed, "the server could not prepare this request");
    return false;
  }
  job.started = Clock::now();
  job.mailbox->Post({.kind = Event::Kind::kStarted, .choice = job.choice});
  return true;
}

const PolicyFactory& Scheduler::Factory(const CacheSpec& spec) {
  const std::string key = spec.ToString();
  const auto found = factories_.find(key);
  if (found != factories_.end()) return found->second;
  PolicyFactory factory = engine_.PrepareCache(spec, {.quick = true});
  if (factories_.size() >= kMaxFactories) {
    std::erase_if(factories_, [&](const auto& item) { return item.first != own_cache_; });
  }
  return factories_.emplace(key, std::move(factory)).first->second;
}

void Scheduler::Publish(Job& job) {
  const Decoder& decoder = job.generation->decoder();
  const Decoder::Prefix prefix = decoder.SettledPrefix();
  if (job.task.frames) {
    job.mailbox->Post({.kind = Event::Kind::kFrame, .choice = job.choice, .frame = MakeFrame(job)});
  }
  std::string text = job.answer->Advance(
      decoder.ids().subspan(decoder.prompt_length(), prefix.length),
      prefix.ended || decoder.done(), prefix.ended);
  if (!text.empty()) {
    if (job.first_text_seconds == 0.0) {
      job.first_text_seconds = Seconds(Clock::now() - job.submitted);
    }
    job.mailbox->Post({.kind = Event::Kind::kText, .choice = job.choice, .text = std::move(text)});
  }
  if (job.answer->finished()) {
    End(job, job.answer->stopped() ? Ending::kStop : Ending::kLength);
  }
}

Frame Scheduler::MakeFrame(Job& job) const {
  const Decoder& decoder = job.generation->decoder();
  const size_t begin = decoder.prompt_length();
  Frame frame;
  frame.step = decoder.steps();
  frame.prompt_tokens = begin;
  const size_t block_length = decoder.options().block_length;
  frame.block_begin = (decoder.positions().front() - begin) / block_length * block_length;
  frame.block_end = frame.block_begin + block_length;
  frame.cells.resize(decoder.options().gen_length);
  for (size_t i = 0; i < decoder.positions().size(); ++i) {
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

void Scheduler::End(Job& job, Ending ending, std::string message) {
  Event event{.kind = Event::Kind::kEnd, .choice = job.choice, .text = std::move(message)};
  event.ending = ending;
  GenerationStats& stats = event.stats;
  stats.cache = job.task.cache.ToString();
  stats.prompt_tokens = job.task.prompt.size();
  stats.canvas_tokens = job.task.decode.gen_length;
  stats.seed = job.task.decode.seed;
  if (job.generation && job.answer) {
    stats.completion_tokens = job.answer->num_tokens();
    stats.steps = job.generation->decoder().steps();
    stats.queue_seconds = Seconds(job.started - job.submitted);
    stats.seconds = Seconds(Clock::now() - job.started);
    stats.first_text_seconds = job.first_text_seconds;
    stats.rows_computed = job.generation->rows_computed();
    stats.rows_total = job.generation->rows_total();
    stats.cache_bytes = job.generation->cache_bytes();
  }
  job.generation.reset();
  metrics_.CountGeneration(stats);
  job.mailbox->Post(std::move(event));
}

}  // namespace spa
