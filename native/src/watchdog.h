// Calls into a driver, which may never return: threads of the library make them, and the caller waits only so long.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "error.h"

namespace imgconv {

// What a call does, for the message if it takes too long, and how far it is. Threads share it.
class Activity {
 public:
  Activity();
  // Adds a text until the result is released.
  std::shared_ptr<void> begin(std::string what) const;
  // All texts, in their order.
  std::string text() const;

  // Notes that `done` of `total` of a phase are over, unless a later phase goes on around it. Throws Error with
  // IMGCONV_ERROR_CANCELLED once it is cancelled.
  void advance(imgconv_phase phase, size_t done, size_t total) const;
  // Lets the phases begin anew.
  void restart() const;
  void cancel() const;
  bool is_cancelled() const;
  // Throws Error with IMGCONV_ERROR_CANCELLED if it is cancelled.
  void check() const;
  // Calls progress(data, phase, done, total), and cancels if it says so.
  void tell(imgconv_progress progress, void *data) const;

  // Does work that reads nothing of the caller's, so that a caller who cancels need not wait for its end. Throws what
  // the work throws, or Error with IMGCONV_ERROR_CANCELLED.
  template <class Work>
  void run_abandonable(Work work) const {
    set_abandonable(true);
    try {
      work();
    } catch (...) {
      set_abandonable(false);
      throw;
    }
    set_abandonable(false);
  }
  // Lets `abandon` call this too, until the result is released. Throws Error with IMGCONV_ERROR_CANCELLED once it is
  // cancelled.
  std::shared_ptr<void> at_abandon(std::function<void()> cleanup) const;
  // Whether the caller need not wait for the work any more: it is cancelled and abandonable. Then runs the cleanups.
  bool abandon() const;

 private:
  struct State;
  void set_abandonable(bool is_abandonable) const;
  std::shared_ptr<State> state_;
};

class Watchdog {
 public:
  // timeout: how long a call may take.
  explicit Watchdog(std::chrono::milliseconds timeout);
  // Ends the threads, unless a call took too long.
  ~Watchdog();
  Watchdog(const Watchdog &) = delete;
  Watchdog &operator=(const Watchdog &) = delete;

  // Does the work in another thread, and throws what it throws. If it takes too long, throws Error with
  // IMGCONV_ERROR_TIMEOUT, as every call under way and every later one does; the work may still go on, so that it must
  // own all that it uses. what: for the message. look: called ten times a second meanwhile, in the caller's thread; may
  // be null. If it cancels abandonable work, the call throws at once, while the work goes on; no other call may follow.
  void call(const std::string &what, std::function<void()> work, const std::function<void()> &look = nullptr);
  // The same for work that gives something.
  template <class Work>
  auto get(const std::string &what, Work work, const std::function<void()> &look = nullptr) {
    const auto made = std::make_shared<decltype(work())>();
    call(what, [made, work = std::move(work)] { *made = work(); }, look);
    return std::move(*made);
  }
  const Activity &activity() const { return activity_; }

 private:
  struct State;
  Activity activity_;
  std::shared_ptr<State> state_;
};

}  // namespace imgconv
