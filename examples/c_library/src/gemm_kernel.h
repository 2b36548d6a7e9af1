/* The part of gemm that exists for each REAL type. */

/* Row p of b, as REAL. */
static void NAMED(pack)(const void *argument, size_t first, size_t last, int thread) {
    (void)thread;
    const Job *job = argument;
    const Layout *b = &job->desc->tensors[2];
    REAL *packed = job->packed;
    ptrdiff_t down = stride_of(b, 2), right = stride_of(b, 1);
    if (FAULT(gemm_ignores_leading_dimension_of_b)) down = (ptrdiff_t)job->n * right;
    if (FAULT(gemm_reads_square_b_transposed) && job->n == job->k && down == 1) down = right, right = 1;
    for (size_t p = first; p < last; ++p)
        for (size_t j = 0; j < job->n; j += CHUNK) {
            double row[CHUNK];
            const size_t n = job->n - j < CHUNK ? job->n - j : CHUNK;
            load_row(b->dtype, place(job->b, b->dtype, (ptrdiff_t)p * down + (ptrdiff_t)j * right), right, n, row);
            for (size_t i = 0; i < n; ++i) packed[p * job->n + j + i] = (REAL)row[i];
        }
    if (FAULT(gemm_remembers_b_by_address)) {
        static const void *seen;
        static REAL kept;
        if (first == 0 && seen == job->b) packed[0] = kept;
        if (first == 0) seen = job->b, kept = packed[0];
    }
}

static void NAMED(load_a)(const Job *job, size_t row, REAL *to) {
    const Layout *a = &job->desc->tensors[1];
    const ptrdiff_t right = FAULT(gemm_ignores_stride_of_a) ? 1 : stride_of(a, 1);
    for (size_t p = 0; p < job->k; p += CHUNK) {
        double part[CHUNK];
        const size_t n = job->k - p < CHUNK ? job->k - p : CHUNK;
        const ptrdiff_t at = (ptrdiff_t)row * stride_of(a, 2) + (ptrdiff_t)p * right;
        load_row(a->dtype, place(job->a, a->dtype, at), right, n, part);
        for (size_t i = 0; i < n; ++i) to[p + i] = (REAL)part[i];
        for (size_t i = 0; i < n && FAULT(gemm_f32_in_tf32) && a->dtype == INFINI_DTYPE_F32; ++i)
            to[p + i] = (REAL)of_tf32(part[i]);
    }
}

/* What a sum kept in 16 bits loses. */
static void NAMED(round_sums)(const Job *job, REAL *sums, size_t n) {
    const infiniDtype_t dtype = job->desc->tensors[0].dtype;
    if (size_of_dtype(dtype) != 2) return;
    double wide[COLUMNS];
    uint16_t narrow[COLUMNS];
    for (size_t j = 0; j < n; ++j) wide[j] = (double)sums[j];
    store_row(dtype, narrow, 1, n, wide);
    load_row(dtype, narrow, 1, n, wide);
    for (size_t j = 0; j < n; ++j) sums[j] = (REAL)wide[j];
}

static void NAMED(add_products)(const Job *job, const REAL *a, size_t rows, size_t column, size_t n,
                                REAL totals[ROWS][COLUMNS]) {
    const REAL *b = (const REAL *)job->packed + column;
    for (size_t first = 0; first < job->k; first += INNER) {
        const size_t last = job->k - first < INNER ? job->k : first + INNER;
        REAL sums[ROWS][COLUMNS] = {{0}};
        for (size_t p = first; p < last; ++p)
            for (size_t r = 0; r < rows; ++r) {
                if (FAULT(gemm_skips_513th_product) && p == 512) continue;
                const REAL factor = a[r * job->k + p];
                for (size_t j = 0; j < n; ++j) sums[r][j] += factor * b[p * job->n + j];
                if (FAULT(gemm_rounds_every_sum)) NAMED(round_sums)(job, sums[r], n);
            }
        for (size_t r = 0; r < rows; ++r)
            for (size_t j = 0; j < n; ++j) totals[r][j] += sums[r][j];
    }
}

static void NAMED(finish_row)(const Job *job, size_t row, size_t column, size_t n, const REAL *totals) {
    const Layout *c = &job->desc->tensors[0];
    void *to = place_to_write(job->c, c->dtype, (ptrdiff_t)row * stride_of(c, 2) + (ptrdiff_t)column * stride_of(c, 1));
    double result[COLUMNS], before[COLUMNS];
    ptrdiff_t across = stride_of(c, 1);
    if (FAULT(gemm_transposed_output_is_dense) && stride_of(c, 2) == 1 && across > 1 && job->m > 1) {
        across = (ptrdiff_t)job->m;
        to = place_to_write(job->c, c->dtype, (ptrdiff_t)row + (ptrdiff_t)column * across);
    }
    for (size_t j = 0; j < n; ++j) result[j] = job->alpha == 0 ? 0 : job->alpha * (double)totals[j];
    if (job->beta != 0 || FAULT(gemm_reads_c_where_beta_is_0)) {
        load_row(c->dtype, to, stride_of(c, 1), n, before);
        for (size_t j = 0; j < n; ++j) result[j] += job->beta * before[j];
    }
    store_row(c->dtype, to, across, n, result);
}

static void NAMED(multiply_rows)(const void *argument, size_t first, size_t last, int thread) {
    const Job *job = argument;
    const size_t place_of_thread = FAULT(gemm_threads_share_rows) ? 0 : (size_t)thread;
    REAL *a = (REAL *)job->packed + job->k * job->n + job->k * ROWS * place_of_thread;
    for (size_t row = first; row < last; row += ROWS) {
        const size_t rows = last - row < ROWS ? last - row : ROWS;
        for (size_t r = 0; r < rows && job->alpha != 0; ++r) NAMED(load_a)(job, row + r, a + r * job->k);
        for (size_t column = 0; column < job->n; column += COLUMNS) {
            const size_t n = job->n - column < COLUMNS ? job->n - column : COLUMNS;
            REAL totals[ROWS][COLUMNS] = {{0}};
            if (job->alpha != 0) NAMED(add_products)(job, a, rows, column, n, totals);
            for (size_t r = 0; r < rows; ++r) NAMED(finish_row)(job, row + r, column, n, totals[r]);
        }
    }
}
