#include "nnd.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct nnd_context {
    int magic;
};
#define MAXD 8
struct nnd_tensor_s {
    int dtype, n, d[MAXD], s[MAXD];
    const int *told;
};
struct nnd_conv_s {
    int n, p[3], st[3], di[3], g;
};
nnd_status_t nnd_create(nnd_handle_t *h) {
    if (!h) return NND_BAD_PARAM;
    *h = malloc(sizeof **h);
    (*h)->magic = 42;
    return NND_SUCCESS;
}
nnd_status_t nnd_destroy(nnd_handle_t h) {
    free(h);
    return NND_SUCCESS;
}
const char *nnd_status_string(nnd_status_t s) {
    switch (s) {
    case 0:
        return "success";
    case 1:
        return "a parameter is bad";
    case 2:
        return "not supported";
    case 3:
        return "out of memory";
    case 4:
        return "the workspace is too small";
    }
    return "?";
}
nnd_status_t nnd_tensor_create(nnd_tensor_t *d) {
    *d = calloc(1, sizeof **d);
    return NND_SUCCESS;
}
nnd_status_t nnd_tensor_set_nd(nnd_tensor_t t, nnd_dtype_t ty, int n, const int d[], const int s[]) {
    if (!t || n < 0) return NND_BAD_PARAM;
    if (n > MAXD || (ty != NND_FLOAT && ty != NND_DOUBLE)) return NND_NOT_SUPPORTED;
    t->dtype = ty;
    t->n = n;
    t->told = d;
    for (int i = 0; i < n; i++) {
        t->d[i] = d[i];
        t->s[i] = s[i];
    }
    return NND_SUCCESS;
}
nnd_status_t nnd_tensor_destroy(nnd_tensor_t t) {
#ifdef SOME_DESCRIPTORS_LEAK
    static unsigned ended;
    if (++ended % 64 == 0 && !malloc(4096)) return NND_ALLOC_FAILED;
#endif
#ifndef DESCRIPTORS_LEAK
    free(t);
#endif
    return NND_SUCCESS;
}
static long count(nnd_tensor_t t) {
    long c = 1;
    for (int i = 0; i < t->n; i++) c *=
#ifdef ARRAY_IS_KEPT
                                        t->told[i]
#else
                                        t->d[i]
#endif
                                        ;
    return c;
}
static long at(nnd_tensor_t t, nnd_tensor_t like, long i) {
    long o = 0;
    for (int k = like->n - 1; k >= 0; k--) {
        int j = i % like->d[k];
        i /= like->d[k];
        if (t->d[k] != 1 || like->d[k] == 1) o += (long)j * t->s[k];
    }
    return o;
}
static int same(nnd_tensor_t a, nnd_tensor_t b) {
    if (a->n != b->n) return 0;
    for (int i = 0; i < a->n; i++) if (a->d[i] != b->d[i]) return 0;
    return 1;
}
static int overlaps_itself(nnd_tensor_t t) { /* sorted by stride, each step clears the span before it */
    long span = 0;
    int used[MAXD] = {0};
    for (int r = 0; r < t->n; r++) {
        int best = -1;
        for (int i = 0; i < t->n; i++) if (!used[i] && t->d[i] > 1 && (best < 0
                                               || labs((long)t->s[i]) < labs((long)t->s[best]))) best = i;
        if (best < 0) break;
        used[best] = 1;
        if (labs((long)t->s[best]) <= span) return 1;
        span += labs((long)t->s[best]) * (t->d[best] - 1);
    }
    return 0;
}
static double get(const void *p, int ty, long i) {
    return ty == NND_FLOAT ? ((const float*)p)[i] : ((const double*)p)[i];
}
static void put(void *p, int ty, long i, double v) {
    if (ty == NND_FLOAT) ((float*)p)[i] = (float)v;
    else ((double*)p)[i] = v;
}
nnd_status_t nnd_activation(nnd_handle_t h, nnd_act_t m, const void *al, nnd_tensor_t xd, const void *x,
                            const void *be, nnd_tensor_t yd, void *y) {
    if (!h || h->magic != 42 || !xd || !yd || !al || !be) return NND_BAD_PARAM;
#ifndef SHAPES_UNCHECKED
    if (!same(xd, yd)) {
#ifdef REFUSALS_LEAK
        return malloc(24) ? NND_BAD_PARAM : NND_ALLOC_FAILED;
#endif
#ifdef REFUSALS_OPEN_FILES
        return fopen("/dev/null", "r") ? NND_BAD_PARAM : NND_ALLOC_FAILED;
#endif
        return NND_BAD_PARAM;
    }
#endif
    if (xd->dtype != yd->dtype || overlaps_itself(yd)) return NND_BAD_PARAM;
    long n = count(yd);
    if (n && (!x || !y)) return NND_BAD_PARAM;
    double a = get(al, xd->dtype, 0), b = get(be, xd->dtype, 0);
    for (long i = 0; i < n; i++) {
#ifdef STRIDES_IGNORED
        double v = get(x, xd->dtype, i);
#else
        double v = get(x, xd->dtype, at(xd, yd, i));
#endif
        double r;
        if (m == NND_ACT_RELU) r = v < 0 ? 0 : v;
        else if (m == NND_ACT_TANH) r = tanh(v);
        else r = 1 / (1 + exp(-v));
        long o = at(yd, yd, i);
        r *= a;
        if (b != 0) r += b * get(y, yd->dtype, o);
        put(y, yd->dtype, o, r);
    }
    return NND_SUCCESS;
}
nnd_status_t nnd_op_tensor(nnd_handle_t h, nnd_op_t op, const void *a1, nnd_tensor_t ad, const void *a,
                           const void *a2, nnd_tensor_t bd, const void *b, const void *be, nnd_tensor_t cd, void *c) {
    if (!h || !ad || !bd || !cd || !a1 || !a2 || !be) return NND_BAD_PARAM;
    if (ad->dtype != cd->dtype || bd->dtype != cd->dtype || !same(ad, cd) || bd->n != cd->n
            || overlaps_itself(cd)) return NND_BAD_PARAM;
    for (int i = 0; i < bd->n; i++) if (bd->d[i] != 1 && bd->d[i] != cd->d[i]) return NND_BAD_PARAM;
    long n = count(cd);
    if (n && (!a || !b || !c)) return NND_BAD_PARAM;
    int ty = cd->dtype;
    double f = get(a1, ty, 0), g = get(a2, ty, 0), be_ = get(be, ty, 0);
    for (long i = 0; i < n; i++) {
        double u = f * get(a, ty, at(ad, cd, i)), v = g * get(b, ty, at(bd, cd, i)), r;
        switch (op) {
        case NND_OP_ADD:
            r = u + v;
            break;
        case NND_OP_MUL:
            r = u * v;
            break;
        case NND_OP_MIN:
            r = (isnan(u) || u < v) ? u : v;
            break;
        default:
            r = (isnan(u) || u > v) ? u : v;
        }
        long o = at(cd, cd, i);
        if (be_ != 0) r += be_ * get(c, ty, o);
        put(c, ty, o, r);
    }
    return NND_SUCCESS;
}
nnd_status_t nnd_softmax_workspace(nnd_handle_t h, nnd_tensor_t x, size_t *bytes) {
    if (!h || !x || !bytes || x->n < 1) return NND_BAD_PARAM;
    *bytes = sizeof(double) * x->d[x->n - 1];
    return NND_SUCCESS;
}
nnd_status_t nnd_softmax(nnd_handle_t h, nnd_tensor_t xd, const void *x, void *ws, size_t bytes, nnd_tensor_t yd,
                         void *y) {
    if (!h || !xd || !yd || xd->n < 1 || !same(xd, yd) || xd->dtype != yd->dtype
            || overlaps_itself(yd)) return NND_BAD_PARAM;
    long n = count(xd);
    if (!n) return NND_SUCCESS;
    if (!x || !y) return NND_BAD_PARAM;
    int k = xd->d[xd->n - 1];
    if (bytes < sizeof(double)*k || !ws) return NND_BAD_WORKSPACE;
    double *w = ws;
    for (long r = 0; r < n / k; r++) {
        double m = -INFINITY, s = 0;
#ifdef WORKSPACE_OVERRUN
        w[k] = 0;
#endif
#ifdef WORKSPACE_STALE
        s = w[0] * 0 + (w[k - 1] == 0);
#endif
        for (int j = 0; j < k; j++) {
            w[j] = get(x, xd->dtype, at(xd, xd, r * k + j));
            if (!(w[j] <= m)) m = w[j];
        }
        for (int j = 0; j < k; j++) {
            w[j] = exp(w[j] - m);
            s += w[j];
        }
        for (int j = 0; j < k; j++) put(y, yd->dtype, at(yd, yd, r * k + j), w[j] / s);
    }
    return NND_SUCCESS;
}
nnd_status_t nnd_conv_create(nnd_conv_t *c) {
    *c = calloc(1, sizeof **c);
    return 0;
}
nnd_status_t nnd_conv_set(nnd_conv_t c, int n, const int p[], const int s[], const int d[], int g) {
    if (!c || n < 1 || n > 3 || g < 1) return NND_BAD_PARAM;
    c->n = n;
    c->g = g;
    for (int i = 0; i < n; i++) {
        if (p[i] < 0 || s[i] < 1 || d[i] < 1) return NND_BAD_PARAM;
        c->p[i] = p[i];
        c->st[i] = s[i];
        c->di[i] = d[i];
    }
    return 0;
}
nnd_status_t nnd_conv_destroy(nnd_conv_t c) {
    free(c);
    return 0;
}
nnd_status_t nnd_conv_forward_workspace(nnd_handle_t h, nnd_tensor_t x, nnd_tensor_t w, nnd_conv_t c,
                                        nnd_tensor_t y, size_t *bytes) {
    if (!h || !x || !w || !c || !y || !bytes) return NND_BAD_PARAM;
    *bytes = 8 * sizeof(double);
    return 0;
}
nnd_status_t nnd_conv_forward(nnd_handle_t h, nnd_tensor_t xd, const void *x, nnd_tensor_t wd, const void *w,
                              nnd_conv_t c, nnd_tensor_t bd, const void *b, void *ws, size_t bytes, nnd_tensor_t yd, void *y) {
    if (!h || !xd || !wd || !c || !yd || xd->n != 4 || wd->n != 4 || yd->n != 4 || c->n != 2) return NND_BAD_PARAM;
    if (xd->dtype != wd->dtype || yd->dtype != xd->dtype || overlaps_itself(yd)) return NND_BAD_PARAM;
    if (bd && (bd->n != 1 || bd->d[0] != wd->d[0] || bd->dtype != xd->dtype || !b)) return NND_BAD_PARAM;
    int N = xd->d[0], C = xd->d[1], O = wd->d[0], CG = wd->d[1];
    if (CG * c->g != C || O % c->g) return NND_BAD_PARAM;
    if (yd->d[0] != N || yd->d[1] != O) return NND_BAD_PARAM;
    for (int i = 0; i < 2; i++) {
        int span = xd->d[2 + i] + 2 * c->p[i] - c->di[i] * (wd->d[2 + i] - 1) - 1;
        if (span < 0 || yd->d[2 + i] != span / c->st[i] + 1) return NND_BAD_PARAM;
    }
    if (count(yd) && (!y || (count(xd) && !x) || (count(wd) && !w))) return NND_BAD_PARAM;
    if (bytes < 8 * sizeof(double) || !ws) return NND_BAD_WORKSPACE;
    double *acc = ws;
    int ty = xd->dtype;
    for (int n = 0; n < N; n++)for (int o = 0; o < O; o++)for (int oy = 0; oy < yd->d[2]; oy++)for (int ox = 0;
                        ox < yd->d[3]; ox++) {
                    acc[0] = 0;
                    int g = o / (O / c->g);
                    for (int ci = 0; ci < CG; ci++)for (int ky = 0; ky < wd->d[2]; ky++)for (int kx = 0; kx < wd->d[3]; kx++) {
                                int iy = oy * c->st[0] - c->p[0] + ky *
#ifdef DILATION_OF_THE_OTHER_AXIS
                                         c->di[1]
#else
                                         c->di[0]
#endif
                                         , ix = ox * c->st[1] - c->p[1] + kx * c->di[1];
                                if (iy < 0 || ix < 0 || iy >= xd->d[2] || ix >= xd->d[3]) continue;
                                acc[0] += get(x, ty, (long)n * xd->s[0] + (long)(g * CG + ci) * xd->s[1] + (long)iy * xd->s[2] +
                                              (long)ix * xd->s[3]) * get(w, ty, (long)o * wd->s[0] + (long)ci * wd->s[1] + (long)ky * wd->s[2] +
                                                      (long)kx * wd->s[3]);
                            }
                    if (bd) acc[0] += get(b, ty, (long)o * bd->s[0]);
                    put(y, ty, (long)n * yd->s[0] + (long)o * yd->s[1] + (long)oy * yd->s[2] + (long)ox * yd->s[3], acc[0]);
                }
    return 0;
}
static nnd_status_t put_tokens(nnd_tensor_t td, const void *t, int count, const int64_t *slots, nnd_tensor_t cd, void *c) {
    if (!td || !cd || td->n != 3 || cd->n != 4 || td->dtype != cd->dtype || td->d[0] != count || td->d[1] != cd->d[1]
            || td->d[2] != cd->d[3] || overlaps_itself(cd)) return NND_BAD_PARAM;
    if (count && (!t || !c || !slots)) return NND_BAD_PARAM;
    for (int i = 0; i < count; i++) if (slots[i] >= (int64_t)cd->d[0] * cd->d[2]) return NND_BAD_PARAM;
    for (int i = 0; i < count; i++) for (int h = 0; slots[i] >= 0 && h < td->d[1]; h++) for (int e = 0; e < td->d[2]; e++) {
        long to = slots[i] / cd->d[2] * cd->s[0] + (long)h * cd->s[1] + slots[i] % cd->d[2] * cd->s[2] + (long)e * cd->s[3];
        put(c, cd->dtype, to, get(t, td->dtype, (long)i * td->s[0] + (long)h * td->s[1] + (long)e * td->s[2]));
    }
    return NND_SUCCESS;
}
nnd_status_t nnd_cache_put(nnd_handle_t h, nnd_tensor_t kd, const void *k, nnd_tensor_t vd, const void *v, int count,
                           const int64_t *slots, nnd_tensor_t kcd, void *kc, nnd_tensor_t vcd, void *vc) {
    if (!h) return NND_BAD_PARAM;
    nnd_status_t status = put_tokens(kd, k, count, slots, kcd, kc);
#ifdef VALUES_ARE_NOT_CACHED
    return status;
#endif
    return status != NND_SUCCESS ? status : put_tokens(vd, v, count, slots, vcd, vc);
}
