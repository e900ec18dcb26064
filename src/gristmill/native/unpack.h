// One row of a packed weight as float32, number by number: for embeddings.
#pragma once
#include "matrix.h"

namespace gristmill {

// out[cols] = row `row` of matrix `matrix`.
void unpack_row(const Matrix& w, int matrix, int row, float* out);

}  // namespace gristmill
