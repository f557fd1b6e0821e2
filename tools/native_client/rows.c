#include "rows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "tensorflow/c/tf_tstring.h"

static TF_Tensor *to_strings(const Text *texts, size_t count) {
  int64_t dims[] = {(int64_t)count};
  TF_Tensor *tensor = TF_AllocateTensor(TF_STRING, dims, 1, count * sizeof(TF_TString));
  TF_TString *strings = TF_TensorData(tensor);
  for (size_t row = 0; row < count; ++row) {
    TF_StringInit(&strings[row]);
    TF_StringCopy(&strings[row], texts[row].at, texts[row].length);
  }
  return tensor;
}

// Reads the numbers of a line, spaces between them; returns how many. `ids` may be NULL.
static size_t read_ids(const char *name, Text line, int32_t *ids) {
  const char *at = line.at, *end = line.at + line.length;
  size_t count = 0;
  while ((at += strspn(at, " ")) < end) {
    char *stop;
    errno = 0;
    long long id = strtoll(at, &stop, 10);
    if (stop == at || (stop != end && *stop != ' ') || errno || id != (int32_t)id) {
      fail("%s takes whole numbers with spaces between them, not '%.40s'", name, at);
    }
    if (ids) ids[count] = (int32_t)id;
    ++count;
    at = stop;
  }
  return count;
}

static TF_Tensor *to_ids(const char *name, const Text *texts, size_t count) {
  size_t longest = 0;
  for (size_t row = 0; row < count; ++row) {
    size_t length = read_ids(name, texts[row], NULL);
    if (length > longest) longest = length;
  }
  int64_t dims[] = {(int64_t)count, (int64_t)longest};
  size_t size = count * longest * sizeof(int32_t);
  TF_Tensor *tensor = TF_AllocateTensor(TF_INT32, dims, 2, size);
  int32_t *ids = TF_TensorData(tensor);
  if (size) memset(ids, 0, size);
  for (size_t row = 0; row < count; ++row) read_ids(name, texts[row], ids + row * longest);
  return tensor;
}

TF_Tensor *to_column(const char *name, TF_DataType type, const Text *texts, size_t count) {
  switch (type) {
    case TF_STRING: return to_strings(texts, count);
    case TF_INT32: return to_ids(name, texts, count);
    default: fail("%s has type %d: only strings and int32 can be given", name, (int)type);
  }
}

void free_column(TF_Tensor *column) {
  if (TF_TensorType(column) == TF_STRING) {
    TF_TString *strings = TF_TensorData(column);
    int64_t count = TF_TensorElementCount(column);
    for (int64_t i = 0; i < count; ++i) TF_StringDealloc(&strings[i]);
  }
  TF_DeleteTensor(column);
}

static void print_string(FILE *file, const TF_TString *string) {
  const char *at = TF_StringGetDataPointer(string);
  for (const char *end = at + TF_StringGetSize(string); at != end; ++at) {
    switch (*at) {
      case '\t': fputs("\\t", file); break;
      case '\n': fputs("\\n", file); break;
      case '\\': fputs("\\\\", file); break;
      default: fputc(*at, file);
    }
  }
}

void print_row(FILE *file, const TF_Tensor *output, size_t row) {
  size_t count = 1;  // of the values in a row
  for (int axis = 1; axis < TF_NumDims(output); ++axis) count *= (size_t)TF_Dim(output, axis);
  const void *data = TF_TensorData(output);
  for (size_t i = row * count; i < (row + 1) * count; ++i) {
    if (i > row * count) fputc('\t', file);
    switch (TF_TensorType(output)) {
      case TF_STRING: print_string(file, (const TF_TString *)data + i); break;
      case TF_FLOAT: fprintf(file, "%.9g", ((const float *)data)[i]); break;
      case TF_INT32: fprintf(file, "%" PRId32, ((const int32_t *)data)[i]); break;
      case TF_INT64: fprintf(file, "%" PRId64, ((const int64_t *)data)[i]); break;
      case TF_BOOL: fputs(((const uint8_t *)data)[i] ? "true" : "false", file); break;
      default: fail("an output has type %d, which cannot be printed", TF_TensorType(output));
    }
  }
}
