// How this program fails: a line on standard error, and exit code 1.

#ifndef T2T_KERAS_FAIL_H_
#define T2T_KERAS_FAIL_H_

#include <stddef.h>

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Returns memory of zeros, or fails.
void *allocate(size_t size);

// As realloc, or fails.
void *resize(void *memory, size_t size);

#endif  // T2T_KERAS_FAIL_H_
