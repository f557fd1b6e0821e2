// The signatures of a SavedModel, read out of the MetaGraphDef that its loader hands back.

#ifndef T2T_KERAS_META_GRAPH_H_
#define T2T_KERAS_META_GRAPH_H_

#include <stddef.h>

#include "tensorflow/c/tf_datatype.h"

// One input or output: its name in the signature and the tensor `operation:index` behind it.
typedef struct {
  char *name;
  char *operation;
  int index;
  TF_DataType type;
} Endpoint;

typedef struct {
  Endpoint *items;
  size_t count;
} Endpoints;

typedef struct {
  Endpoints inputs;   // `text` first, the others by name
  Endpoints outputs;  // by name
} Signature;

// Returns the signature of this name. Where there is none the program ends with an error that
// lists those there are.
Signature find_signature(const void *meta_graph, size_t length, const char *name);

void free_signature(Signature *signature);

#endif  // T2T_KERAS_META_GRAPH_H_
