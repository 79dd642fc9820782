// .npy files of numpy, version 1 to 3, row-major and little endian; other files are raw content.
#pragma once

#include <string>
#include <vector>

#include "imgconv.h"

// The content of a file for a tensor. Throws std::runtime_error if dtype, shape or size differ.
std::vector<char> read_array(const std::string &path, const imgconv_tensor &tensor);

// Writes a .npy file. Throws std::runtime_error.
void write_array(const std::string &path, const imgconv_tensor &tensor, const std::vector<char> &content);
