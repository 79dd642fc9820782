// Built programs in a folder of the app, so that the next open does not compile them. A folder that cannot be used only
// costs time.
//
//     <hash>.program      MAGIC, checksum of the rest, length of the key, the key, the binary
//     <hash>.building     see build_mark.h
//
// The key is the device, its driver and the whole source: an entry is used if its key is equal, so that the hash need
// not be a strong one. An entry appears whole, by a rename, so that processes need no lock.
#pragma once

#include <string>

#include "device.h"

namespace imgconv {

// Where something about a program is kept; see above. suffix: "program", or of another kind of file.
std::string program_path(
    const std::string &folder, const DeviceInfo &info, const std::string &source, const char *suffix);

// The binary that was written for this device and source; empty if there is none. folder: empty for none.
std::string read_program(const std::string &folder, const DeviceInfo &info, const std::string &source);

void write_program(
    const std::string &folder, const DeviceInfo &info, const std::string &source, const std::string &binary);

}  // namespace imgconv
