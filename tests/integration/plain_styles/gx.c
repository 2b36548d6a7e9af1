#include "gx.h"
#include <math.h>
#include <stdlib.h>
#include <stdio.h>
static char err[128] = "";
static bool fail(const char *s) {
    snprintf(err, sizeof err, "%s", s);
    return false;
}
const char *gx_last_error(void) {
    return err;
}
void gx_params_default(gx_params *p) {
    p->n_threads = 1;
    p->norm.eps = 1e-6f;
    p->norm.fast = false;
    p->axes = 0;
    p->n_axes = 0;
}
static double get(const struct gx_tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    const char *p = (const char*)t->data + i0 * (ptrdiff_t)t->nb[0] + i1 * (ptrdiff_t)t->nb[1] + i2 *
                    (ptrdiff_t)t->nb[2] + i3 * (ptrdiff_t)t->nb[3];
    return t->type == GX_TYPE_F64 ? *(double*)p : t->type == GX_TYPE_F32 ? *(float*)p : *(int32_t*)p;
}
static void put(struct gx_tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3, double v) {
    char *p = (char*)t->data + i0 * (ptrdiff_t)t->nb[0] + i1 * (ptrdiff_t)t->nb[1] + i2 * (ptrdiff_t)t->nb[2] + i3 *
              (ptrdiff_t)t->nb[3];
    if (t->type == GX_TYPE_F64)*(double*)p = v;
    else *(float*)p = (float)v;
}
static int64_t n(const struct gx_tensor*t) {
    return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
}
static bool same(const struct gx_tensor*a, const struct gx_tensor*b) {
    for (int i = 0; i < 4; i++) if (a->ne[i] != b->ne[i]) return false;
    return a->type == b->type;
}
bool gx_rms_norm(const struct gx_tensor *x, const gx_params *p, struct gx_tensor *o) {
    if (!x || !p || !o) return fail("a pointer is NULL");
    if (!same(x, o)) return fail("x and out differ in shape or type");
    if (x->type == GX_TYPE_I32) return fail("integers");
    if (n(x) && (!x->data || !o->data)) return fail("no data");
    if (p->n_threads < 1) return fail("no threads");
    for (int64_t d = 0; d < x->ne[3]; d++)for (int64_t c = 0; c < x->ne[2]; c++)for (int64_t b = 0; b < x->ne[1]; b++) {
                double s = 0;
                for (int64_t a = 0; a < x->ne[0]; a++) {
                    double v = get(x, a, b, c, d);
                    s += v * v;
                }
#ifdef EPSILON_IGNORED
                s = 1 / sqrt(s / x->ne[0] + 1e-6);
#else
                s = 1 / sqrt(s / x->ne[0] + (double)p->norm.eps);
#endif
                for (int64_t a = 0; a < x->ne[0]; a++) put(o, a, b, c, d, get(x, a, b, c, d)*s);
            }
    return true;
}
bool gx_get_rows(const struct gx_tensor *t, const struct gx_tensor *ids, struct gx_tensor *o) {
    if (!t || !ids || !o) return fail("a pointer is NULL");
    if (ids->type != GX_TYPE_I32) return fail("ids are no int32");
    if (t->type != o->type) return fail("types differ");
    if (t->ne[2] != 1 || t->ne[3] != 1) return fail("table is no matrix");
    if (o->ne[0] != t->ne[0] || o->ne[1] != ids->ne[0] || o->ne[2] != ids->ne[1] || o->ne[3] != ids->ne[2]
            || ids->ne[3] != 1) return fail("shapes do not fit");
    if (n(o) && (!o->data || !ids->data || !t->data)) return fail("no data");
    for (int64_t d = 0; d < ids->ne[2]; d++)for (int64_t c = 0; c < ids->ne[1]; c++)for (int64_t b = 0; b < ids->ne[0];
                    b++) {
                int64_t r = get(ids, b, c, d, 0);
#ifdef INDICES_UNCHECKED
                if (r < 0 || r >= t->ne[1]) return true;
#else
                if (r < 0 || r >= t->ne[1]) return fail("an id is out of range");
#endif
            }
    for (int64_t d = 0; d < ids->ne[2]; d++)for (int64_t c = 0; c < ids->ne[1]; c++)for (int64_t b = 0; b < ids->ne[0];
                    b++) {
                int64_t r = get(ids, b, c, d, 0);
                for (int64_t a = 0; a < o->ne[0]; a++) put(o, a, b, c, d, get(t, a, r, 0, 0));
            }
    return true;
}
bool gx_permute(const struct gx_tensor *x, const int64_t *ax, int na, struct gx_tensor *o) {
    if (!x || !ax || !o || na < 1 || na > 4) return fail("bad axes");
    if (n(x) != n(o) || x->type != o->type) return fail("shape");
    if (n(x) && (!x->data || !o->data)) return fail("no data");
    int64_t xs[4];
    int64_t oi[4];
    for (oi[3] = 0; oi[3] < o->ne[3]; oi[3]++)for (oi[2] = 0; oi[2] < o->ne[2]; oi[2]++)for (oi[1] = 0;
                    oi[1] < o->ne[1]; oi[1]++)for (oi[0] = 0; oi[0] < o->ne[0]; oi[0]++) {
                    for (int i = 0; i < 4; i++) xs[i] = 0;
                    for (int i = 0; i < na; i++) {
                        int64_t a = ax[i] < 0 ? ax[i] + na : ax[i];
                        xs[na - 1 - a] = oi[na - 1 - i];
                    }
                    put(o, oi[0], oi[1], oi[2], oi[3], get(x, xs[0], xs[1], xs[2], xs[3]));
                }
    return true;
}
struct gx_operator {
    int kind;
    float lo, hi;
    size_t n;
    const float *x;
    float *y;
};
bool gx_create_clamp(float lo, float hi, enum gx_flags f, gx_operator_t *op) {
    if (!op) return fail("NULL");
    *op = calloc(1, sizeof **op);
    (*op)->kind = 1;
    (*op)->lo = lo;
    (*op)->hi = hi;
    return true;
}
bool gx_setup_clamp(gx_operator_t op, size_t b, const float*x, float*y) {
    if (!op || op->kind != 1) return fail("no clamp");
    if (b && (!x || !y)) return fail("no data");
    op->n = b / 4;
    op->x = x;
    op->y = y;
    return true;
}
bool gx_run(gx_operator_t op, void*tp) {
    if (!op) return fail("no operator");
    for (size_t i = 0; i < op->n; i++) {
        float v = op->x[i];
        if (v < op->lo)v = op->lo;
        if (v > op->hi)v = op->hi;
        op->y[i] = v;
    }
    return true;
}
void gx_delete(gx_operator_t op) {
    free(op);
}
