#include "fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void fail(const char *format, ...) {
  fflush(stdout);
  fputs("error: ", stderr);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(1);
}

void *allocate(size_t size) {
  void *memory = calloc(size ? size : 1, 1);
  if (!memory) fail("there is no memory for %zu bytes", size);
  return memory;
}

void *resize(void *memory, size_t size) {
  memory = realloc(memory, size ? size : 1);
  if (!memory) fail("there is no memory for %zu bytes", size);
  return memory;
}
