// A reader of protobuf's wire format, just wide enough for MetaGraphDef.signature_def: a message
// is a row of fields, each a key (number << 3 | wire type) and a value. Numbers of the fields:
//   MetaGraphDef  signature_def = 5 (a map)        SignatureDef  inputs = 1, outputs = 2 (maps)
//   map entry     key = 1, value = 2               TensorInfo    name = 1, dtype = 2

#include "meta_graph.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

typedef struct {
  const uint8_t *at;
  const uint8_t *end;
} Bytes;

typedef struct {
  uint64_t number;
  uint64_t value;  // of a varint
  Bytes bytes;     // of a string, a message or a map entry
} Field;

static uint64_t read_varint(Bytes *message) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (message->at == message->end) break;
    uint8_t byte = *message->at++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail("the MetaGraphDef is damaged: a number has no end");
}

static Bytes take(Bytes *message, uint64_t length) {
  if (length > (uint64_t)(message->end - message->at)) {
    fail("the MetaGraphDef is damaged: a field is longer than its message");
  }
  Bytes taken = {message->at, message->at + length};
  message->at = taken.end;
  return taken;
}

static bool next_field(Bytes *message, Field *field) {
  if (message->at == message->end) return false;
  uint64_t key = read_varint(message);
  *field = (Field){.number = key >> 3};
  switch (key & 7) {
    case 0: field->value = read_varint(message); break;
    case 1: take(message, 8); break;
    case 2: field->bytes = take(message, read_varint(message)); break;
    case 5: take(message, 4); break;
    default: fail("the MetaGraphDef is damaged: wire type %d", (int)(key & 7));
  }
  return true;
}

// Returns the last field of this number, as protobuf has it, all 0 where there is none.
static Field find(Bytes message, uint64_t number) {
  Field field, found = {0};
  while (next_field(&message, &field)) {
    if (field.number == number) found = field;
  }
  return found;
}

static char *to_string(Bytes bytes) {
  size_t length = (size_t)(bytes.end - bytes.at);
  char *string = allocate(length + 1);
  if (length) memcpy(string, bytes.at, length);
  return string;
}

static Endpoint to_endpoint(Bytes entry) {
  Bytes tensor = find(entry, 2).bytes;
  Endpoint endpoint = {
      .name = to_string(find(entry, 1).bytes),
      .operation = to_string(find(tensor, 1).bytes),
      .type = (TF_DataType)find(tensor, 2).value,
  };
  char *colon = strrchr(endpoint.operation, ':');
  if (colon) {
    endpoint.index = atoi(colon + 1);
    *colon = '\0';
  }
  return endpoint;
}

static int by_name(const void *left, const void *right) {
  const char *names[] = {((const Endpoint *)left)->name, ((const Endpoint *)right)->name};
  int first = !strcmp(names[1], "text") - !strcmp(names[0], "text");
  return first ? first : strcmp(names[0], names[1]);
}

// A map has no order, so that the endpoints are given one.
static Endpoints to_endpoints(Bytes signature, uint64_t number) {
  Endpoints endpoints = {0};
  Field field;
  while (next_field(&signature, &field)) {
    if (field.number != number) continue;
    endpoints.items = resize(endpoints.items, (endpoints.count + 1) * sizeof(Endpoint));
    endpoints.items[endpoints.count++] = to_endpoint(field.bytes);
  }
  if (endpoints.count) qsort(endpoints.items, endpoints.count, sizeof(Endpoint), by_name);
  return endpoints;
}

Signature find_signature(const void *meta_graph, size_t length, const char *name) {
  Bytes message = {meta_graph, (const uint8_t *)meta_graph + length};
  char *others = to_string((Bytes){0});
  Field field;
  while (next_field(&message, &field)) {
    if (field.number != 5) continue;
    char *key = to_string(find(field.bytes, 1).bytes);
    if (!strcmp(key, name)) {
      Bytes signature = find(field.bytes, 2).bytes;
      free(others);
      free(key);
      return (Signature){to_endpoints(signature, 1), to_endpoints(signature, 2)};
    }
    if (strncmp(key, "__saved_model", 13) != 0) {  // the loader's own
      others = resize(others, strlen(others) + strlen(key) + 2);
      strcat(strcat(others, " "), key);
    }
    free(key);
  }
  fail("there is no signature '%s', only%s", name, others);
}

static void free_endpoints(Endpoints *endpoints) {
  for (size_t i = 0; i < endpoints->count; ++i) {
    free(endpoints->items[i].name);
    free(endpoints->items[i].operation);
  }
  free(endpoints->items);
}

void free_signature(Signature *signature) {
  free_endpoints(&signature->inputs);
  free_endpoints(&signature->outputs);
}
