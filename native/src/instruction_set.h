// The instruction set that a CPU's driver compiles for. The same text as imgconv/cl/instruction_set.py makes.
#pragma once

#include <cstdint>
#include <string>

namespace imgconv {

// The line for this machine's CPU.
std::string instruction_set(uint64_t vector_floats);

// The words of a text, with one blank between.
std::string words(const std::string &text);

}  // namespace imgconv
