// Lines of text to tensors, and tensors to lines of text.

#ifndef T2T_KERAS_ROWS_H_
#define T2T_KERAS_ROWS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "tensorflow/c/tf_tensor.h"

// A line, or one column of it; it may hold any byte.
typedef struct {
  const char *at;
  size_t length;
} Text;

// Returns a tensor of one row for each text: a string, or the numbers in it if `type` is int32,
// padded with 0 on the right. It is freed by free_column.
TF_Tensor *to_column(const char *name, TF_DataType type, const Text *texts, size_t count);

void free_column(TF_Tensor *column);

// Prints the values of one row of an output with tabs between them. Inside of strings a tab, a line
// break and a backslash are printed as \t, \n and \\.
void print_row(FILE *file, const TF_Tensor *output, size_t row);

#endif  // T2T_KERAS_ROWS_H_
