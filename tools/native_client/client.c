// Translates standard input with an exported SavedModel, on TensorFlow's C API: no Python.
//
// The model is loaded as TF Serving loads it, by the C++ loader and the tag `serve`, and the
// signature's tensors are found in the MetaGraphDef. See USAGE below; README.md says how to build.

#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "meta_graph.h"
#include "rows.h"
#include "tensorflow/c/c_api.h"

static const char USAGE[] =
    "usage: native_client EXPORT/1 [flags] < lines\n"
    "  --signature=NAME   which of the model's signatures to ask (serving_default)\n"
    "  --batch_size=N     lines of a request (32); 0: all lines in one, even if there are none\n"
    "  --all              print every output by its name, not only the translations\n"
    "A line is a text, or a row of ids with spaces between them. The columns of a signature with\n"
    "several inputs have a tab between them, `text` first and the others by name; a column that a\n"
    "line lacks gives that input one row less, which the model should refuse.";

// The ops of the tokenizers, which a model server has linked in; TEXT_OPS is set by build.sh.
static const char *const OP_LIBRARIES[] = {
    TEXT_OPS "/_sentencepiece_tokenizer.so",
    TEXT_OPS "/_wordpiece_tokenizer.so",
    TEXT_OPS "/_normalize_ops.so",
    TEXT_OPS "/_regex_split_ops.so",
};

typedef struct {
  const char *directory;
  const char *signature;
  size_t batch_size;
  bool all;
} Options;

typedef struct {
  TF_Graph *graph;
  TF_Session *session;
  Signature signature;
  bool all;
} Model;

static void check(const TF_Status *status) {
  if (TF_GetCode(status) != TF_OK) fail("%s", TF_Message(status));
}

static Model load(const Options *options) {
  TF_Status *status = TF_NewStatus();
  for (size_t i = 0; i < sizeof(OP_LIBRARIES) / sizeof(*OP_LIBRARIES); ++i) {
    TF_Library *library = TF_LoadLibrary(OP_LIBRARIES[i], status);
    check(status);
    TF_DeleteLibraryHandle(library);  // the ops stay registered
  }
  TF_SessionOptions *session_options = TF_NewSessionOptions();
  TF_Buffer *meta_graph = TF_NewBuffer();
  Model model = {.graph = TF_NewGraph(), .all = options->all};
  const char *tags[] = {"serve"};
  model.session = TF_LoadSessionFromSavedModel(session_options, NULL, options->directory, tags, 1,
                                               model.graph, meta_graph, status);
  check(status);
  model.signature = find_signature(meta_graph->data, meta_graph->length, options->signature);
  TF_DeleteBuffer(meta_graph);
  TF_DeleteSessionOptions(session_options);
  TF_DeleteStatus(status);
  return model;
}

static void unload(Model *model) {
  TF_Status *status = TF_NewStatus();
  TF_CloseSession(model->session, status);
  check(status);
  TF_DeleteSession(model->session, status);
  check(status);
  TF_DeleteGraph(model->graph);
  TF_DeleteStatus(status);
  free_signature(&model->signature);
}

static TF_Output *find_tensors(TF_Graph *graph, const Endpoints *endpoints) {
  TF_Output *tensors = allocate(endpoints->count * sizeof(TF_Output));
  for (size_t i = 0; i < endpoints->count; ++i) {
    const Endpoint *endpoint = &endpoints->items[i];
    tensors[i] = (TF_Output){TF_GraphOperationByName(graph, endpoint->operation), endpoint->index};
    if (!tensors[i].oper) {
      fail("%s is the tensor '%s', which is not in the graph", endpoint->name, endpoint->operation);
    }
  }
  return tensors;
}

// Cuts the column of this number off each line that has it; the last one keeps further tabs.
static size_t cut_column(const Text *lines, size_t count, size_t column, bool last, Text *cut) {
  size_t rows = 0;
  for (size_t line = 0; line < count; ++line) {
    const char *at = lines[line].at, *end = at + lines[line].length;
    for (size_t tabs = column; at && tabs; --tabs) {
      at = memchr(at, '\t', (size_t)(end - at));
      if (at) ++at;
    }
    if (!at) continue;
    const char *tab = last ? NULL : memchr(at, '\t', (size_t)(end - at));
    cut[rows++] = (Text){at, (size_t)((tab ? tab : end) - at)};
  }
  return rows;
}

static void print_outputs(const Model *model, TF_Tensor *const *values, size_t rows) {
  const Endpoints *outputs = &model->signature.outputs;
  bool strings = false;  // where a signature has texts, they are what is wanted
  for (size_t i = 0; i < outputs->count; ++i) {
    strings |= TF_TensorType(values[i]) == TF_STRING;
    if (TF_NumDims(values[i]) < 1 || (size_t)TF_Dim(values[i], 0) != rows) {
      fail("%s does not have one row for each of the request's %zu", outputs->items[i].name, rows);
    }
  }
  for (size_t row = 0; row < rows; ++row) {
    bool first = true;
    for (size_t i = 0; i < outputs->count; ++i) {
      if (model->all) {
        fputs(outputs->items[i].name, stdout);
        for (int axis = 1; axis < TF_NumDims(values[i]); ++axis) {
          printf("[%lld]", (long long)TF_Dim(values[i], axis));
        }
        fputc('\t', stdout);
      } else if (strings && TF_TensorType(values[i]) != TF_STRING) {
        continue;
      } else if (!first) {
        fputc('\t', stdout);
      }
      print_row(stdout, values[i], row);
      if (model->all) fputc('\n', stdout);
      first = false;
    }
    if (!model->all) fputc('\n', stdout);
  }
}

static void answer(const Model *model, const Text *lines, size_t count) {
  const Endpoints *inputs = &model->signature.inputs, *outputs = &model->signature.outputs;
  TF_Output *feeds = find_tensors(model->graph, inputs);
  TF_Output *fetches = find_tensors(model->graph, outputs);
  TF_Tensor **columns = allocate(inputs->count * sizeof(TF_Tensor *));
  TF_Tensor **values = allocate(outputs->count * sizeof(TF_Tensor *));
  Text *cut = allocate(count * sizeof(Text));
  for (size_t i = 0; i < inputs->count; ++i) {
    size_t rows = cut_column(lines, count, i, i + 1 == inputs->count, cut);
    columns[i] = to_column(inputs->items[i].name, inputs->items[i].type, cut, rows);
  }
  TF_Status *status = TF_NewStatus();
  TF_SessionRun(model->session, NULL, feeds, columns, (int)inputs->count, fetches, values,
                (int)outputs->count, NULL, 0, NULL, status);
  check(status);
  print_outputs(model, values, count);
  for (size_t i = 0; i < outputs->count; ++i) TF_DeleteTensor(values[i]);
  for (size_t i = 0; i < inputs->count; ++i) free_column(columns[i]);
  TF_DeleteStatus(status);
  free(cut);
  free(values);
  free(columns);
  free(fetches);
  free(feeds);
}

static void answer_all(const Model *model, size_t batch_size) {
  Text *lines = NULL;
  size_t count = 0, requests = 0;
  bool end = false;
  while (!end) {
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length = getline(&line, &capacity, stdin);
    end = length < 0;
    if (end) {
      if (ferror(stdin)) fail("standard input cannot be read: %s", strerror(errno));
      free(line);
    } else {
      if (length && line[length - 1] == '\n') line[--length] = '\0';
      lines = resize(lines, (count + 1) * sizeof(Text));
      lines[count++] = (Text){line, (size_t)length};
    }
    bool full = batch_size && count == batch_size;
    bool rest = end && (count || (!batch_size && !requests));
    if (full || rest) {
      answer(model, lines, count);
      ++requests;
      while (count) free((char *)lines[--count].at);
    }
  }
  free(lines);
}

static const char *value_of(const char *argument, const char *flag) {
  size_t length = strlen(flag);
  return strncmp(argument, flag, length) == 0 ? argument + length : NULL;
}

static Options read_options(int count, char **arguments) {
  Options options = {.signature = "serving_default", .batch_size = 32};
  for (int i = 1; i < count; ++i) {
    const char *argument = arguments[i], *value;
    if (!strcmp(argument, "--help")) {
      puts(USAGE);
      exit(0);
    } else if (!strcmp(argument, "--all")) {
      options.all = true;
    } else if ((value = value_of(argument, "--signature="))) {
      options.signature = value;
    } else if ((value = value_of(argument, "--batch_size="))) {
      char *end;
      long size = strtol(value, &end, 10);
      if (end == value || *end || size < 0) fail("--batch_size is '%s': give 0 or more", value);
      options.batch_size = (size_t)size;
    } else if (*argument == '-' || options.directory) {
      fail("unexpected argument '%s'\n%s", argument, USAGE);
    } else {
      options.directory = argument;
    }
  }
  if (!options.directory) fail("give the folder of the SavedModel\n%s", USAGE);
  return options;
}

int main(int count, char **arguments) {
  Options options = read_options(count, arguments);
  Model model = load(&options);
  answer_all(&model, options.batch_size);
  unload(&model);
  if (fflush(stdout) || ferror(stdout)) fail("standard output cannot be written");
  return 0;
}
