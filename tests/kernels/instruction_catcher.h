// Catches instructions that the processor does not have, so that a test can do them by plain loops.
// Linux on x86-64 only.
#pragma once

#if defined(__linux__) && defined(__x86_64__)

#include <ucontext.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>

namespace spa {

// Catches while it lives; there is one at a time.
class InstructionCatcher {
 public:
  // Does the instruction at `code` on the registers the signal saved, and returns its length; 0 if
  // it is another one.
  using Emulate = size_t (*)(mcontext_t& machine, const uint8_t* code);

  explicit InstructionCatcher(Emulate emulate) {
    emulate_ = emulate;
    num_caught_ = 0;
    struct sigaction action = {};
    action.sa_sigaction = OnIllegalInstruction;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, &previous_);
  }
  ~InstructionCatcher() { sigaction(SIGILL, &previous_, nullptr); }
  InstructionCatcher(const InstructionCatcher&) = delete;
  InstructionCatcher& operator=(const InstructionCatcher&) = delete;

  size_t num_caught() const { return num_caught_; }

 private:
  static void OnIllegalInstruction(int, siginfo_t*, void* context) {
    mcontext_t& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
    greg_t& address = machine.gregs[REG_RIP];
    const size_t length = emulate_(machine, reinterpret_cast<const uint8_t*>(address));
    if (length == 0) {
      std::signal(SIGILL, SIG_DFL);  // and runs into it again
      return;
    }
    address += static_cast<greg_t>(length);
    ++num_caught_;
  }

  static inline Emulate emulate_;
  static inline std::atomic<size_t> num_caught_;
  struct sigaction previous_ = {};
};

}  // namespace spa

#endif
