#include "check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

namespace imgconv {
namespace {

constexpr size_t LANES = 4;
constexpr int AGAIN = 2;  // times that a wrong launch is tried again
constexpr const char *TESTED[] = {"Intel(R) OpenCL", "Portable Computing Language", "rusticl"};

uint32_t drawn_bits(size_t element, size_t storage) {
  uint32_t x = static_cast<uint32_t>(element) + static_cast<uint32_t>(storage) * 2654435769u;
  x = (x ^ x >> 16) * 2146121005u;
  x = (x ^ x >> 15) * 2221713035u;
  return x ^ x >> 16;
}

// A number of -1 .. 1 with so many digits: a half holds 11, a float 24.
float drawn_number(uint32_t bits, int digits, bool positive) {
  const float number = static_cast<float>(bits >> (32 - digits)), largest = static_cast<float>(1 << digits);
  return positive ? (number + 1) / largest : number / (largest / 2) - 1;
}

// The channels of an image's texel that hold elements of the tensor: so many, from the first on.
size_t lanes_of(const Storage &storage, size_t x, size_t y, size_t layer) {
  const Texels &texels = storage.texels;
  const size_t slot = texels.along_y ? y / texels.tile_height : x / texels.tile_width;
  const size_t rows = (texels.height + texels.tile_height - 1) / texels.tile_height;
  const size_t tile = layer * texels.per_layer + slot;
  const size_t grid_x = tile / rows * texels.tile_width + x % texels.tile_width;
  const size_t grid_y = tile % rows * texels.tile_height + y % texels.tile_height;
  if (slot >= texels.per_layer || grid_x >= texels.width || grid_y >= texels.height) return 0;
  const size_t first = grid_x % texels.quads * LANES;
  return first < texels.channels ? std::min(texels.channels - first, LANES) : 0;
}

// Sets channels that hold no element to zero.
void clear_gaps(const Storage &storage, std::vector<uint8_t> &content) {
  if (storage.place == Place::buffer || !storage.texels.tile_width) return;
  const size_t bytes = dtype_bytes(storage.dtype);
  size_t texel = 0;
  for (size_t layer = 0; layer < storage.layers; ++layer) {
    for (size_t y = 0; y < storage.height; ++y) {
      for (size_t x = 0; x < storage.width; ++x, ++texel) {
        const size_t lanes = lanes_of(storage, x, y, layer);
        std::memset(content.data() + (texel * LANES + lanes) * bytes, 0, (LANES - lanes) * bytes);
      }
    }
  }
}

// The content of a storage that both sides draw: see Check in model.fbs.
std::vector<uint8_t> draw(const Storage &storage, size_t number, const Check &check) {
  std::vector<uint8_t> content(storage.bytes);
  const size_t count = storage.bytes / dtype_bytes(storage.dtype);
  const int digits = check.fine && storage.dtype == IMGCONV_FLOAT32 ? 24 : 11;
  const auto number_of = [&](size_t i) {
    const uint32_t bits = drawn_bits(i, number);
    return storage.whole ? static_cast<float>(bits >> 31) : drawn_number(bits, digits, check.positive);
  };
  if (storage.dtype == IMGCONV_FLOAT32) {
    float *const floats = reinterpret_cast<float *>(content.data());
    for (size_t i = 0; i < count; ++i) floats[i] = number_of(i);
  } else if (storage.dtype == IMGCONV_FLOAT16) {
    uint16_t *const halves = reinterpret_cast<uint16_t *>(content.data());
    for (size_t i = 0; i < count; ++i) halves[i] = to_half(number_of(i));
  } else {
    for (size_t i = 0; i < count; ++i) content[i] = static_cast<uint8_t>(drawn_bits(i, number) >> 24);
  }
  clear_gaps(storage, content);
  return content;
}

const char *name_of(Verdict verdict) {
  return verdict == Verdict::right ? "right" : verdict == Verdict::wrong ? "wrong" : "not covered";
}

const char *form_of(const Plan &plan, const Finding &finding) {
  const auto taken = plan.forms.find(static_cast<uint32_t>(finding.check));
  return plan.checks.empty() || taken == plan.forms.end() ? "own" : plan.checks[finding.check].name_of(taken->second);
}

const Launch &launch_of(const Plan &plan, size_t check) {
  const auto is_last = [&](const Launch &each) { return each.number == plan.checks[check].launch; };
  return *std::find_if(plan.launches.rbegin(), plan.launches.rend(), is_last);
}

}  // namespace

Finding Checking::check(size_t number, const BoundLaunch *instead) {
  const Check &check = plan_.checks[number];
  if (check.elements.empty()) return {number, Verdict::not_covered, check.reason, false};
  const std::vector<BoundLaunch> launches = launches_of(check, instead);
  run(check, launches, 1);
  Finding found{number, Verdict::right, compare(check), false};
  if (found.text.empty()) return found;
  found.verdict = Verdict::wrong;
  // Every launch twice: a driver that loses every second one must not lose the same again.
  for (int i = 0; i < AGAIN && !found.again; ++i) {
    run(check, launches, 2);
    found.again = compare(check).empty();
  }
  return found;
}

// Those that do the work of a check.
std::vector<BoundLaunch> Checking::launches_of(const Check &check, const BoundLaunch *instead) const {
  std::vector<BoundLaunch> found;
  for (const BoundLaunch &each : frame_.launches()) {
    const bool is_replaced = instead && each.launch->number == check.launch;
    if (check.covers(each.launch->number) && !is_replaced) found.push_back(each);
  }
  if (instead) found.push_back(*instead);
  return found;
}

// Runs launches, each so many times. What they read and none of them wrote is drawn before.
void Checking::run(const Check &check, const std::vector<BoundLaunch> &launches, int times) {
  std::set<uint32_t> known;
  for (const BoundLaunch &each : launches) {
    const std::vector<uint32_t> &arguments = each.launch->arguments;
    const auto doing = activity_.begin("launch '" + each.launch->name + "'");
    for (size_t i = 1; i < arguments.size(); ++i) {
      if (plan_.storages[arguments[i]].content < 0 && known.insert(arguments[i]).second) {
        upload(arguments[i], check);
      }
    }
    const Storage &written = plan_.storages[arguments[0]];
    if (known.insert(arguments[0]).second) shared_.memory.fill(written, frame_.memory(arguments[0]), OVERWRITTEN);
    for (int i = 0; i < times; ++i) each.enqueue(shared_.context, nullptr);
    shared_.context.finish("launch '", each.launch->name, "', kernel k", each.launch->kernel);
  }
}

void Checking::upload(uint32_t number, const Check &check) {
  const std::vector<uint8_t> content = draw(plan_.storages[number], number, check);
  shared_.memory.upload(plan_.storages[number], frame_.memory(number), content.data());
  shared_.context.finish("the check of launches");
}

// What is wrong; empty if nothing is.
std::string Checking::compare(const Check &check) {
  const Storage &storage = plan_.storages[check.storage];
  std::vector<uint8_t> content(storage.bytes);
  shared_.memory.download(storage, frame_.memory(check.storage), content.data());
  shared_.context.finish("the check of launches");
  size_t wrong = 0, worst = 0;
  for (size_t i = 0; i < check.elements.size(); ++i) {
    const double off = number_at(storage.dtype, content.data(), check.elements[i]) - double(check.values[i]);
    if (std::fabs(off) <= double(check.bounds[i])) continue;
    if (!wrong++) worst = i;
  }
  if (!wrong) return "";
  return join(wrong, " of ", check.elements.size(), " numbers are wrong: element ", check.elements[worst], " is ",
              number_at(storage.dtype, content.data(), check.elements[worst]), " in place of ", check.values[worst],
              ", at most ", check.bounds[worst], " off");
}

std::vector<Finding> check_launches(const Shared &shared, Frame &frame, const Activity &activity) {
  std::vector<Finding> found;
  Checking checking(shared, frame, activity);
  for (size_t number = 0; number < shared.plan.checks.size(); ++number) {
    activity.advance(IMGCONV_PHASE_CHECK, number, shared.plan.checks.size());
    found.push_back(checking.check(number));
  }
  frame.overwrite(0);
  shared.context.finish("the check of launches");
  return found;
}

bool are_right(const Shared &shared, Frame &frame, const Activity &activity) {
  const std::vector<Finding> found = check_launches(shared, frame, activity);
  return std::none_of(found.begin(), found.end(), [](const Finding &each) { return each.verdict == Verdict::wrong; });
}

std::string describe(const Plan &plan, const Finding &finding) {
  const Launch &launch = launch_of(plan, finding.check);
  const std::string &path = plan.kernels[launch.kernel].path;
  return join("launch '", launch.name, "' of nodes '", launch.origin, "', kernel ", path, ": ", finding.text);
}

std::string report(
    const Context &context, const Plan &plan, const std::vector<Finding> &findings, const std::string &frames) {
  std::string made;
  const auto add = [&](const std::string &name, const std::string &origin, const std::string &path, Verdict verdict,
                       const char *form, const std::string &text) {
    made += join(made.empty() ? "" : ",\n  ", "{\"name\": ", quoted(name), ", \"nodes\": ", quoted(origin),
                 ", \"kernel\": ", quoted(path), ", \"verdict\": ", quoted(name_of(verdict)), ", \"form\": ",
                 quoted(form), ", \"text\": ", quoted(text), "}");
  };
  for (const Launch &launch : plan.launches) {
    const auto covers = [&](const Finding &each) { return plan.checks[each.check].covers(launch.number); };
    const auto found = std::find_if(findings.begin(), findings.end(), covers);
    const Finding none{0, Verdict::not_covered, "the file has no check of it", false};
    const Finding &each = found == findings.end() ? none : *found;
    add(launch.name, launch.origin, plan.kernels[launch.kernel].path, each.verdict, form_of(plan, each), each.text);
  }
  if (plan.frame) {
    const Verdict verdict = frames.empty() ? Verdict::right : Verdict::wrong;
    add(frame_launch_name(*plan.frame), "", plan.frame->kernel.path, verdict, "own", frames);
  }
  return join("{\"device\": ", quoted(context.info.key()), ", \"build_options\": ", quoted(plan.build_options.text()),
              ", \"launches\": [\n  ", made, "]}\n");
}

bool is_tested_driver(const DeviceInfo &info) {
  const auto is_its = [&](const char *platform) { return info.platform == platform; };
  return info.kind == "cpu" && std::any_of(std::begin(TESTED), std::end(TESTED), is_its);
}

}  // namespace imgconv
