#include "lzma.h"

#include <algorithm>
#include <memory>

namespace imgconv {
namespace {

// Names and numbers are those of the LZMA specification (lzma-specification.txt of the LZMA SDK).
constexpr uint32_t LITERAL_CONTEXT_BITS = 3, POSITION_STATES = 4, STATES = 12, MIN_MATCH = 2;
constexpr uint32_t LITERAL_PROBABILITIES = 0x300, LENGTH_STATES = 4, END_OF_POSITION_MODEL = 14, ALIGN_BITS = 4;
constexpr uint32_t ONE_BYTE = 4;

// The probability that a bit is 0, out of 2048.
struct Probability {
  uint16_t value = 1024;
};

class RangeDecoder {
 public:
  RangeDecoder(const uint8_t *data, size_t bytes) : next_(data), end_(data + bytes) {
    failed_ = next_byte() != 0;
    for (int i = 0; i < 4; ++i) code_ = code_ << 8 | next_byte();
  }

  // Whether it was read past the end of the data.
  bool failed() const { return failed_; }

  uint32_t bit(Probability &probability) {
    const uint32_t value = probability.value, bound = (range_ >> 11) * value;
    const bool one = code_ >= bound;
    if (one) {
      range_ -= bound;
      code_ -= bound;
      probability.value = static_cast<uint16_t>(value - (value >> 5));
    } else {
      range_ = bound;
      probability.value = static_cast<uint16_t>(value + ((2048 - value) >> 5));
    }
    normalise();
    return one;
  }

  // Bits of equal probability, the highest first.
  uint32_t direct(uint32_t count) {
    uint32_t value = 0;
    for (; count; --count) {
      range_ >>= 1;
      const bool one = code_ >= range_;
      if (one) code_ -= range_;
      normalise();
      value = value << 1 | uint32_t(one);
    }
    return value;
  }

  // A number of `count` bits by a tree of probabilities, of which probabilities[1] is the root; the highest bit first.
  uint32_t tree(Probability *probabilities, uint32_t count) {
    uint32_t node = 1;
    for (uint32_t i = 0; i < count; ++i) node = node << 1 | bit(probabilities[node]);
    return node - (1u << count);
  }

  // The same, the lowest bit first.
  uint32_t reverse_tree(Probability *probabilities, uint32_t count) {
    uint32_t node = 1, value = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t found = bit(probabilities[node]);
      node = node << 1 | found;
      value |= found << i;
    }
    return value;
  }

 private:
  uint8_t next_byte() {
    if (next_ != end_) return *next_++;
    failed_ = true;
    return 0;
  }

  void normalise() {
    if (range_ >= 1u << 24) return;
    range_ <<= 8;
    code_ = code_ << 8 | next_byte();
  }

  const uint8_t *next_, *end_;
  uint32_t range_ = 0xFFFFFFFFu, code_ = 0;
  bool failed_ = false;
};

struct LengthDecoder {
  Probability choice, choice2, low[POSITION_STATES][8], middle[POSITION_STATES][8], high[256];

  uint32_t decode(RangeDecoder &range, uint32_t position_state) {
    if (!range.bit(choice)) return range.tree(low[position_state], 3);
    if (!range.bit(choice2)) return 8 + range.tree(middle[position_state], 3);
    return 16 + range.tree(high, 8);
  }
};

class Decoder {
 public:
  Decoder(const uint8_t *data, size_t bytes, uint8_t *out, size_t size) : range_(data, bytes), out_(out), size_(size) {}

  bool decode() {
    while (at_ < size_ && !range_.failed()) {
      const uint32_t position_state = at_ & (POSITION_STATES - 1);
      if (!range_.bit(is_match_[state_][position_state])) {
        literal();
      } else if (!match(position_state)) {
        return false;
      }
    }
    return !range_.failed();
  }

 private:
  void literal() {
    const uint32_t before = at_ ? out_[at_ - 1] : 0;
    Probability *const probabilities = literals_ + LITERAL_PROBABILITIES * (before >> (8 - LITERAL_CONTEXT_BITS));
    uint32_t symbol = 1;
    if (state_ >= 7) {
      uint32_t expected = out_[at_ - repeated_[0] - 1];
      while (symbol < 0x100) {
        const uint32_t guess = expected >> 7 & 1, found = range_.bit(probabilities[((1 + guess) << 8) + symbol]);
        expected <<= 1;
        symbol = symbol << 1 | found;
        if (guess != found) break;
      }
    }
    while (symbol < 0x100) symbol = symbol << 1 | range_.bit(probabilities[symbol]);
    out_[at_++] = static_cast<uint8_t>(symbol);
    state_ = state_ < 4 ? 0 : state_ < 10 ? state_ - 3 : state_ - 6;
  }

  // Copies what was made before. Returns false if there is not so much, or no room.
  bool match(uint32_t position_state) {
    uint32_t length = 0;
    if (!range_.bit(is_repeated_[state_])) {
      std::copy_backward(repeated_, repeated_ + 3, repeated_ + 4);
      length = lengths_.decode(range_, position_state);
      state_ = state_ < 7 ? 7 : 10;
      repeated_[0] = distance(length);
    } else if (const uint32_t number = repeated_number(position_state); number == ONE_BYTE) {
      state_ = state_ < 7 ? 9 : 11;
      return copy(1);
    } else {
      std::rotate(repeated_, repeated_ + number, repeated_ + number + 1);
      length = repeated_lengths_.decode(range_, position_state);
      state_ = state_ < 7 ? 8 : 11;
    }
    return copy(length + MIN_MATCH);
  }

  // Which of the last four distances is taken again; ONE_BYTE: the first, for a single byte.
  uint32_t repeated_number(uint32_t position_state) {
    if (!range_.bit(is_first_[state_])) return range_.bit(is_long_[state_][position_state]) ? 0 : ONE_BYTE;
    if (!range_.bit(is_second_[state_])) return 1;
    return range_.bit(is_third_[state_]) ? 3 : 2;
  }

  uint32_t distance(uint32_t length) {
    const uint32_t slot = range_.tree(slots_[std::min(length, LENGTH_STATES - 1)], 6);
    if (slot < 4) return slot;
    const uint32_t bits = (slot >> 1) - 1, base = (2 | (slot & 1)) << bits;
    if (slot < END_OF_POSITION_MODEL) return base + range_.reverse_tree(positions_ + base - slot, bits);
    const uint32_t middle = range_.direct(bits - ALIGN_BITS) << ALIGN_BITS;
    return base + middle + range_.reverse_tree(align_, ALIGN_BITS);
  }

  bool copy(size_t length) {
    if (repeated_[0] >= at_ || length > size_ - at_) return false;
    for (const uint8_t *from = out_ + at_ - repeated_[0] - 1; length; --length) out_[at_++] = *from++;
    return true;
  }

  RangeDecoder range_;
  uint8_t *const out_;
  const size_t size_;
  size_t at_ = 0;
  uint32_t state_ = 0, repeated_[4] = {};  // the last four distances
  Probability is_match_[STATES][POSITION_STATES], is_long_[STATES][POSITION_STATES];
  Probability is_repeated_[STATES], is_first_[STATES], is_second_[STATES], is_third_[STATES];
  Probability slots_[LENGTH_STATES][64], positions_[128], align_[1 << ALIGN_BITS];
  Probability literals_[LITERAL_PROBABILITIES << LITERAL_CONTEXT_BITS];
  LengthDecoder lengths_, repeated_lengths_;
};

}  // namespace

bool decode_lzma(const uint8_t *data, size_t bytes, uint8_t *out, size_t size) {
  return std::make_unique<Decoder>(data, bytes, out, size)->decode();
}

}  // namespace imgconv
