#include "watchdog.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace imgconv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds BETWEEN_LOOKS(100);

}  // namespace

struct Activity::State {
  std::mutex lock;
  std::list<std::string> texts;
  std::list<std::function<void()>> cleanups;
  imgconv_phase phase = IMGCONV_PHASE_OPEN;
  size_t done = 0, total = 0;
  bool is_cancelled = false, is_abandonable = false;

  void check() const {
    if (is_cancelled) throw Error(IMGCONV_ERROR_CANCELLED, "the opening of the model was cancelled");
  }
};

namespace {

// Adds to a list of a state, whose lock is taken, until the result is released.
template <class State, class Item>
std::shared_ptr<void> add(const std::shared_ptr<State> &state, std::list<Item> State::*list, Item item) {
  const auto added = ((*state).*list).insert(((*state).*list).end(), std::move(item));
  return {&*added, [state, list, added](void *) {
            const std::lock_guard<std::mutex> turn(state->lock);
            ((*state).*list).erase(added);
          }};
}

}  // namespace

Activity::Activity() : state_(std::make_shared<State>()) {}

std::shared_ptr<void> Activity::begin(std::string what) const {
  const std::lock_guard<std::mutex> turn(state_->lock);
  return add(state_, &State::texts, std::move(what));
}

std::string Activity::text() const {
  const std::lock_guard<std::mutex> turn(state_->lock);
  std::string made;
  for (const std::string &each : state_->texts) made += (made.empty() ? "" : ", ") + each;
  return made;
}

void Activity::advance(imgconv_phase phase, size_t done, size_t total) const {
  const std::lock_guard<std::mutex> turn(state_->lock);
  state_->check();
  if (phase < state_->phase) return;
  state_->phase = phase;
  state_->done = done;
  state_->total = total;
}

void Activity::restart() const {
  const std::lock_guard<std::mutex> turn(state_->lock);
  state_->phase = IMGCONV_PHASE_OPEN;
}

void Activity::cancel() const {
  const std::lock_guard<std::mutex> turn(state_->lock);
  state_->is_cancelled = true;
}

bool Activity::is_cancelled() const {
  const std::lock_guard<std::mutex> turn(state_->lock);
  return state_->is_cancelled;
}

void Activity::tell(imgconv_progress progress, void *data) const {
  std::unique_lock<std::mutex> turn(state_->lock);
  if (state_->is_cancelled) return;
  const imgconv_phase phase = state_->phase;
  const size_t done = state_->done, total = state_->total;
  turn.unlock();
  if (progress(data, phase, done, total)) cancel();
}

void Activity::check() const {
  const std::lock_guard<std::mutex> turn(state_->lock);
  state_->check();
}

void Activity::set_abandonable(bool is_abandonable) const {
  const std::lock_guard<std::mutex> turn(state_->lock);
  state_->is_abandonable = false;
  state_->check();
  state_->is_abandonable = is_abandonable;
}

std::shared_ptr<void> Activity::at_abandon(std::function<void()> cleanup) const {
  const std::lock_guard<std::mutex> turn(state_->lock);
  state_->check();
  return add(state_, &State::cleanups, std::move(cleanup));
}

bool Activity::abandon() const {
  const std::lock_guard<std::mutex> turn(state_->lock);
  if (!state_->is_cancelled || !state_->is_abandonable) return false;
  for (const auto &cleanup : state_->cleanups) cleanup();
  return true;
}

// Shared with the threads, which outlive the Watchdog if a call took too long.
struct Watchdog::State {
  // Its work, and what came of it.
  struct Call {
    std::function<void()> work;
    std::exception_ptr problem;
    bool is_over = false;
  };

  explicit State(std::chrono::milliseconds most) : timeout(most) {}

  void serve() {
    std::unique_lock<std::mutex> turn(lock);
    for (;;) {
      called.wait(turn, [&] { return ending || !calls.empty(); });
      if (calls.empty()) return;
      const std::shared_ptr<Call> call = std::move(calls.front());
      calls.pop_front();
      --idle;
      turn.unlock();
      try {
        call->work();
      } catch (...) {
        call->problem = std::current_exception();
      }
      call->work = nullptr;  // releases what it owns, before the caller goes on
      turn.lock();
      ++idle;
      call->is_over = true;
      over.notify_all();
    }
  }

  // A cancelled call, and the threads that still work on it. The end of the process waits for them, because a driver
  // that ends while they use it crashes; but not longer than the call may take.
  struct AbandonedCall {
    std::shared_ptr<State> state;
    std::shared_ptr<Call> call;
    Clock::time_point end;
    std::vector<std::thread> threads;

    bool is_over(Clock::time_point until) const {
      std::unique_lock<std::mutex> turn(state->lock);
      return state->over.wait_until(turn, until, [&] { return call->is_over; });
    }
  };
  struct AbandonedCalls {
    std::mutex lock;
    std::list<AbandonedCall> list;

    void add(AbandonedCall added) {
      const std::lock_guard<std::mutex> turn(lock);
      list.push_back(std::move(added));
      for (auto each = list.begin(); each != list.end();) {
        if (!each->is_over(Clock::now())) {
          ++each;
          continue;
        }
        for (std::thread &thread : each->threads) thread.join();
        each = list.erase(each);
      }
    }
    void wait() {
      const std::lock_guard<std::mutex> turn(lock);
      for (AbandonedCall &each : list) {
        const bool is_over = each.is_over(each.end);
        for (std::thread &thread : each.threads) is_over ? thread.join() : thread.detach();
      }
      list.clear();
    }
  };
  static AbandonedCalls &abandoned_calls() {
    static AbandonedCalls *const all = new AbandonedCalls;  // which the end of the process does not destroy
    return *all;
  }

  const std::chrono::milliseconds timeout;
  std::mutex lock;
  std::condition_variable called, over;
  std::deque<std::shared_ptr<Call>> calls;  // that no thread has taken yet
  size_t idle = 0;                          // threads that wait for a call
  std::vector<std::thread> threads;
  bool ending = false;
  std::string given_up;  // why every call fails; empty as long as none took too long
};

Watchdog::Watchdog(std::chrono::milliseconds timeout) : state_(std::make_shared<State>(timeout)) {}

Watchdog::~Watchdog() {
  std::unique_lock<std::mutex> turn(state_->lock);
  state_->ending = true;
  state_->called.notify_all();
  const bool stuck = !state_->given_up.empty();
  turn.unlock();
  for (std::thread &each : state_->threads) stuck ? each.detach() : each.join();
}

void Watchdog::call(const std::string &what, std::function<void()> work, const std::function<void()> &look) {
  const auto call = std::make_shared<State::Call>();
  call->work = std::move(work);
  std::unique_lock<std::mutex> turn(state_->lock);
  State &state = *state_;
  if (state.given_up.empty()) {
    if (state.idle <= state.calls.size()) {
      state.threads.emplace_back([kept = state_] { kept->serve(); });
      ++state.idle;
    }
    state.calls.push_back(call);
    state.called.notify_one();
    const auto ended = [&] { return call->is_over || !state.given_up.empty(); };
    const Clock::time_point end = Clock::now() + state.timeout;
    while (look && !ended() && Clock::now() < end) {
      turn.unlock();
      look();
      const bool is_abandoned = activity_.abandon();
      turn.lock();
      if (is_abandoned) {
        state.ending = true;
        turn.unlock();
        State::abandoned_calls().add({state_, call, end, std::move(state.threads)});
        // Registered each time, so that it runs before what the driver has registered until now.
        std::atexit([] { State::abandoned_calls().wait(); });
        activity_.check();  // throws
      }
      state.over.wait_until(turn, std::min(end, Clock::now() + BETWEEN_LOOKS), ended);
    }
    if (!state.over.wait_until(turn, end, ended)) {
      const std::string doing = activity_.text();
      state.given_up = join("the device did not finish within ", static_cast<double>(state.timeout.count()) / 1e3,
                            " s (options.timeout_ms): it hangs, or the model asks for too much. Open the model ",
                            "again; if that fails too, start another process. It was ", what,
                            doing.empty() ? "" : ", ", doing);
      state.over.notify_all();
    }
  }
  if (!call->is_over) throw Error(IMGCONV_ERROR_TIMEOUT, state.given_up);
  if (call->problem) std::rethrow_exception(call->problem);
}

}  // namespace imgconv
