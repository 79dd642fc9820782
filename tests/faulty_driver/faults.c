/* Which faults are switched on, and when. */
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_FAULTS = 32 };

/* "name=value". Of fail= and stall= also: the function, its status or seconds, the calls that are meant, from the first
 * to the last one, and how many there were. */
struct fault { char *name, *value, *function; double number; long first, last, calls; };
static struct fault faults[MOST_FAULTS];
static int count;
cl_int state;

/* Takes "FUNCTION[:NUMBER][@N or @N-]" apart. */
static void parse_call(struct fault *each, double default_number) {
  each->function = strdup(each->value);
  char *at = strchr(each->function, '@'), *colon = strchr(each->function, ':');
  each->first = at ? strtol(at + 1, NULL, 10) : 1;
  each->last = !at || at[strlen(at) - 1] == '-' ? __LONG_MAX__ : each->first;
  each->number = colon ? strtod(colon + 1, NULL) : default_number;
  if (colon) *colon = 0;
  else if (at) *at = 0;
}

/* The memory of the faults before is not freed: another thread may still read it. */
void set_faults(const char *list) {
  count = 0;
  state = CL_COMPLETE;
  char *place = NULL;
  for (char *text = strtok_r(strdup(list ? list : ""), ";", &place); text; text = strtok_r(NULL, ";", &place)) {
    if (count == MOST_FAULTS) abort();
    struct fault each = {.name = text, .value = ""};
    char *equals = strchr(text, '=');
    if (equals) *equals = 0, each.value = equals + 1;
    if (!strcmp(text, "fail")) parse_call(&each, CL_OUT_OF_RESOURCES);
    if (!strcmp(text, "stall")) parse_call(&each, -1);
    faults[count++] = each;
  }
}

const char *fault(const char *name) {
  for (int i = 0; i < count; ++i) {
    if (!strcmp(faults[i].name, name)) return faults[i].value;
  }
  return NULL;
}

long fault_number(const char *name) {
  const char *value = fault(name);
  return value ? strtol(value, NULL, 10) : 0;
}

/* Counts a call; whether it is one that the fault means. */
static cl_bool meets(struct fault *each, const char *function) {
  if (!each->function || strcmp(each->function, function)) return CL_FALSE;
  const long call = __atomic_add_fetch(&each->calls, 1, __ATOMIC_SEQ_CST);
  if (call < each->first || call > each->last) return CL_FALSE;
  note("%s %s, call %ld", each->name, each->value, call);
  return CL_TRUE;
}

cl_int before(const char *function) {
  cl_int status = CL_SUCCESS;
  for (int i = 0; i < count; ++i) {
    if (!meets(&faults[i], function)) continue;
    if (!strcmp(faults[i].name, "stall")) block(faults[i].number);
    else status = (cl_int)faults[i].number;
  }
  return status;
}

cl_int executed(void) {
  for (int i = 0; i < count; ++i) {
    if (!meets(&faults[i], "execution")) continue;
    state = strcmp(faults[i].name, "stall") ? (cl_int)faults[i].number : CL_RUNNING;
  }
  return state;
}

void block(double seconds) {
  if (seconds < 0) seconds = 1e9;
  struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  while (nanosleep(&left, &left) && errno == EINTR) {}
}

void note(const char *format, ...) {
  const char *path = getenv("FAULTY_DRIVER_LOG");
  const int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0666) : -1;
  if (file < 0) return;
  char line[512];
  va_list values;
  va_start(values, format);
  vsnprintf(line, sizeof line - 1, format, values);
  va_end(values);
  strcat(line, "\n");
  if (write(file, line, strlen(line)) < 0) abort();
  close(file);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int find(const struct handles *set, const void *handle) {
  int i = 0;
  while (i < set->count && set->all[i] != handle) ++i;
  return i;
}

void remember(struct handles *set, const void *handle) {
  pthread_mutex_lock(&lock);
  if (find(set, handle) == set->count) {
    if (set->count == sizeof set->all / sizeof *set->all) abort();
    set->all[set->count++] = handle;
  }
  pthread_mutex_unlock(&lock);
}

void forget(struct handles *set, const void *handle) {
  pthread_mutex_lock(&lock);
  const int i = find(set, handle);
  if (i < set->count) set->all[i] = set->all[--set->count];
  pthread_mutex_unlock(&lock);
}

int knows(struct handles *set, const void *handle) {
  pthread_mutex_lock(&lock);
  const int found = find(set, handle) < set->count;
  pthread_mutex_unlock(&lock);
  return found;
}
