// Runs a SavedModel by TensorFlow's C API alone: proof that an export needs no Python.
//
//   client EXPORT OP_LIBRARY... --feed TENSOR... --fetch TENSOR...
//
// EXPORT is loaded as TF Serving loads it, by the tag `serve`, after the libraries of the tokenizer's
// ops. A TENSOR is operation:index, as a signature of the MetaGraphDef names its inputs and outputs.
// Standard input holds requests, a tensor for each feed; standard output gets a tensor for each fetch.
// A tensor is int32 dtype (a TF_DataType), int32 rank, int64 dims[rank], then its elements: raw bytes
// or, for a string, int64 length and bytes. An error is one line on standard error and exit code 1.

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

enum { MAX_TENSORS = 8, MAX_RANK = 8 };

_Noreturn static void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("error: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  exit(1);
}

static void check(const TF_Status *status) {
  if (TF_GetCode(status) != TF_OK) fail("%s", TF_Message(status));
}

static void read_bytes(void *to, size_t size) {
  if (size && fread(to, size, 1, stdin) != 1) fail("standard input ends within a tensor");
}

static void write_bytes(const void *from, size_t size) {
  if (size && fwrite(from, size, 1, stdout) != 1) fail("standard output cannot be written");
}

static TF_Tensor *read_tensor(void) {
  int32_t dtype, rank;
  int64_t dims[MAX_RANK], count = 1;
  read_bytes(&dtype, sizeof(dtype));
  read_bytes(&rank, sizeof(rank));
  if (rank < 0 || rank > MAX_RANK) fail("a tensor has rank %d: give 0 to %d", (int)rank, MAX_RANK);
  read_bytes(dims, (size_t)rank * sizeof(*dims));
  for (int axis = 0; axis < rank; ++axis) count *= dims[axis];
  size_t width = dtype == TF_STRING ? sizeof(TF_TString) : TF_DataTypeSize((TF_DataType)dtype);
  size_t size = (size_t)count * width;
  TF_Tensor *tensor = TF_AllocateTensor((TF_DataType)dtype, dims, rank, size);
  if (dtype != TF_STRING) {
    read_bytes(TF_TensorData(tensor), size);
    return tensor;
  }
  TF_TString *strings = TF_TensorData(tensor);
  for (int64_t i = 0; i < count; ++i) {
    int64_t length;
    read_bytes(&length, sizeof(length));
    TF_StringInit(&strings[i]);
    read_bytes(TF_TString_ResizeUninitialized(&strings[i], (size_t)length), (size_t)length);
  }
  return tensor;
}

static void free_input(TF_Tensor *tensor) {
  if (TF_TensorType(tensor) == TF_STRING) {
    TF_TString *strings = TF_TensorData(tensor);
    for (int64_t i = 0; i < TF_TensorElementCount(tensor); ++i) TF_StringDealloc(&strings[i]);
  }
  TF_DeleteTensor(tensor);
}

static void write_tensor(const TF_Tensor *tensor) {
  int32_t dtype = (int32_t)TF_TensorType(tensor), rank = TF_NumDims(tensor);
  write_bytes(&dtype, sizeof(dtype));
  write_bytes(&rank, sizeof(rank));
  for (int axis = 0; axis < rank; ++axis) {
    int64_t dim = TF_Dim(tensor, axis);
    write_bytes(&dim, sizeof(dim));
  }
  if (dtype != TF_STRING) {
    write_bytes(TF_TensorData(tensor), TF_TensorByteSize(tensor));
    return;
  }
  const TF_TString *strings = TF_TensorData(tensor);
  for (int64_t i = 0; i < TF_TensorElementCount(tensor); ++i) {
    int64_t length = (int64_t)TF_StringGetSize(&strings[i]);
    write_bytes(&length, sizeof(length));
    write_bytes(TF_StringGetDataPointer(&strings[i]), (size_t)length);
  }
}

static TF_Output find_tensor(TF_Graph *graph, char *name) {
  char *colon = strrchr(name, ':');
  if (!colon) fail("'%s' is no tensor: give operation:index", name);
  *colon = '\0';
  TF_Output tensor = {TF_GraphOperationByName(graph, name), atoi(colon + 1)};
  if (!tensor.oper) fail("the graph has no operation '%s'", name);
  return tensor;
}

int main(int count, char **arguments) {
  int feed = 0, fetch = 0;
  for (int i = 2; i < count; ++i) {
    if (!strcmp(arguments[i], "--feed")) feed = i;
    if (!strcmp(arguments[i], "--fetch")) fetch = i;
  }
  int inputs = fetch - feed - 1, outputs = count - fetch - 1;
  if (!feed || inputs < 1 || inputs > MAX_TENSORS || outputs < 1 || outputs > MAX_TENSORS) {
    fail("usage: client EXPORT OP_LIBRARY... --feed TENSOR... --fetch TENSOR...");
  }
  TF_Status *status = TF_NewStatus();
  for (int i = 2; i < feed; ++i) {
    TF_DeleteLibraryHandle(TF_LoadLibrary(arguments[i], status));  // the ops stay registered
    check(status);
  }
  TF_SessionOptions *options = TF_NewSessionOptions();
  TF_Graph *graph = TF_NewGraph();
  const char *tags[] = {"serve"};
  TF_Session *session = TF_LoadSessionFromSavedModel(
      options, NULL, arguments[1], tags, 1, graph, NULL, status);
  check(status);

  TF_Output feeds[MAX_TENSORS], fetches[MAX_TENSORS];
  TF_Tensor *values[MAX_TENSORS], *results[MAX_TENSORS];
  for (int i = 0; i < inputs; ++i) feeds[i] = find_tensor(graph, arguments[feed + 1 + i]);
  for (int i = 0; i < outputs; ++i) fetches[i] = find_tensor(graph, arguments[fetch + 1 + i]);
  for (int next; (next = getchar()) != EOF;) {
    ungetc(next, stdin);
    for (int i = 0; i < inputs; ++i) values[i] = read_tensor();
    TF_SessionRun(session, NULL, feeds, values, inputs, fetches, results, outputs,
                  NULL, 0, NULL, status);
    check(status);
    for (int i = 0; i < outputs; ++i) write_tensor(results[i]);
    for (int i = 0; i < outputs; ++i) TF_DeleteTensor(results[i]);
    for (int i = 0; i < inputs; ++i) free_input(values[i]);
  }
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  check(status);
  TF_DeleteGraph(graph);
  TF_DeleteSessionOptions(options);
  TF_DeleteStatus(status);
  if (fflush(stdout)) fail("standard output cannot be written");
  return 0;
}
